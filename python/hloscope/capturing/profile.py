"""Runs a compiled program under ``jax.profiler`` and reads what it measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..readers.xplane.xplane import Trace, read_trace
from .compat import jax_api as _compat
from .errors import CaptureError


def check_runnable(args: tuple[Any, ...], kwargs: Mapping[str, Any], steps: int) -> None:
    """Raises ``CaptureError`` for a number of steps or for arguments that cannot be run with."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise CaptureError(f"steps must be at least 1, not {steps!r}: how often it is measured")
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves((args, dict(kwargs)))):
        raise CaptureError("measuring runs the program: give arrays, not ShapeDtypeStruct")


def run_profiled(
    compiled: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], steps: int
) -> Trace:
    """Calls ``compiled(*args, **kwargs)`` once unmeasured and ``steps`` times under the profiler.

    Arguments are put where the program expects them; static ones may be among them. Donated
    arguments stay usable: every step gets a copy. Raises ``CaptureError`` for arguments that
    are not arrays, and for a topology without devices.
    """
    call, given = _ready(compiled, args, kwargs, steps)

    def run() -> None:
        jax.block_until_ready(call(given()))

    run()
    try:
        temporary = tempfile.TemporaryDirectory(prefix="hloscope-")
    except OSError as error:
        raise CaptureError(
            f"jax's profiler writes its trace to a folder, and none could be made ({error}). "
            "Set TMPDIR to a folder that can be written to"
        ) from None
    with temporary as folder:
        with jax.profiler.trace(folder):
            for _ in range(steps):
                run()
        return read_trace(folder)


def run_timed(
    compiled: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    runs: int,
    say: Callable[[str], None],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of each of ``runs`` calls until all is done, and until the call returned.

    After one unmeasured call. ``say`` is told how far it is, between calls. Raises
    ``CaptureError`` as ``run_profiled`` does.
    """
    call, given = _ready(compiled, args, kwargs, runs)
    jax.block_until_ready(call(given()))
    done, returned = [], []
    for number in range(1, runs + 1):
        say(f"run {number:,} of {runs:,}")
        values = given()
        began = time.perf_counter()
        result = call(values)
        returned.append(time.perf_counter() - began)
        jax.block_until_ready(result)
        done.append(time.perf_counter() - began)
        del result
    return tuple(done), tuple(returned)


def _ready(
    compiled: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], steps: int
) -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    """A call of the program, and what makes the arguments of the next one, on their devices."""
    check_runnable(args, kwargs, steps)
    devices = _compat.partition_devices(None, compiled)
    if not _compat.attached(devices):
        raise CaptureError(
            f"the program is for {len(devices)} × {devices[0].device_kind} that are not attached "
            "here, it cannot run; take a trace there and join it: cap.add_profile('….xplane.pb')"
        )
    if _compat.profiler_would_crash():
        raise CaptureError(
            "libtpu is loaded in this process and there is no TPU (as after compiling for a "
            "topology, or where JAX_PLATFORMS leaves the choice to jax), and jax's profiler would "
            "crash it; start again with JAX_PLATFORMS=cpu and measure first, or join a trace with "
            "cap.add_profile('….xplane.pb')"
        )
    args, kwargs = _placed(compiled, *_dynamic(compiled, args, kwargs))
    donates = any(getattr(i, "donated", False) for i in jax.tree.leaves(compiled.args_info))

    def given() -> Any:
        values = jax.tree.map(jnp.copy, (args, kwargs)) if donates else (args, kwargs)
        return jax.block_until_ready(values)

    return lambda values: compiled(*values[0], **values[1]), given


def _dynamic(
    compiled: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without the static ones, which are compiled in."""
    infos, named = compiled.args_info
    if len(args) > len(infos):
        slots = iter(infos)
        args = tuple(_fitting(args, slots))
    if len(args) != len(infos):
        raise CaptureError(
            f"the compiled program takes {len(infos)} positional arguments beside static ones; "
            f"{len(args)} of those given fit"
        )
    return args, {k: v for k, v in kwargs.items() if k in named}


def _fitting(args: tuple[Any, ...], slots: Iterator[Any]) -> Iterator[Any]:
    slot = next(slots, None)
    for given in args:
        if slot is not None and _signature(given) == _signature(slot):
            yield given
            slot = next(slots, None)


def _signature(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
    leaves, structure = jax.tree.flatten(tree)
    shapes = [getattr(leaf, "shape", None) for leaf in leaves]
    return structure, [np.shape(v) if s is None else s for s, v in zip(shapes, leaves, strict=True)]


def _placed(compiled: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments on the program's devices, in its shardings, as a call of it puts them."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    wanted = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda s: s is None)
    if len(wanted) != len(leaves):
        return args, kwargs
    moved = [
        jax.device_put(x, s) if isinstance(s, jax.sharding.Sharding) else x
        for x, s in zip(leaves, wanted, strict=True)
    ]
    placed: tuple[Any, Any] = jax.tree.unflatten(structure, moved)
    return placed
