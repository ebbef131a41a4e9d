"""What C++ prints to stderr while a program compiles: the lines worth keeping.

XLA reports "Involuntary full rematerialization" and the like only there; see ``stderr.py``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from . import stderr

_LOG = re.compile(r"^(?P<level>[IWEF])(?:\d{4}|\d{8}) [^\]]*?(?P<file>[\w.]+\.(?:cc|h):\d+)\] ")
_NOISE = re.compile(
    r"could not determine TPU|host bounds|worker.hostname|TPU_WORKER|slow_operation_alarm"
    r"|Constant folding|cpu_aot_loader|cpu_feature|[Mm]achine type|Source Location Trace"
)
_ALWAYS = re.compile(r"[Rr]ematerializ|\[SPMD\]|[Pp]artition|[Rr]eshard|[Ss]hardy|[Ss]harding")
_MAX_MESSAGES = 200
# an alarm is printed while the operation runs, and again with the time once it is done
_TOOK = re.compile(
    r"The operation took (?P<took>[\dhms.]+)\n(?P<what>[^\n:]{1,200}?)(?: is taking > [^\n:]*)?:"
    r"\n\n +(?P<instruction>%?[^\n]+)\n"
)
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(h|ms|us|ns|m|s)")
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
MIXED = (
    "Several programs were compiled at the same time: XLA does not say which of them the "
    "messages below are about."
)


class Messages(list[str]):
    """Messages, one line each; ``slow``: what XLA itself reports as slow to compile."""

    slow: tuple[SlowText, ...] = ()


class SlowText(NamedTuple):
    """One alarm: ``what`` was slow, the instruction as XLA prints it ("" if none), how long."""

    what: str
    instruction: str
    seconds: float


@contextlib.contextmanager
def stderr_kept() -> Iterator[Messages]:
    """Yields a list that holds the compiler's messages, one line each, once the block ends.

    If other threads compiled at the same time, messages cannot be separated: ``MIXED`` then
    precedes them.
    """
    kept = Messages()
    watch = stderr.Watch()
    try:
        watch.begin()
        yield kept
    finally:
        text, mixed = watch.end()
        lines = compiler_lines(text)
        kept += [MIXED, *lines] if mixed and lines else lines
        kept.slow = () if mixed else slow_operations(text)


def slow_operations(text: str) -> tuple[SlowText, ...]:
    """What ``slow_operation_alarm.cc`` reported in a log, slowest first."""
    found = []
    for m in _TOOK.finditer(text):
        seconds = sum(float(n) * _UNIT_SECONDS[unit] for n, unit in _PARTS.findall(m["took"]))
        found.append(SlowText(m["what"].strip(), m["instruction"].strip(), seconds))
        if len(found) == _MAX_MESSAGES:
            break
    return tuple(sorted(found, key=lambda slow: -slow.seconds))


def compiler_lines(text: str) -> list[str]:
    """The compiler's warnings and errors in a log, without time stamps and without repeats."""
    out: dict[str, None] = {}
    for line in text.splitlines():
        m = _LOG.match(line)
        said = line[m.end() :].strip() if m else line.strip()
        if not said or _NOISE.search(line):
            continue
        if (m is not None and m["level"] != "I") or _ALWAYS.search(said):
            out[said] = None
        if len(out) == _MAX_MESSAGES:
            break
    return list(out)
