"""Op names as XLA combines them when instructions are merged, combined or inlined.

f/mul;f/add                 merged: two names
f/(a/mul:b/mul)             combined: names that share a beginning
f/call/add                  an inlined call: the caller's name, then the instruction's own
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ...base.lines.op_name import split_components

_MOST = 64


@lru_cache(maxsize=1 << 16)
def components(name: str) -> tuple[str, ...]:
    """The names that one op name consists of, in order; () if none."""
    out: dict[str, None] = {}
    for part in split_components(name, ";"):
        for one in _combined(part):
            if one:
                out[one] = None
    return tuple(out)[:_MOST]


def inlined(name: str) -> Iterator[tuple[str, str]]:
    """Ways to read a name as (the caller's, the instruction's own), longest own name first."""
    at = name.find("/")
    while at >= 0:
        yield name[:at], name[at + 1 :]
        at = name.find("/", at + 1)


def _combined(part: str) -> list[str]:
    if not part.endswith(")"):
        return [part]
    depth = 0
    for at in range(len(part) - 1, -1, -1):
        depth += (part[at] == ")") - (part[at] == "(")
        if not depth:
            break
    prefix, pieces = part[:at], split_components(part[at + 1 : -1], ":")
    if len(pieces) < 2 or (prefix and not prefix.endswith("/")):
        return [part]
    return [prefix + p for p in pieces]
