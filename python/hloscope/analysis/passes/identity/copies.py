"""Computations that a pass copied and perhaps changed: what is in the same order in both.

%region_1.4  multiply, add, tanh        %wide.region_1.4.clone  multiply, copy, add, tanh
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from ....readers.hlo.pass_lines import Line
from .walk import IdentityWalk

_MOST_LINES = 4000  # of a computation; comparing two takes time that grows with their product
_ADDED = re.compile(r"(?:^wide\.)|(?:(?:\.(?:\d+|clone|remat\d*))+\Z)|(?:_spmd\Z)")


def copied_from(walk: IdentityWalk) -> dict[int, int]:
    """Node of a new computation → the node before that it is a copy of."""
    out: dict[int, int] = {}
    for place, was, now in walk.changes:
        if was:
            continue
        name = _without_additions(walk.steps.places[place].name)
        sources = [s for s in walk.prior if _without_additions(s) == name]
        sources = [s for s in sources if s not in walk.place_of] or sources
        if len(sources) != 1 or len(now) > _MOST_LINES:
            continue
        body = walk.prior[sources[0]]
        if len(body.lines) > _MOST_LINES:
            continue
        alive = walk.prior_alive[walk.prior_place_of[sources[0]]]
        twins = [alive[line.name] for line in body.lines]
        nodes = list(now.values())
        lines = [walk.present(node) for node in nodes]
        match = SequenceMatcher(None, _contents(body.lines), _contents(lines), autojunk=False)
        for first, second, size in match.get_matching_blocks():
            out |= dict(zip(nodes[second:], twins[first : first + size], strict=False))
    return out


def _contents(lines: Sequence[Line]) -> list[tuple[str, str, str]]:
    return [(line.opcode, line.dense, line.op_name) for line in lines]


def _without_additions(name: str) -> str:
    """``wide.region_1.4_spmd.clone`` → ``region_1``: passes add to the names of what they copy."""
    while (shorter := _ADDED.sub("", name)) != name:
        name = shorter
    return name
