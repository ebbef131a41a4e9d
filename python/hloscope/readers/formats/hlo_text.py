"""HLO text: a dump, or any text with a module in it."""

from __future__ import annotations

import re

from ...hlo import Module
from ..files.decode import to_text
from ..hlo.text import read_hlo_text

NAME = "HLO text"
SUFFIXES = (".hlo", ".txt", ".log")
IS_CERTAIN = False
_ENTRY = re.compile(r"^[ \t]*ENTRY[ \t]+%?[\w.\-]+[ \t]*[({]", re.M)
_HEADER = re.compile(r"\bHloModule\s+\S")


def accepts(data: bytes) -> bool:
    """True: a module may stand anywhere in a text."""
    return True


def read(data: bytes, name: str) -> list[Module]:
    """The modules; none in a text that does not look like HLO."""
    text, warnings = to_text(data)
    modules = read_hlo_text(text, warnings)
    # Prose and source code may contain lines that look like computations and instructions.
    named = _HEADER.search(text) is not None or _ENTRY.search(text) is not None
    return [m for m in modules if named or any(i.shape.is_array for i in m.instructions)]
