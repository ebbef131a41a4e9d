"""Compiles a program once more under jax's profiler, which has an event for every pass.

    backend_compile_and_load ─────────────────────────────────  the calling thread
        PjRtCpuClient::Compile ─────────────────────────────    a thread of the compiler's
            HLO passes after layout assignment (jit_f) ──       a pipeline, with its module
                simplification ── algsimp, cse, …               its passes, pipelines inside some
            Codegen ── JitCompiler::Compile                     waits for threads that make code

Events of a thread nest, so what each took itself adds up to the whole.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ..api.compile_time import AROUND, CODE, PASS, PIPELINE, CompileStep, CompileTime
from .compat import jax_api as _compat
from .errors import CaptureError

_ROOT = "backend_compile_and_load"
_KERNEL = "FusionCompiler::Compile"
_HANDING_OVER = "jax and the runtime"
_IN_WORDS = {"JitCompiler::Compile": "LLVM (JitCompiler::Compile)"}


class _Timed(NamedTuple):
    name: str
    begin: float
    end: float
    module: str


def measured_compile(lowered: Any, options: dict[str, Any] | None) -> CompileTime:
    """Compiles ``lowered``, of which nothing is cached, and says where the time went.

    Raises ``CaptureError`` where the profiler cannot run.
    """
    if _compat.profiler_would_crash():
        raise CaptureError(
            "libtpu is loaded in this process and there is no TPU (as after compiling for a "
            "topology), and jax's profiler would crash it: measure the compile in a process that "
            "has JAX_PLATFORMS=cpu and compiles for no topology"
        )
    profiling: Any = jax.profiler.ProfileOptions()
    profiling.host_tracer_level, profiling.python_tracer_level = 3, 0
    with tempfile.TemporaryDirectory(prefix="hloscope-") as folder:
        try:
            jax.profiler.start_trace(folder, profiler_options=profiling)
        except Exception as error:
            said = str(error).splitlines()[:1]
            raise CaptureError(f"jax's profiler cannot start: {''.join(said)}") from error
        try:
            began = time.perf_counter()
            lowered.compile(compiler_options=options)
            total = time.perf_counter() - began
        finally:
            jax.profiler.stop_trace()
        traces = list(Path(folder).rglob("*.xplane.pb"))
        if not traces:
            raise CaptureError("jax's profiler wrote no trace of this compile")
        return _told(list(_threads(traces[0])), total)


def _threads(trace: Path) -> Iterator[list[_Timed]]:
    """The events of each thread of the host, the outer ones first; seconds."""
    for plane in jax.profiler.ProfileData.from_file(str(trace)).planes:
        if not plane.name.startswith("/host:"):
            continue
        for line in plane.lines:
            found = []
            for event in line.events:
                begin = event.start_ns / 1e9
                module = ""
                with contextlib.suppress(Exception):
                    module = next((str(v) for k, v in event.stats if k == "module"), "")
                found.append(
                    _Timed(str(event.name), begin, begin + event.duration_ns / 1e9, module)
                )
            yield sorted(found, key=lambda e: (e.begin, -e.end))


def _told(threads: Sequence[list[_Timed]], total: float) -> CompileTime:
    root = next((e for events in threads for e in events if e.name == _ROOT), None)
    if root is None:
        raise CaptureError("the trace of this compile has no event of the compiler")
    inside = [
        [e for e in events if e.begin >= root.begin and e.end <= root.end and e is not root]
        for events in threads
    ]
    compiling = max(inside, key=_covered)
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for event, own, around in _own_times(compiling):
        pipeline = next((_plain(e) for e in reversed(around) if e.module and _is_pipeline(e)), "")
        if _is_pipeline(event):
            key = PIPELINE, _plain(event), ""
        elif pipeline:
            key = PASS, event.name, pipeline
        else:
            key = CODE, _IN_WORDS.get(event.name, event.name), ""
        seconds.setdefault(key, []).append(own)
    rows = [CompileStep(*key, sum(own), len(own)) for key, own in seconds.items()]
    left = total - sum(row.seconds for row in rows)
    rows.append(CompileStep(AROUND, _HANDING_OVER, "", max(left, 0.0), 1))
    kernels = [
        CompileStep(CODE, e.module or e.name, "", e.end - e.begin, 1)
        for events in inside if events is not compiling
        for e in events if e.name == _KERNEL
    ]  # fmt: skip
    return CompileTime(
        tuple(sorted(rows, key=lambda row: -row.seconds)),
        total,
        tuple(sorted(kernels, key=lambda row: -row.seconds)),
    )


def _covered(events: Sequence[_Timed]) -> float:
    """Seconds in which something ran on a thread."""
    covered, until = 0.0, 0.0
    for event in events:
        covered += max(event.end - max(event.begin, until), 0.0)
        until = max(until, event.end)
    return covered


def _own_times(events: Sequence[_Timed]) -> Iterator[tuple[_Timed, float, list[_Timed]]]:
    """Each event with the seconds it took without what is inside, and what it is inside of."""
    stack: list[tuple[_Timed, list[float]]] = []
    for event in [*events, None]:
        while stack and (event is None or event.begin >= stack[-1][0].end):
            done, inner = stack.pop()
            yield done, max(done.end - done.begin - sum(inner), 0.0), [e for e, _ in stack]
        if event is not None:
            if stack:
                stack[-1][1].append(min(event.end, stack[-1][0].end) - event.begin)
            stack.append((event, []))


def _is_pipeline(event: _Timed) -> bool:
    return bool(event.module) and event.name.endswith(f" ({event.module})")


def _plain(event: _Timed) -> str:
    return event.name.removesuffix(f" ({event.module})")
