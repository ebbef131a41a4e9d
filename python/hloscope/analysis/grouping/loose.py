"""Gathers loose instructions outside the parts of a program, so that its first level is readable.

    compare ─ select ─┐                       inputs ─┐
    broadcast ─ add ──┴─ forward ─ backward           └─ forward ─ backward ─ outputs
    multiply ─ convert ────────────────┘

A loose instruction goes with those that have equally many parts before them: a path between two
of one group never leads through a part. Loops, products and collectives stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.labels.labels import telling_mask, words_of_mask
from ..base.table import Ints, Table
from .components import cut_sections
from .group_nodes import Node, count_boxes, within

# A first level has at most this many boxes.
MOST = 12
# The same for a scope around a loop: the weights of all layers, reordered before it.
AROUND_LOOP = 6
# The same for a pass, which is shown next to another one.
PASS = 8
# The same for ENTRY if it has only boxes: this many are readable.
FLAT = 15
# It is cut into this many parts by schedule.
SECTIONS = 9
# Fewer than this in one place stay as they are.
SMALLEST = 2


@dataclass
class Walk:
    """How many rows all groups of a computation may still walk: at most a microsecond each."""

    left: int

    @classmethod
    def of(cls, size: int) -> Walk:
        """In proportion to the computation; a small one may be walked for many groups."""
        return cls(max(200_000, 12 * size))

    def takes(self, rows: int) -> bool:
        """Takes this many rows if so many are left; otherwise returns False."""
        if rows > self.left:
            return False
        self.left -= rows
        return True


def gather_loose(
    node: Node,
    t: Table,
    quiet: NDArray[np.bool_],
    landmark: NDArray[np.bool_],
    walk: Walk,
    most: int = MOST,
) -> None:
    """Moves loose members of a crowded group into groups of their own, in place.

    Crowded: with more than ``most`` boxes. ``landmark`` marks the instructions that stay.
    """
    loose = _loose(node, quiet, landmark)
    names = {_class(c.label) for c in node.children}
    if len(loose) + len(names) <= most or len(loose) < SMALLEST:
        return
    begin, end = _extent(node)
    if not walk.takes(end - begin):
        return
    kept = np.setdiff1d(node.members, loose)
    alone = kept[t.called.counts[kept] > 0]
    _gather(node, loose, t, begin, _depths(node, t, begin, end, alone))


def gather_flat(
    node: Node, t: Table, quiet: NDArray[np.bool_], landmark: NDArray[np.bool_], walk: Walk
) -> None:
    """Makes groups in a computation that has only boxes, in place, if they are many.

    What is between two landmarks is a group; if that leaves too many, parts by schedule.
    """
    boxes = count_boxes(quiet, node.members)
    if node.children or boxes <= FLAT:
        return
    begin, end = _extent(node)
    if not walk.takes(end - begin):
        return
    loose = _loose(node, quiet, landmark)
    depth = _depths(node, t, begin, end, node.members[landmark[node.members]])
    places, sizes = np.unique(depth[loose - begin], return_counts=True)
    left = boxes - int((sizes[sizes >= SMALLEST] - 1).sum())
    if len(places) > 1 and left <= FLAT:
        _gather(node, loose, t, begin, depth)
    else:
        cut_sections(node, t, quiet, -(-boxes // SECTIONS))


def _loose(node: Node, quiet: NDArray[np.bool_], landmark: NDArray[np.bool_]) -> Ints:
    return node.members[~quiet[node.members] & ~landmark[node.members]]


def _extent(node: Node) -> tuple[int, int]:
    """First row of a group, and the row after its last."""
    held = [n.members for n in within(node) if len(n.members)]
    return min(int(m.min()) for m in held), max(int(m.max()) for m in held) + 1


def _gather(node: Node, loose: Ints, t: Table, begin: int, depth: Ints) -> None:
    """Groups of what is loose in one place each; ``depth`` is for the rows from ``begin``."""
    here = depth[loose - begin]
    last = int(depth.max(initial=0)) if node.kind == "entry" else -1
    taken = {c.label for c in node.children}
    for d in np.unique(here).tolist():
        rows = loose[here == d]
        if len(rows) < SMALLEST:
            continue
        label = "inputs" if d == 0 else "outputs" if d == last else ""
        label = label or "·".join(words_of_mask(telling_mask(t, rows))) or "between"
        name, again = label, 1
        while label in taken:
            again += 1
            label = f"{name} {again}"
        taken.add(label)
        node.children.append(Node("component", label, node.computation, members=rows))
        node.members = np.setdiff1d(node.members, rows, assume_unique=True)


def _class(label: str) -> str:
    """A label without digits: names that differ only in numbers are one stack, or nearly."""
    return "".join(c for c in label if not c.isdigit())


def _depths(node: Node, t: Table, begin: int, end: int, alone: Ints) -> Ints:
    """For each row of a group's extent, the most parts that a path to it goes through.

    No path between two members leaves the extent: values come before their users. All that
    is before the extent is one part. ``alone``: instructions outside all groups that are
    parts by themselves.
    """
    size = end - begin
    part = np.arange(size) + len(node.children)  # each its own part, but
    for k, child in enumerate(node.children):
        for n in within(child):
            part[n.members - begin] = k
    counts = np.ones(size, np.int64)
    counts[node.members - begin] = 0  # what is in no part passes nothing on
    counts[alone - begin] = 1
    first, last = t.operands.offsets[[begin, end]].tolist()
    users, values = t.operands.rows[first:last] - begin, t.operands.values[first:last] - begin
    earlier = users[values < 0]
    forward = (values >= 0) & (values < users)
    users, values = users[forward], values[forward]
    adds = np.where(part[values] != part[users], counts[values], 0)
    start = np.zeros(size, np.int64)
    start[earlier] = 1
    depth = start.tolist()
    for u, v, more in zip(users.tolist(), values.tolist(), adds.tolist(), strict=True):
        through = depth[v] + more
        if through > depth[u]:
            depth[u] = through
    return np.array(depth, np.int64)
