"""Scanning to the end of a shape, a bracket, a quote or an attribute, without recursion.

Comments (``/*index=5*/``, ``// to the end of the line``) and quoted strings are skipped as in
XLA's lexer, so that a bracket in one of them closes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..hlo.texts.regex import regex

# Blanks, line ends and comments: what XLA's lexer skips between two tokens.
SPACE = r"(?:\s++|/\*(?:[^*]|\*(?!/))*+\*/|//[^\n]*+)*+"
_SPACE = regex(SPACE)
_INLINE_SPACE = regex(r"(?:[ \t]++|/\*(?:[^*]|\*(?!/))*+\*/|//[^\n]*+)*+")
_BRACKET = regex(r'[()\[\]{}"]|/\*|//')
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_QUOTE_REST = regex(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_ARRAY_SHAPE = regex(
    rf"[a-z][a-z0-9]*{SPACE}\[(?:[^\[\]\n=<]|<=)*+\](?:{SPACE}\{{{SPACE}(?:[\d:][^{{}}]*+)?\}})?"
)
_WORD = regex(r"[^\s(]*")
# a computation in place, or the first of a list of them
_BODY = regex(rf"(?:\{{{SPACE}){{1,2}}(?:ROOT\b{SPACE})?%?[^\s=(),{{}}\"]+ = ")
_KEY = regex(r"([\w.\-]+)=")
_PLAIN = regex(r"(?:[^\s,{}()\[\]\"'/]++|/(?![/*]))++")
_COMMENT = regex(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|/\*(?:[^*]|\*(?!/))*+\*/|//[^\n]*+', re.S)
_HAS_BRACKET = regex(r"//|[^{}()\[\]\"]*[{}()\[\]\"]").match
_SINGLE = regex(r"'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'")


def skip(text: str, at: int) -> int:
    """Offset of the next token: past blanks, line ends and comments."""
    m = _SPACE.match(text, at)
    return m.end() if m else at


def skip_inline(text: str, at: int) -> int:
    """As ``skip``, but not past the end of the line (a comment may be longer)."""
    m = _INLINE_SPACE.match(text, at)
    return m.end() if m else at


def line_end(text: str, at: int, limit: int | None = None) -> int:
    """Offset of the line end that follows at ``at``; ``limit``, or the text's end, without one."""
    limit = len(text) if limit is None else limit
    found = text.find("\n", at, limit)
    return limit if found == -1 else found


def closing(text: str, at: int, limit: int) -> int:
    """Offset of the bracket that closes the one at ``at``; -1 when there is none, or another
    kind of bracket closes first: something in between is damaged."""
    opened: list[str] = []
    position = at
    while True:
        m = _BRACKET.search(text, position, limit)
        if m is None:
            return -1
        c = m.group()
        position = m.end()
        if c == '"':
            position = quote_end(text, position, limit)
            if position == -1:
                return -1
        elif c == "/*":
            position = text.find("*/", position, limit) + 2
            if position < 2:
                return -1
        elif c == "//":
            position = text.find("\n", position, limit)
            if position == -1:
                return -1
        elif c in "([{":
            opened.append(_CLOSES[c])
        elif not opened or opened.pop() != c:
            return -1
        elif not opened:
            return m.start()


def quote_end(text: str, at: int, limit: int) -> int:
    """Offset just after the quote that ends the string open at ``at``; -1 when none does."""
    m = _QUOTE_REST.match(text, at, limit)
    return -1 if m is None else m.end()


def shape_end(text: str, at: int, limit: int) -> int:
    """Offset just after the shape that begins at ``at``; ``at`` when none begins there."""
    if text.startswith(("(", "b("), at):
        end = closing(text, text.index("(", at), limit)
        if end == -1:
            return limit
        if text.startswith("{", end + 1):
            end = closing(text, end + 1, limit)
        return limit if end == -1 else end + 1
    m = _ARRAY_SHAPE.match(text, at, limit)
    if m is not None and not text.startswith("(", m.end()):
        return m.end()
    m = _WORD.match(text, at, limit)
    return at if m is None or text.startswith("(", m.end()) else m.end()


@dataclass(slots=True)
class Attributes:
    """``text``: the attributes as XLA spells them, ``a=1, b={2}``; ``end``: just after them.

    ``strange``: offset of something that is not an attribute (kept in ``text``), else -1.
    """

    text: str
    end: int
    strange: int = -1


def attributes(text: str, at: int, limit: int) -> Attributes:
    """The attributes that follow at ``at``, each after a comma; they may span lines."""
    parts: list[str] = []
    end = at
    while True:
        comma = skip(text, end)
        if comma >= limit or text[comma] != ",":
            return Attributes(", ".join(parts), end)
        begin = skip(text, comma + 1)
        key = _KEY.match(text, begin, limit)
        value_at = skip(text, key.end()) if key else begin
        reach = len(text) if _BODY.match(text, value_at) else limit
        stop = value_end(text, value_at, reach, key.group(1)) if key else -1
        if key is None or stop == -1 or stop == value_at:
            line = line_end(text, begin, limit)
            if begin > line or not text[begin:line].strip():  # a comma at the end of a line
                return Attributes(", ".join(parts), comma + 1, comma)
            parts.append(text[begin:line].strip())
            return Attributes(", ".join(parts), line, begin)
        parts.append(key.group() + _without_comments(text[value_at:stop]))
        end = stop
        limit = max(limit, end)


def _without_comments(value: str) -> str:
    """The value without comments that contain brackets; strings and XLA's own comments, such
    as ``/*index=5*/``, are kept."""
    if "/*" not in value and "//" not in value:
        return value
    return _COMMENT.sub(lambda m: "" if m[1] is None and _HAS_BRACKET(m[0]) else m[0], value)


def value_end(text: str, at: int, limit: int, key: str) -> int:
    """Offset just after an attribute's value; -1 when a bracket or quote stays open."""
    begin = at
    while at < limit:
        c = text[at]
        if c in "{([":
            at = closing(text, at, limit) + 1
        elif c == '"':
            at = quote_end(text, at + 1, limit)
        elif c == "'":
            m = _SINGLE.match(text, at, limit)
            at = m.end() if m else 0
        else:
            m = _PLAIN.match(text, at, limit)
            if m is None:
                break
            at = m.end()
        if at <= 0:
            return -1
        # mesh['x'=2] {'x'}, [4,2] <= [8], …: a blank inside the value
        after = skip(text, at)
        if at < after < limit:
            mesh = key == "device_ids" or text.startswith("mesh[", begin)
            ranges = text[at - 2 : at] == "<=" and text[after] == "["
            literal = key == "literal" and text[at - 1] in "]}" and text[after] != ","
            if ranges or literal or text.startswith("<=", after) or (mesh and text[after] == "{"):
                at = after
    return at
