"""Runs a compiled program under ``jax.profiler`` and reads what it measured."""

from __future__ import annotations

import tempfile
from typing import Any

import jax

from ..readers.xplane import Trace, read_trace
from .errors import CaptureError


def run_profiled(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], steps: int) -> Trace:
    """Calls ``compiled(*args, **kwargs)`` once unmeasured and ``steps`` times under the profiler.

    Arguments must be arrays (``ShapeDtypeStruct`` cannot run), and must not be donated: they
    are used again. Raises ``CaptureError`` otherwise.
    """
    if steps < 1:
        raise CaptureError(f"steps must be at least 1, not {steps}")
    leaves = jax.tree.leaves((args, kwargs))
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
        raise CaptureError("measuring runs the program: give arrays, not ShapeDtypeStruct")
    if any(getattr(i, "donated", False) for i in jax.tree.leaves(compiled.args_info)):
        raise CaptureError(
            "the program donates its arguments, so it cannot run on them twice: "
            "capture it without donate_argnums to measure it"
        )
    jax.block_until_ready(compiled(*args, **kwargs))
    with tempfile.TemporaryDirectory(prefix="hloscope-") as folder:
        with jax.profiler.trace(folder):
            for _ in range(steps):
                jax.block_until_ready(compiled(*args, **kwargs))
        return read_trace(folder)
