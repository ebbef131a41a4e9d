"""Whether a changed program computes what it did: both run on the same random inputs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ...api.capture import Capture
from ...hlo.changes import MAY_ALTER, SameValues
from ..compat import jax_api as _compat

# More than these, per device, and a run takes minutes on an ordinary machine.
MOST_BYTES = 1 << 30
MOST_FLOPS = 1e11


def same_values(changed: Capture) -> SameValues:
    """Runs the program and that which it was made from, where both fit this machine."""
    before = changed.base
    may = any(c.kind in MAY_ALTER for c in changed.changes)
    if before is None:
        return SameValues(None, "nothing was changed", may)
    programs: list[Any] = [c.for_hosts.program for c in (before, changed)]
    why_not = next(filter(None, map(_why_not, (before, changed))), "")
    if not why_not:
        shapes = [jax.tree.map(lambda a: a.shape, p.compiled.args_info) for p in programs]
        if shapes[0] != shapes[1]:
            why_not = "the arguments have other shapes"
    if why_not:
        return SameValues(None, why_not, may)
    made = [_run(p.compiled) for p in programs]
    pairs = zip(*map(jax.tree.leaves, made), strict=True)
    return SameValues(max((_difference(a, b) for a, b in pairs), default=0.0), "", may)


def _why_not(cap: Capture) -> str:
    program: Any = cap.for_hosts.program
    if program is None:
        return "the program stayed in another process"
    if cap.does_not_fit:
        return "it does not fit"
    devices = _compat.partition_devices(program.lowered, program.compiled)
    if not _compat.attached(devices):
        return "its devices are not attached"
    stats = cap.target.memory_stats
    taken = sum(stats.get(f"{n}_size_in_bytes", 0) for n in ("argument", "temp", "output"))
    flops = cap.target.cost_analysis.get("flops", 0.0)
    if taken * len(devices) > MOST_BYTES or flops * len(devices) > MOST_FLOPS:
        return "it is too large for this machine"
    return ""


def _run(compiled: Any) -> Any:
    """The results for random inputs, the same for every program of the same shapes."""
    random = np.random.default_rng(0)

    def make(info: Any, sharding: Any) -> Any:
        dtype = info.dtype
        if jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
            keys = jax.random.split(jax.random.key(0), info.shape) if info.shape else None
            return jax.device_put(jax.random.key(0) if keys is None else keys, sharding)
        if jax.numpy.issubdtype(dtype, jax.numpy.inexact):
            value = random.standard_normal(info.shape).astype(dtype)
        else:
            value = random.integers(0, 2, info.shape).astype(dtype)
        return jax.device_put(value, sharding)

    args, kwargs = jax.tree.map(make, compiled.args_info, compiled.input_shardings)
    return jax.tree.map(_plain, compiled(*args, **kwargs))


def _plain(value: Any) -> Any:
    is_key = jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def _difference(a: Any, b: Any) -> float:
    """The largest difference, as part of the largest value."""
    if not jax.numpy.issubdtype(a.dtype, jax.numpy.inexact):
        return float(not np.array_equal(a, b))
    wide = np.complex128 if jax.numpy.issubdtype(a.dtype, jax.numpy.complexfloating) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    largest = float(np.max(np.abs(a[np.isfinite(a)]), initial=0.0))
    off = float(np.max(np.abs(np.where(same, 0, a - b))))
    return off / largest if largest else float("inf")
