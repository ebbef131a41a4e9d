"""Instructions without an op name: which one before each is.

They come from no operation, but what is known of them helps to identify their neighbours.
"""

from __future__ import annotations

from collections import defaultdict

from .how import How
from .state import RowState


def identify_nameless(state: RowState) -> None:
    """Gives nodes without an op name the identity of one before, if only one is possible."""
    walk = state.walk
    gone: defaultdict[str, list[int]] = defaultdict(list)
    for old in walk.gone:
        gone[walk.line[old].name].append(old)
    arguments = {
        (place, walk.line[old].arguments): old
        for place, before in walk.prior_alive.items()
        for old in before.values()
        if walk.line[old].opcode == "parameter"
    }
    for node, is_new in state.fresh.items():
        line = walk.present(node)
        if line.opcode == "parameter" and node not in state.outside:
            same = arguments.get((state.place[node], line.arguments))
            if same is not None and walk.line[same].dense == line.dense:
                _stands_for(state, node, same)
                continue
        if line.op_name or (not is_new and node in state.unnamed):
            continue
        ways = (
            [old for old, _ in state.pairs.get(node, ())],
            gone.get(line.name, ()),
            state.replaced.get(node, ()),
        )
        for way in ways:
            found = {
                walk.of(old): old
                for old in way
                if old in walk.line
                and walk.line[old].opcode == line.opcode
                and (not walk.line[old].op_name or line.opcode == "parameter")
            }
            if len(found) == 1:
                _stands_for(state, node, found.popitem()[1])
                break


def _stands_for(state: RowState, node: int, old: int) -> None:
    state.unnamed[node] = state.walk.of(old)
    state.how[node] = state.walk.how.get(old, How.FIRST)
