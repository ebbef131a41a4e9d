"""Everything that is done with a file, in a child process whose memory and CPU time are measured.

    found = measured(data)      peak bytes beyond what the process held before, seconds, failures

Used by ``benchmarks/bounded.py`` on thousands of damaged files, and by the tests on attacks. The
child is a fork, so that nothing is imported again; Linux only.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import hloscope as hs
from hloscope.analysis.findings import rules  # noqa: F401 - imported once, not in each fork
from hloscope.api.capture import CannotAnswer
from hloscope.api.read import read
from hloscope.readers import ReadError
from hloscope.show import blocks, html  # noqa: F401
from hloscope.show.text import summary_text

MIB = 1 << 20
# What no file may take: bytes of memory, and seconds of CPU time.
MEMORY, MEMORY_PER_BYTE = 400 * MIB, 60
SECONDS, SECONDS_PER_BYTE = 5.0, 3e-6
# The child is ended where it goes on for as long, or has as much.
_PATIENCE, _ROOM = 3, 3 << 30
_RESULTS = ("summary", "collectives", "shardings", "memory", "source", "findings")
_EXPECTED = (ReadError, CannotAnswer, hs.RendererMissing, hs.DotMissing)


@dataclass(frozen=True)
class Outcome:
    """What one file took; ``failures`` are exceptions that nobody documents, and limits hit."""

    size: int
    peak: int
    seconds: float
    refused: str
    failures: tuple[str, ...]


def allowed(size: int) -> tuple[float, float]:
    """(bytes, seconds) that a file of this size may take."""
    return MEMORY + MEMORY_PER_BYTE * size, SECONDS + SECONDS_PER_BYTE * size


def steps(data: bytes) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every question that commands, notebooks and pages ask of a file."""
    held: list[hs.Capture] = []

    def question(name: str) -> Callable[[], Any]:
        return lambda: str(getattr(held[0], name))

    yield "read", lambda: held.append(read(data))
    cap = held[0]
    for name in _RESULTS:
        yield name, question(name)
    if cap.module.dialect == "hlo":
        yield "cost", lambda: str(cap.cost("tpu-v5e"))
        yield "why", lambda: [str(cap.why(c)) for c in list(cap.collectives)[:20]]
    yield "text", lambda: summary_text(cap)
    yield "view", lambda: blocks.view(cap)
    yield "analyses", lambda: blocks.analyses(cap)
    if cap.has_passes:
        yield "passes", lambda: str(cap.passes())
    yield "html", cap.html
    yield "dot", lambda: str(cap.to_dot())
    yield "printed", lambda: len(cap.module.printed())


def measured(data: bytes) -> Outcome:
    """What ``steps`` take of this data."""
    begin, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(begin)
        try:
            with os.fdopen(end, "w") as out:
                _child(data, out)
        finally:
            os._exit(0)
    os.close(end)
    with os.fdopen(begin) as answer:
        rows = [json.loads(line) for line in answer]
    _, status, used = os.wait4(child, 0)
    seconds = used.ru_utime + used.ru_stime
    peak = max((r["peak"] for r in rows), default=0)
    failures = [r["failure"] for r in rows if r.get("failure")]
    at = rows[-1]["step"] if rows else "start"
    if status:
        failures.append(f"ended by signal {status & 127} in {at}")
    memory, time_allowed = allowed(len(data))
    if peak > memory:
        failures.append(f"took {peak / MIB:,.0f} MB of {memory / MIB:,.0f} MB")
    if seconds > time_allowed:
        slowest = max(rows, key=lambda r: r["seconds"], default={"step": "?"})
        failures.append(f"took {seconds:.1f} s of {time_allowed:.1f} s, most in {slowest['step']}")
    refused = next((r["refused"] for r in rows if r.get("refused")), "")
    return Outcome(len(data), peak, seconds, refused, tuple(failures))


def _child(data: bytes, out: Any) -> None:
    _, seconds = allowed(len(data))
    limit = int(seconds * _PATIENCE) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    held = _held("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (held + _ROOM + 60 * len(data),) * 2)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = _held("VmHWM")
    warnings.simplefilter("error")  # of numpy: a figure that overflowed, shown to a user
    for name, step in steps(data):
        row: dict[str, Any] = {"step": name}
        begun = time.process_time()
        try:
            step()
        except _EXPECTED as error:
            cause = error.__cause__
            known = cause is None or isinstance(cause, (ReadError, OSError, UnicodeError))
            row["refused"] = f"{name}: {error}"
            if name == "read" and not known:
                row["failure"] = f"read: {type(cause).__name__}: {cause}"[:300]
        except BaseException as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(at.filename)}:{at.lineno}"
            row["failure"] = f"{name}: {type(error).__name__} at {where}: {error}"[:300]
        row |= {"seconds": time.process_time() - begun, "peak": _held("VmHWM") - before}
        print(json.dumps(row), file=out, flush=True)
        if name == "read" and ("refused" in row or "failure" in row):
            return


def _held(what: str) -> int:
    with open("/proc/self/status") as file:
        line = next(row for row in file if row.startswith(what))
    return int(line.split()[1]) * 1024


def main() -> int:
    """For tests: each file named on the command line, one JSON line each."""
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            print(json.dumps(vars(measured(file.read())) | {"file": path}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
