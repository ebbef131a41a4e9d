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
from .components import cut_sections
from .group_nodes import Node, count_boxes

# Boxes that a first level may have.
MOST = 12
# And a scope around a loop: the weights of all layers, brought into order before it.
AROUND_LOOP = 6
# And a pass, which is looked at beside another.
PASS = 8
# And ENTRY where there is nothing but boxes: so many can be read.
FLAT = 15
# Parts by schedule that it is cut into.
SECTIONS = 9
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
    loose = _loose(node, quiet, landmark)
    names = {_class(c.label) for c in node.children}
    if len(loose) + len(names) <= most or len(loose) < SMALLEST:
        return
    if int(t.size[node.computation]) > LARGEST:
        return
    kept = np.setdiff1d(node.members, loose)
    _gather(node, t, loose, _depths(node, t, loose, kept[t.called.counts[kept] > 0]))


def gather_flat(node: Node, t: Table, quiet: NDArray[np.bool_], landmark: Ints) -> None:
    """Makes groups of a computation that is nothing but boxes, in place, where they are many.

    What stands between two landmarks is a group; where that leaves too many, parts by schedule.
    """
    boxes = count_boxes(quiet, node.members)
    if node.children or boxes <= FLAT or int(t.size[node.computation]) > LARGEST:
        return
    loose = _loose(node, quiet, landmark)
    depth = _depths(node, t, loose, np.intersect1d(node.members, landmark))
    places, sizes = np.unique(depth[loose - int(t.first[node.computation])], return_counts=True)
    left = boxes - int((sizes[sizes >= SMALLEST] - 1).sum())
    if len(places) > 1 and left <= FLAT:
        _gather(node, t, loose, depth)
    else:
        cut_sections(node, t, quiet, -(-boxes // SECTIONS))


def _loose(node: Node, quiet: NDArray[np.bool_], landmark: Ints) -> Ints:
    loose = node.members[~quiet[node.members]]
    return np.asarray(loose[~np.isin(loose, landmark)])


def _gather(node: Node, t: Table, loose: Ints, depth: Ints) -> None:
    """Groups of what is loose in one place each."""
    here = depth[loose - int(t.first[node.computation])]
    last = int(depth.max(initial=0))
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
    """Names that differ in numbers are one stack, or nearly."""
    return "".join(c for c in label if not c.isdigit())


def _depths(node: Node, t: Table, loose: Ints, alone: Ints) -> Ints:
    """For each instruction how many parts a value has come through, at most.

    ``alone``: instructions outside all groups that are parts by themselves.
    """
    first, size = int(t.first[node.computation]), int(t.size[node.computation])
    part = np.arange(size) + len(node.children)  # each its own part, but
    for k, child in enumerate(node.children):
        stack = [child]
        while stack:
            at = stack.pop()
            part[at.members - first] = k
            stack.extend(at.children)
    counts = np.ones(size, np.int64)
    counts[node.members - first] = 0  # what lies in no part passes nothing on
    counts[alone - first] = 1
    begin, end = t.operands.offsets[[first, first + size]].tolist()
    users, values = t.operands.rows[begin:end] - first, t.operands.values[begin:end] - first
    forward = (values >= 0) & (values < users)
    users, values = users[forward], values[forward]
    adds = np.where(part[values] != part[users], counts[values], 0)
    depth = [0] * size
    for u, v, more in zip(users.tolist(), values.tolist(), adds.tolist(), strict=True):
        through = depth[v] + more
        if through > depth[u]:
            depth[u] = through
    return np.array(depth, np.int64)
