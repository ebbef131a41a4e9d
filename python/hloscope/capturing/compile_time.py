"""Compiles a program once more under jax's profiler, which has an event for every pass.

    backend_compile_and_load ─────────────────────────────────  the calling thread
        PjRtCpuClient::Compile ─────────────────────────────    a thread of the compiler's
            HLO passes after layout assignment (jit_f) ──       a pipeline, with its module
                simplification ── algsimp, cse, …               its passes, pipelines inside some
            Codegen ── JitCompiler::Compile                     waits for threads that make code

Events of a thread nest, so what each took itself adds up to the whole.

The profiler cannot see libtpu compile without a TPU. libtpu says itself when each pass ran, in a
file of its dump (readers/files/pass_times.py); the passes are then told apart, the rest is not.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ..api.compile_time import (
    AROUND,
    CODE,
    PASS,
    PIPELINE,
    REST,
    CompileStep,
    CompileTime,
    pass_runs,
)
from ..hlo.snapshots import TimedPass
from ..readers.files.pass_times import parse_times
from .compat import jax_api as _compat
from .dumps import dumping
from .errors import CaptureError

_NO_PASS = "no-pass-has-this-name"
_ROOT = "backend_compile_and_load"
_CHECKS = "RunInvariantCheckers"
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

    Raises ``CaptureError`` where neither the profiler nor the compiler can say it.
    """
    devices = _compat.partition_devices(lowered, None)
    if devices and getattr(devices[0], "platform", "") == "tpu":
        return _by_compiler(lowered, options)
    if _compat.profiler_would_crash():
        raise CaptureError(
            "libtpu is loaded in this process and there is no TPU (as after compiling for a "
            "topology), and jax's profiler would crash it: measure the compile for a CPU or GPU in "
            "a process that has JAX_PLATFORMS=cpu and compiles for no topology"
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


def _by_compiler(lowered: Any, options: dict[str, Any] | None) -> CompileTime:
    """A compile whose passes the compiler timed itself, for a dump that has nothing else."""
    with dumping.dump_folder(dumping.bytes_needed(lowered)) as room:
        if room.path is None:
            raise CaptureError(f"the compile cannot be measured: {room.why_not}")
        dumped = {
            "xla_dump_to": room.path,
            "xla_dump_module_metadata": True,
            "xla_dump_hlo_pass_re": _NO_PASS,
        }
        began = time.perf_counter()
        lowered.compile(compiler_options={**(options or {}), **dumped})
        total = time.perf_counter() - began
        files = sorted(Path(room.path).glob("*.metadata.textproto"))
        timed = parse_times(files[0].read_text(errors="replace")) if files else ()
    if not timed:
        raise CaptureError("this compiler does not say when its passes ran")
    runs = pass_runs(timed)
    seconds: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        key = (PASS, run.name, run.pipeline) if run.name else (PIPELINE, run.pipeline, "")
        seconds.setdefault(key, []).append(run.seconds)
    rows = [CompileStep(*key, sum(took), len(took)) for key, took in seconds.items()]
    left = max(total - sum(row.seconds for row in rows), 0.0)
    rows.append(CompileStep(REST, "libtpu does not tell apart", "", left, 1))
    return CompileTime(tuple(sorted(rows, key=lambda row: -row.seconds)), total, runs=runs)


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
        runs=pass_runs(_passes(compiling)),
    )


def _passes(events: Sequence[_Timed]) -> list[TimedPass]:
    """When each pass ran, in order; "" for what a pipeline checks before its first one."""
    found = []
    for event, _, around in _own_times(events):
        if around and _is_pipeline(around[-1]) and not _is_pipeline(event):
            name = "" if event.name == _CHECKS else event.name
            found.append(TimedPass(_plain(around[-1]), name, event.begin, event.end))
    return sorted(found, key=lambda t: (t.begin, -t.end))


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
