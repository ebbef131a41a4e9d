"""Prefixes that loggers, terminals and users put before each line of a dump, removed again.

    I0311 11:02:03.123456   123 compiler.cc:77] HloModule m      glog
    2026-05-01T12:00:00.123456789Z HloModule m                   containers
    [rank0]: HloModule m        trainer-1  | HloModule m        12  HloModule m       > HloModule m

What comes before ``HloModule`` shows what to look for: the same with other numbers.
"""

from __future__ import annotations

import re

from ...hlo.texts.regex import regex

# A line that begins a module, after any of these.
START = regex(
    r"(?:[IWEF]\d{4,8}[ ][^\]\n]*\][ ]?|[^\s{}=\"]{1,80}:[ ]|[\d\-:.TZ+ ]{8,40}[ ]"
    r"|[\w.\-/]{1,60}[ \t]*\|[ ]|[ \t]*\d{1,9}[ \t|:]+|(?:>[ ]?){1,8})?"
    r"[ \t]*HloModule[ \t]+"
)
_GLOG = regex(r"[IWEF]\d{4,8} [^\]\n]{1,200}\] ?")
_PART = regex(r"(\d+)|([ \t]+)|([^\d\s]+)")
_LOOKED_AT = 200  # how many lines decide whether every line has the prefix
_COLOURS = regex(r"\x1b\[[\d;]*[A-Za-z]")


def strip_colours(text: str) -> str:
    """The text without a terminal's colours."""
    return _COLOURS.sub("", text) if "\x1b[" in text else text


def strip(chunk: str) -> tuple[str, list[int] | None]:
    """The lines without their prefixes, and each prefix's length; None if there are none."""
    prefix = _prefix(chunk)
    if prefix is None:
        return chunk, None
    shifts, lines = [], []
    for line in chunk.split("\n"):
        m = prefix.match(line)
        shifts.append(m.end() if m else 0)
        lines.append(line[m.end() :] if m else line)
    return "\n".join(lines), shifts


def _prefix(chunk: str) -> re.Pattern[str] | None:
    """A pattern for the prefix of the first line, if most of the next ones have it too."""
    if _GLOG.match(chunk):
        return _GLOG
    if chunk.lstrip(" \t").startswith("HloModule"):
        return None
    at = chunk.find("HloModule")
    if at == -1 or "\n" in chunk[:at]:
        return None
    pattern = regex(_like(chunk[:at]))
    following = [s for s in chunk.split("\n", _LOOKED_AT)[1:_LOOKED_AT] if s.strip()]
    having = sum(pattern.match(s) is not None for s in following)
    return pattern if following and having * 2 > len(following) else None


def _like(prefix: str) -> str:
    """A pattern for the same text with other numbers; blanks may be missing, as on empty lines."""
    parts = []
    for digits, blanks, other in _PART.findall(prefix):
        parts.append(r"\d+" if digits else r"[ \t]*" if blanks else re.escape(other))
    return "".join(parts)
