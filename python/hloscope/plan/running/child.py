"""The process that compiles candidates: one job after another until its input ends.

    parent ── length + pickle ──▶ stdin      where modules are, then jobs
           ◀── length + pickle ── stdout     READY once jax is imported, then one answer per job

A job that crashes, hangs or eats all memory takes this process with it and nothing else. What
the program prints goes to standard error, never among the answers.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
import traceback
from typing import IO, Any

READY = {"ready": True}


def read_message(stream: IO[bytes]) -> Any:
    """The next message, or None at the end."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (size,) = struct.unpack("<Q", head)
    data = stream.read(size)
    return pickle.loads(data) if len(data) == size else None


def write_message(stream: IO[bytes], message: Any) -> None:
    """Writes a message and flushes."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)))
    stream.write(data)
    stream.flush()


def run(job: dict[str, Any], functions: dict[str, Any]) -> dict[str, Any]:
    """Compiles and measures one candidate in this process; errors become a line."""
    start = time.perf_counter()
    try:
        return {**_run(job, functions), "compile_seconds": time.perf_counter() - start}
    except MemoryError:
        said = "out of memory: MemoryError"
    except Exception as error:
        if os.environ.get("HLOSCOPE_TRACEBACK"):
            traceback.print_exc()
        said = _line(error)
    return {"error": said, "compile_seconds": time.perf_counter() - start}


def _line(error: BaseException) -> str:
    """The first line; XLA's own messages go on after it."""
    text = str(error).strip()
    first = next((x.strip() for x in text.splitlines() if x.strip()), "")
    known = type(error).__name__ in ("CaptureError", "ValueError", "HardwareError")
    kind = "out of memory: " if "RESOURCE_EXHAUSTED" in text else ""
    return kind + (first if known and first else f"{type(error).__name__}: {first}")[:400]


def _run(job: dict[str, Any], functions: dict[str, Any]) -> dict[str, Any]:
    from ...capturing.planning import sharded
    from . import figures

    key = job["function"]
    if key not in functions:
        functions.clear()
        functions[key] = unpickled(job["program"])
    fn, args, kwargs, custom = functions[key]
    options = job["compiler_options"]
    if job["want"] == "figures" and custom is None:  # a user's own cost may run the program
        options = {**sharded.quick_options(job["topology"]), **(options or {})}
    cap = sharded.capture_sharded(
        fn, args, kwargs, job["axes"], job["specs"],
        topology_name=job["topology"], hardware=job["hardware"], donate=job["donate"],
        carry=job["carry"],
        compiler_options=options or None, title=job["title"],
        provenance=job.get("provenance", False),
    )  # fmt: skip
    if job["want"] == "capture":
        from dataclasses import replace

        target = replace(cap.target, before_partitioning=None)
        return {"text": cap.text, "target": target, "title": cap.title}
    if job["want"] == "measure":
        return {"seconds": sharded.measure(cap, job["runs"])}
    found = figures.figures(cap, job["hardware"], custom)
    return {"figures": figures.to_plain(found), "name": cap.module.name}


def unpickled(data: bytes) -> Any:
    """A program (function, arguments, keywords, the user's cost) by cloudpickle."""
    import cloudpickle

    return cloudpickle.loads(data)


def main() -> None:
    """Answers jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of the program must not mix with the answers
    jobs = sys.stdin.buffer
    hello = read_message(jobs)
    if hello is None:
        return
    for path in hello["path"]:
        if path not in sys.path:
            sys.path.append(path)
    from ...capturing.planning import sharded  # noqa: F401  (before the first candidate's time runs)

    write_message(answers, READY)
    functions: dict[str, Any] = {}
    while (job := read_message(jobs)) is not None:
        write_message(answers, run(job, functions))


if __name__ == "__main__":
    main()
