"""Shardings as mesh axes per dimension, and into how many tiles axes cut a dimension."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..mesh import Mesh
from .sharding import Sharding

Spec = tuple[tuple[str, ...], ...]  # mesh axes of each dimension


def spec_of(sharding: Sharding, rank: int, mesh: Mesh | None) -> Spec | None:
    """Axis names per dimension, () for unsharded ones; None if axes cannot express the sharding."""
    spec = sharding.to_spec(mesh, rank) if mesh is not None else sharding.spec
    if spec is None:
        return None
    return tuple(tuple(map(str, axes)) for axes in spec) + ((),) * (rank - len(spec))


def axis_of(ref: str) -> str:
    """The axis that a part belongs to: ``model`` for ``model:(1)2``."""
    return ref.partition(":")[0]


def tile_count(dim: Iterable[str], mesh: Mesh | None) -> int:
    """Into how many tiles these axes, or parts of axes, cut a dimension; 1 without a mesh."""
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)) if mesh is not None else {}
    parts = (ref.rpartition(")")[2] for ref in dim)
    return math.prod(int(n) if n.isdecimal() else sizes.get(n, 1) for n in parts)


def cut_further(spec: Spec, dimensions: Sequence[int], mesh: Mesh) -> list[Spec]:
    """The spec with all axes that it leaves free at one dimension, each that they divide."""
    free = tuple(a for a in mesh.axis_names if not any(a == axis_of(x) for e in spec for x in e))
    n = tile_count(free, mesh)
    return [
        (*spec[:d], (*spec[d], *free), *spec[d + 1 :])
        for d, size in enumerate(dimensions)
        if n > 1 and size % (n * tile_count(spec[d], mesh)) == 0
    ]


def as_written(spec: Spec) -> tuple[str | tuple[str, ...] | None, ...]:
    """The entries of a PartitionSpec: ``(None, "data")`` of ``((), ("data",), ())``."""
    last = max((n for n, axes in enumerate(spec, 1) if axes), default=0)
    return tuple(None if not e else e[0] if len(e) == 1 else e for e in spec[:last])
