"""Scanning to the end of a shape, a bracket or a quote, without recursion."""

from __future__ import annotations

import re

_BRACKET = re.compile(r'[()\[\]{}"]')
_QUOTE_REST = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_QUOTED = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)', re.S)
_WORD = re.compile(r"[^\s(]*")


def closing(text: str, at: int, limit: int) -> int:
    """Offset of the bracket that closes the one at ``at``; -1 when there is none."""
    depth = 0
    position = at
    while True:
        m = _BRACKET.search(text, position, limit)
        if m is None:
            return -1
        c = m.group()
        position = m.end()
        if c == '"':
            position = quote_end(text, position, limit)
            if position < 0:
                return -1
        elif c in "([{":
            depth += 1
        else:
            depth -= 1
            if depth <= 0:
                return m.start()


def quote_end(text: str, at: int, limit: int) -> int:
    """Offset just after the quote that ends the string open at ``at``; -1 when none does."""
    m = _QUOTE_REST.match(text, at, limit)
    return -1 if m is None else m.end()


def open_quote(text: str) -> bool:
    """Whether a string is still open at the end of the text."""
    return '"' in text and any(not end for end in _QUOTED.findall(text))


def shape_end(text: str, at: int, limit: int) -> int:
    """Offset just after the shape that begins at ``at``."""
    if text[at : at + 1] == "(":
        end = closing(text, at, limit)
        if end < 0:
            return limit
        if text[end + 1 : end + 2] == "{":
            end = closing(text, end + 1, limit)
        return limit if end < 0 else end + 1
    space = text.find(" ", at, limit)
    return limit if space < 0 else space
