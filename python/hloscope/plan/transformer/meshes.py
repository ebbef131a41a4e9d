"""Every mesh of a number of devices that fits a transformer, quickest step first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from .model import AnalyticModel
from .sizes import AXES, checked, with_mesh

_Model = TypeVar("_Model", bound=AnalyticModel)


def factors(n: int, axes: int) -> Iterator[tuple[int, ...]]:
    """All ways to write n as an ordered product of ``axes`` sizes."""
    if axes == 1:
        yield (n,)
        return
    for first in range(1, n + 1):
        if n % first == 0:
            for rest in factors(n // first, axes - 1):
                yield (first, *rest)


def best_meshes(model: _Model, devices: int, limit: int) -> tuple[_Model, ...]:
    """See ``Transformer.best_meshes``."""
    if devices < 1:
        raise ValueError(f"a mesh has at least one device, not {devices}")
    axes = [a for a in AXES if a != "expert" or model.sizes.experts > 1]
    found, why = [], ""
    for sizes in factors(devices, len(axes)):
        mesh = {a: n for a, n in zip(axes, sizes, strict=True) if n > 1}
        try:
            s = checked(with_mesh(model.sizes, mesh))
            made = model.with_sizes(mesh={**s.mesh, "tensor": s.tensor}, tensor_kind=s.tensor_kind)
            made.totals  # noqa: B018  (a chip may lack a link for so many devices)
        except ValueError as error:
            why = str(error)
            continue
        found.append(made)
    if not found:
        raise ValueError(f"no mesh of {devices} devices suits these sizes: {why}")
    found.sort(key=lambda m: (m.totals.fits is False, m.totals.step_seconds, m.totals.memory_bytes))
    return tuple(found[:limit])


def mesh_label(model: AnalyticModel) -> str:
    """ "data 4 × tensor 2"; "1 device"."""
    s = model.sizes
    named = [(a, s.tensor if a == "tensor" else (s.size(a),)) for a in reversed(AXES)]
    parts = [f"{a} {'×'.join(map(str, n))}" for a, n in named if max(n) > 1]
    return " · ".join(parts) or "1 device"
