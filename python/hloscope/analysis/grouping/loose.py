"""Gathers what lies loose beside the parts of a program, so that its first level can be read.

    compare ─ select ─┐                       inputs ─┐
    broadcast ─ add ──┴─ forward ─ backward           └─ forward ─ backward ─ outputs
    multiply ─ convert ────────────────┘

A loose instruction belongs with those that as many parts stand before: a path between two of one
gathering never leads through a part. Loops, products and collectives stay where they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..base.labels import telling_mask, words_of_mask
from ..base.table import Ints, Table
from .group_nodes import Node

# Boxes that a first level may have.
MOST = 12
# And a scope around a loop: the weights of all layers, brought into order before it.
AROUND_LOOP = 6
# Fewer than this in one place stay as they are.
SMALLEST = 2
# Walking the edges of larger computations costs more than it tells.
LARGEST = 100_000


def gather_loose(
    node: Node, t: Table, quiet: NDArray[np.bool_], landmark: Ints, most: int = MOST
) -> None:
    """Moves loose members of a crowded group into groups of their own, in place.

    Crowded is what has more than ``most`` boxes; ``landmark`` are the instructions that stay.
    """
    members = node.members
    loose = members[~quiet[members]]
    loose = loose[~np.isin(loose, landmark)]
    names = {_class(c.label) for c in node.children}
    if len(loose) + len(names) <= most or len(loose) < SMALLEST:
        return
    first, size = int(t.first[node.computation]), int(t.size[node.computation])
    if size > LARGEST:
        return
    depth = _depths(node, t, loose, first, size)
    here = depth[loose - first]
    last = int(depth.max(initial=0))
    taken = {c.label for c in node.children}
    for d in np.unique(here).tolist():
        rows = loose[here == d]
        if len(rows) < SMALLEST:
            continue
        label = "inputs" if d == 0 else "outputs" if d == last else ""
        label = label or "·".join(words_of_mask(telling_mask(t, rows))) or "between"
        while label in taken:
            label += " and more"
        taken.add(label)
        node.children.append(Node("component", label, node.computation, members=rows))
        node.members = np.setdiff1d(node.members, rows, assume_unique=True)


def _class(label: str) -> str:
    """Names that differ in numbers are one stack, or nearly."""
    return "".join(c for c in label if not c.isdigit())


def _depths(node: Node, t: Table, loose: Ints, first: int, size: int) -> Ints:
    """For each instruction how many parts a value has come through, at most."""
    part = np.arange(size) + len(node.children)  # each its own part, but
    for k, child in enumerate(node.children):
        stack = [child]
        while stack:
            at = stack.pop()
            part[at.members - first] = k
            stack.extend(at.children)
    counts = np.ones(size, np.int64)
    counts[node.members - first] = 0  # what lies in no part passes nothing on
    kept = np.setdiff1d(node.members, loose) - first
    counts[kept[t.called.counts[kept + first] > 0]] = 1
    offsets = t.operands.offsets[first : first + size + 1].tolist()
    values = t.operands.values[offsets[0] : offsets[-1]].tolist()
    parts, adds = part.tolist(), counts.tolist()
    depth = [0] * size
    for i in range(size):
        most = 0
        for e in range(offsets[i] - offsets[0], offsets[i + 1] - offsets[0]):
            o = values[e] - first
            if 0 <= o < i:
                most = max(most, depth[o] + (adds[o] if parts[o] != parts[i] else 0))
        depth[i] = most
    return np.array(depth, np.int64)
