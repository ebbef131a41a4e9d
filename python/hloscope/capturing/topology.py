"""TPU topologies without a TPU, and meshes over any devices.

``topology_devices("v5e:16x16")`` are compile-only devices with coordinates: libtpu compiles
for them as it would on the pod. libtpu probes its environment when it loads: without the
variables of ``_LIBTPU_ENV`` it waits minutes for a metadata server on a machine that has none.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from ..hardware.platforms import tpu_start_up_would_hang
from .compat import jax_api as _compat
from .errors import CaptureError

_LIBTPU_ENV = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
}

_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBE = (
    "1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8",
    "8x8x8", "8x8x16", "8x16x16", "16x16x16",
)  # fmt: skip
KINDS: dict[str, tuple[str, ...]] = {
    "v2": ("2x2", "4x4", "8x8", "16x16"),
    "v3": ("2x2", "4x4", "8x8", "16x16", "32x32"),
    "v4": _CUBE[1:],
    "v5e": _FLAT,
    "v5p": _CUBE,
    "v6e": _FLAT,
    "tpu7x": _CUBE,
}
KNOWN = tuple(f"{kind}:{shape}" for kind, shapes in KINDS.items() for shape in shapes)

# What clouds call them: v5litepod-256 is 256 chips, v4-8 and v5p-8 are 8 cores, 4 chips.
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "v6": "v6e", "v7x": "tpu7x", "7x": "tpu7x"}
_ACCELERATOR = re.compile(r"([a-z0-9]+)-(\d{1,6})\Z")
_CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2}


def canonical(name: str) -> str:
    """``v5litepod-256`` and ``V5E:16X16`` → ``v5e:16x16``; unknown spellings unchanged."""
    text = name.strip().lower().replace(" ", "")
    m = _ACCELERATOR.match(text)
    if m:
        kind = _ALIASES.get(m[1], m[1])
        chips = int(m[2]) // _CORES_PER_CHIP.get(kind, 1)
        for shape in KINDS.get(kind, ()):
            if math.prod(int(n) for n in shape.split("x")) == chips:
                return f"{kind}:{shape}"
        return name
    kind, colon, shape = text.partition(":")
    return f"{_ALIASES.get(kind, kind)}{colon}{shape}"


@cache
def topology_devices(name: str) -> tuple[Any, ...]:
    """Compile-only devices of a TPU topology, with ``coords``.

    Raises ``CaptureError`` when libtpu is missing or the topology is unknown.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise CaptureError(
            f"cannot compile for {name}: libtpu is not installed; "
            'pip install "hloscope[tpu]" (no TPU is needed)'
        )
    avoid_tpu_start_up()
    from jax.experimental import topologies

    wanted = canonical(name)
    if not wanted:
        raise CaptureError("the topology has no name; give for example v5e:16x16")
    # v4 chips join their two cores into one device ("megacore") on real machines
    extra = {"chip_config_name": "megacore"} if wanted.startswith("v4:") else {}
    try:
        with _environment(_LIBTPU_ENV):
            found = topologies.get_topology_desc(platform="tpu", topology_name=wanted, **extra)
    except Exception as error:
        raise CaptureError(_unknown(name, error)) from error
    return tuple(found.devices)


def _unknown(name: str, error: Exception) -> str:
    wanted = canonical(name)
    kind = wanted.partition(":")[0]
    near = difflib.get_close_matches(wanted, KNOWN, n=4, cutoff=0.6)
    if kind in KINDS:
        near = [n for n in near if n.startswith(kind + ":")]
        near += [f"{kind}:{s}" for s in KINDS[kind] if f"{kind}:{s}" not in near]
    near = near or [f"{k}:{s[-1]}" for k, s in KINDS.items()]
    said = str(error).strip().splitlines()
    why = f" ({said[0][:160]})" if said and kind in KINDS and ":" in wanted else ""
    return f"unknown TPU topology {name!r}{why}; did you mean {', '.join(near[:6])}?"


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets what is not set, for the duration of the block."""
    added = [k for k in values if k not in os.environ]
    os.environ.update({k: values[k] for k in added})
    try:
        yield
    finally:
        for k in added:
            os.environ.pop(k, None)


def avoid_tpu_start_up() -> bool:
    """Keeps jax from looking for a TPU that is not there; True if it had to.

    With libtpu installed, no ``JAX_PLATFORMS`` and no TPU, jax can hang for minutes when it
    starts its backends. When it has not started them yet and no accelerator is attached,
    this process is told to use the CPU.
    """
    if _compat.platforms_chosen() or _compat.backends_initialized():
        return False
    if not tpu_start_up_would_hang():
        return False
    jax.config.update("jax_platforms", "cpu")
    warnings.warn(
        "libtpu is installed and no TPU is attached: jax uses the CPU in this process "
        "(set JAX_PLATFORMS to choose)",
        stacklevel=3,
    )
    return True


def make_mesh(
    devices: Sequence[Any],
    axes: Mapping[str, int],
    where: str,
    *,
    exact: bool,
    types: tuple[Any, ...] | None = None,
) -> Mesh:
    """A mesh over the devices in an order that suits their torus, with these axis types.

    ``exact``: the sizes must multiply to all devices (a topology); otherwise the first ones
    are used. Raises ``CaptureError`` when they do not fit.
    """
    sizes = tuple(axes.values())
    wanted = math.prod(sizes)
    spelled = " × ".join(f"{a}={n}" for a, n in axes.items())
    if wanted > len(devices) or (exact and wanted != len(devices)):
        chips = len({getattr(d, "coords", None) and tuple(d.coords) for d in devices})
        cores = (
            f" ({len(devices) // chips} on each of {chips} chips)"
            if chips > 1 and (chips < len(devices))
            else ""
        )
        hint = (
            "choose sizes whose product is that"
            if exact
            else 'ask for more with XLA_FLAGS="--xla_force_host_platform_device_count=N" before '
            'jax starts, or give topology="v5e:2x4"'
        )
        raise CaptureError(
            f"mesh {spelled} needs {wanted} devices and {where} has {len(devices)}{cores}; {hint}"
        )
    from jax.experimental import mesh_utils

    chosen = list(devices[:wanted])
    for split in (False, True):
        with contextlib.suppress(Exception):
            grid = mesh_utils.create_device_mesh(sizes, chosen, allow_split_physical_axes=split)
            return Mesh(grid, tuple(axes), axis_types=types)
    grid = np.array(chosen, dtype=object).reshape(sizes)
    return Mesh(grid, tuple(axes), axis_types=types)
