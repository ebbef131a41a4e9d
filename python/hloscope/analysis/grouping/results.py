"""Gathers instructions that only produce results of the module and do the same kind of work.

A fused optimiser update without metadata is a row of fusions, one per shape, each feeding
only the root tuple. Side by side they push the model itself off the screen; as one
group they say what they are: ``sqrt·divide·multiply ×14``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..base.labels.labels import telling_mask, words_of_mask
from ..base.table import Ints, Table
from .group_nodes import Node, count_boxes

# Fewer than this stay where they are.
MANY = 6
# A group smaller than this shows them one by one anyway.
CROWDED = 16


def gather_results(
    node: Node, t: Table, quiet: NDArray[np.bool_], output: Ints, crowded: int = CROWDED
) -> None:
    """Moves direct members that are results of equal kind into groups of their own, in place."""
    members = node.members
    if count_boxes(quiet, members) < crowded:
        return
    leaving = members[~quiet[members] & _reaches_root(t, quiet, output)[members]]
    by_kind: dict[str, list[int]] = {}
    for i in leaving.tolist():
        words = words_of_mask(telling_mask(t, np.array([i])))
        if words:
            by_kind.setdefault("·".join(words), []).append(i)
    moved: list[Ints] = []
    for name, found in by_kind.items():
        if len(found) < MANY:
            continue
        rows = np.array(found, np.int64)
        label = f"{name} ×{len(found)}"
        node.children.append(Node("component", label, node.computation, members=rows))
        moved.append(rows)
    if moved:
        node.members = np.setdiff1d(members, np.concatenate(moved))


def _reaches_root(t: Table, quiet: NDArray[np.bool_], output: Ints) -> NDArray[np.bool_]:
    """Values used only by results: directly, or through what is not drawn."""
    used = np.zeros(len(quiet), bool)
    offsets = t.operands.offsets
    users = np.repeat(np.arange(len(quiet)), np.diff(offsets))
    loud = ~quiet[users]
    used[t.operands.values[loud]] = True
    # Quiet users pass the use on to what they read; a few rounds cover chains of them.
    for _ in range(4):
        passed = used[users] & ~loud
        used[t.operands.values[passed]] = True
    result = np.zeros(len(quiet), bool)
    result[output] = True
    for _ in range(4):
        result[t.operands.values[result[users] & ~loud]] = True
    return np.asarray(result & ~used)
