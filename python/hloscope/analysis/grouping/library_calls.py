"""One box for each call of a library's function that stands beside the person's own calls.

    while ─ multiply ─ while ─ log-plus-one ─ sqrt        normal
    reduce-window ─ gather ─ subtract                     softmax_cross_entropy

What ``jax.random.normal`` or a loss of optax is made of says nothing to who called it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.table import Table
from .call_tree import CallTree
from .group_nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

# A call of fewer operations is shown as these.
FEWEST = 3
# How far what has no name is followed to the call that all its users are in: copy → bitcast.
STEPS = 3


def gather_library_calls(node: Node, t: Table, quiet: NDArray[np.bool_], tree: CallTree) -> None:
    """Moves what library functions made out of a group into boxes of their names, in place."""
    members = node.members.tolist()
    calls: dict[tuple[str, int], list[int]] = defaultdict(list)
    of: dict[int, tuple[str, int]] = {}
    for row in members:
        if tree.library[row]:
            of[row] = tree.library[row], int(tree.line[row])
    if not of:
        return
    _join(members, t, of)
    for row, call in of.items():
        calls[call].append(row)
    taken = {child.label for child in node.children}
    for (name, _), rows in calls.items():
        if sum(not quiet[r] for r in rows) < FEWEST:
            continue
        label, again = name, 1
        while label in taken:
            again += 1
            label = f"{name} {again}"
        taken.add(label)
        mine = np.array(sorted(rows), np.int64)
        node.children.append(Node("component", label, node.computation, members=mine))
        node.members = np.setdiff1d(node.members, mine, assume_unique=True)


def _join(members: Iterable[int], t: Table, of: dict[int, tuple[str, int]]) -> None:
    """Adds what has no name to the call that all its users are in, in place."""
    inside = set(members)
    users: dict[int, list[int]] = defaultdict(list)
    rows, values = t.operands.rows, t.operands.values
    mine = np.isin(values, list(inside))
    for user, value in zip(rows[mine].tolist(), values[mine].tolist(), strict=True):
        users[value].append(user)
    for _ in range(STEPS):
        found = {
            row: next(iter(calls))
            for row in inside
            if row not in of and not t.places[t.place[row]]
            and len(calls := {of.get(u, ("", 0)) for u in users[row]}) == 1
            and ("", 0) not in calls
        }  # fmt: skip
        if not found:
            return
        of |= found
