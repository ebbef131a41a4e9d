"""One candidate compiled and measured: in this thread's own child process, or right here.

A thread, or a worker of Dask or Ray, calls ``evaluate``. A candidate that crashes, hangs or eats
all memory takes its child process with it and nothing else, under every executor. Run as a program,
this module is that child.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from ...processes import worker

_here = threading.local()


def evaluate(task: dict[str, Any]) -> dict[str, Any]:
    """The answer to ``task["job"]``; ``task["isolate"]`` says whether in a child process."""
    job = task["job"]
    if not task["isolate"]:
        _find_modules(task["path"])  # of the person's functions, in a worker of a cluster
        functions = getattr(_here, "functions", None)
        if functions is None:
            functions = _here.functions = {}
        return run(job, functions)
    hello = {"path": task["path"]}
    own = worker.worker_of_this_thread(__name__, task["environment"], hello)
    return own.ask(job, worker.JobLimits(task["timeout"], task["memory_limit"]))


def environment(platform: str, topology: str | None, devices: int) -> dict[str, str]:
    """Variables of a compiling process: the platform, and on CPU at least ``devices`` devices."""
    if topology is None and platform not in ("cpu", ""):
        return {"JAX_PLATFORMS": platform, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    name = "--xla_force_host_platform_device_count"
    kept = [f for f in os.environ.get("XLA_FLAGS", "").split() if not f.startswith(name)]
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join([*kept, f"{name}={devices}"])}


def run(job: dict[str, Any], functions: dict[str, Any]) -> dict[str, Any]:
    """Compiles and measures one candidate in this process; errors become a line.

    ``functions`` keeps the program of the last job, which the next one usually shares.
    """
    start = time.perf_counter()
    try:
        return {**_run(job, functions), "compile_seconds": time.perf_counter() - start}
    except MemoryError:
        trouble = "out of memory: MemoryError"
    except Exception as error:
        if os.environ.get("HLOSCOPE_TRACEBACK"):
            traceback.print_exc()
        trouble = line_of_error(error)
    return {"error": trouble, "compile_seconds": time.perf_counter() - start}


def line_of_error(error: BaseException) -> str:
    """The first line of an error; XLA's own messages go on after it."""
    text = str(error).strip()
    first = next((x.strip() for x in text.splitlines() if x.strip()), "")
    known = type(error).__name__ in ("CaptureError", "ValueError", "HardwareError")
    known = known or type(error).__name__ == "CannotChange"
    kind = "out of memory: " if "RESOURCE_EXHAUSTED" in text else ""
    return kind + (first if known and first else f"{type(error).__name__}: {first}")[:400]


def _run(job: dict[str, Any], functions: dict[str, Any]) -> dict[str, Any]:
    from ...capturing.planning import sharded
    from . import candidate_figures as figures

    if "changes" in job:
        return _changed(job, functions)
    key = job["function"]
    if key not in functions:
        functions.clear()
        functions[key] = unpickled(job["program"])
    fn, args, kwargs, custom = functions[key]
    options: sharded.CaptureOptions = job["options"]
    if job["want"] == "figures" and custom is None:  # a user's own cost may run the program
        options = options.without_code()
    cap = sharded.capture_sharded(fn, args, kwargs, job["axes"], job["specs"], options)
    if job["want"] == "capture":
        from dataclasses import replace

        target = replace(cap.target, before_partitioning=None)
        return {"text": cap.text, "target": target, "title": cap.title}
    if job["want"] == "measure":
        return {"seconds": sharded.measure(cap, job["runs"])}
    found = figures.figures(cap, options.hardware, custom)
    return {"figures": figures.to_plain(found), "name": cap.module.name}


def _changed(job: dict[str, Any], functions: dict[str, Any]) -> dict[str, Any]:
    """The figures of a captured program with changes, or without."""
    from ...capturing.changing import again, what_if
    from . import candidate_figures as figures

    base = job.get("live")
    if base is None:
        key = job["function"]
        if key not in functions:
            functions.clear()
            functions[key] = again.captured(job["program"])
        base = functions[key]
    if job["changes"]:
        found = what_if.what_if(base, job["changes"], explains=False)
    else:
        found = base.at("optimized")
    answer: dict[str, Any] = {
        "figures": figures.to_plain(figures.figures(found)),
        "changes": [[c.kind, c.words, c.code, c.line] for c in found.changes],
        "name": found.module.name,
        "compiler_seconds": found.target.compile_seconds,
    }
    if job["want"] == "live":
        live = found.memory.live_at_peak[:LIVE]
        answer["live"] = [[v.name, int(v.bytes)] for v in live]
        answer["categories"] = [[c, int(b)] for c, b in found.memory.by_category.items()]
        answer["does_not_fit"] = bool(found.does_not_fit)
        answer["compiled_for"] = found.target.device_kind or found.target.platform
    return answer


LIVE = 6  # of what is live at the peak, as many are named


def unpickled(data: bytes) -> Any:
    """A program (function, arguments, keywords, the user's cost) by cloudpickle."""
    import cloudpickle

    return cloudpickle.loads(data)


def _find_modules(paths: list[str]) -> None:
    sys.path.extend(path for path in paths if path not in sys.path)


def _begin(hello: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    _find_modules(hello["path"])
    from ...capturing.planning import sharded  # noqa: F401  (before the first candidate's time runs)

    functions: dict[str, Any] = {}
    return lambda job: run(job, functions)


if __name__ == "__main__":
    worker.serve(_begin)
