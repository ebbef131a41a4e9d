"""What C++ prints to stderr while a program compiles: the lines worth keeping.

XLA reports "Involuntary full rematerialization" and the like only there; see ``stderr.py``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from . import stderr

_LOG = re.compile(r"^(?P<level>[IWEF])(?:\d{4}|\d{8}) [^\]]*?(?P<file>[\w.]+\.(?:cc|h):\d+)\] ")
_NOISE = re.compile(
    r"could not determine TPU|host bounds|worker.hostname|TPU_WORKER|slow_operation_alarm"
    r"|Constant folding|cpu_aot_loader|cpu_feature|[Mm]achine type|Source Location Trace"
)
_ALWAYS = re.compile(r"[Rr]ematerializ|\[SPMD\]|[Pp]artition|[Rr]eshard|[Ss]hardy|[Ss]harding")
_MAX_MESSAGES = 200
MIXED = (
    "Several programs were compiled at the same time: XLA does not say which of them the "
    "messages below are about."
)


@contextlib.contextmanager
def stderr_kept() -> Iterator[list[str]]:
    """Yields a list that holds the compiler's messages, one line each, once the block ends.

    If other threads compiled at the same time, messages cannot be separated: ``MIXED`` then
    precedes them.
    """
    kept: list[str] = []
    watch = stderr.Watch()
    try:
        watch.begin()
        yield kept
    finally:
        text, mixed = watch.end()
        lines = compiler_lines(text)
        kept += [MIXED, *lines] if mixed and lines else lines


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
