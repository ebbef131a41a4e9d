"""Files that are found beside a dump and hold no program: a sentence says which file to give."""

from __future__ import annotations

import re

from ...hlo import Module
from ..errors import ReadError

NAME = "a file beside a dump"
SUFFIXES: tuple[str, ...] = ()
IS_CERTAIN = True
# Head of the content, a word further on → what it is, and what to give instead.
_BESIDE = (
    (re.compile(rb'\s*\{\s*"(?:displayTimeUnit|traceEvents|metadata)"'), b'"traceEvents"',
     "is a trace for a timeline viewer, which holds no HLO: give the ….xplane.pb beside it, or "
     "its folder"),
    (re.compile(rb"\s*BufferAssignment:"), b"allocation ",
     "is XLA's report of a buffer assignment, which holds no program: give the "
     "…after_optimizations.txt beside it, or the folder"),
    (re.compile(rb"\s*(?:Memory Space: |Total bytes(?: used)?: |HloLiveRange \()"), b":",
     "is XLA's report of memory use, which holds no program: give the …after_optimizations.txt "
     "beside it, or the folder"),
)  # fmt: skip


def accepts(data: bytes) -> bool:
    head = data[:4096]
    return any(p.match(head) is not None and word in data[: 1 << 20] for p, word, _ in _BESIDE)


def read(data: bytes, name: str) -> list[Module]:
    """Raises ``ReadError`` that says which file to give."""
    head = data[:4096]
    said = next(said for p, word, said in _BESIDE if p.match(head) and word in data[: 1 << 20])
    raise ReadError(f"{name or 'the data'} {said}")
