"""Cuts a very wide flat group into equal pieces, or else into parts by schedule.

An unfused optimiser update is 44,661 instructions in one scope: 1,542 connected components of
3 classes. Equal components become groups with one hint, which ``folds.py`` turns into
stacks; equal single instructions share one group; if the rest is still wide, it is cut
into consecutive sections (never arbitrary ones, which would form cycles) where the fewest
values are live.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..base.labels.labels import telling_mask, words_of_mask
from ..base.structure import mix, tokens
from ..base.table import Ints, Table, spans
from .group_nodes import Node, count_boxes

# More boxes than this in one open group cannot be read; equal pieces are looked for earlier.
WIDE = 64
REPEATS = 24
# Between the two, equal pieces are worth groups when they make up this share of the boxes.
MOSTLY = 0.5
# About this many boxes in one section.
SECTION = 40
# Values with more users than this connect everything and say nothing.
HUB = 16


def cut_wide(node: Node, t: Table, quiet: NDArray[np.bool_]) -> None:
    """Moves direct members of a wide group into new child groups, in place."""
    members = node.members = np.sort(node.members)
    if count_boxes(quiet, members) <= REPEATS:
        return
    label = _connected(members, t)
    hashes = _component_hashes(members, label, t)
    boxes = np.bincount(label, weights=~quiet[members], minlength=label.max() + 1).astype(int)
    by_class: dict[int, list[int]] = {}
    for c in np.flatnonzero(boxes).tolist():
        by_class.setdefault(int(hashes[c]), []).append(c)
    order = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(label.max() + 2))

    def rows(c: int) -> Ints:
        return np.asarray(members[order[bounds[c] : bounds[c + 1]]])

    rest: list[Ints] = [rows(c) for c in np.flatnonzero(boxes == 0).tolist()]
    repeated = {key: found for key, found in by_class.items() if len(found) > 1}
    covered = sum(int(boxes[found].sum()) for found in repeated.values())
    if covered < MOSTLY * boxes.sum() and boxes.sum() <= WIDE:
        return
    rest += [rows(found[0]) for found in by_class.values() if len(found) == 1]
    models = [rows(found[0]) for found in repeated.values()]
    new: list[Node] = []
    for name, (key, found) in zip(_names(models, t, quiet), repeated.items(), strict=True):
        if boxes[found[0]] == 1:
            together = np.sort(np.concatenate([rows(c) for c in found]))
            new.append(_node(node, f"{name} ×{len(found)}", together))
            continue
        for c in found:
            child = _node(node, name, rows(c))
            child.fold_hint = f"{key:x}"
            new.append(child)
    left = np.sort(np.concatenate(rest)) if rest else np.zeros(0, np.int64)
    node.members = left
    node.children.extend(new)
    if count_boxes(quiet, left) > WIDE:
        cut_sections(node, t, quiet)


def _node(parent: Node, label: str, members: Ints, kind: str = "component") -> Node:

    return Node(kind, label, parent.computation, members=members)


def _edges(members: Ints, t: Table) -> tuple[Ints, Ints]:
    """(operand, user) pairs inside ``members``, as positions in it."""
    counts = t.operands.counts[members]
    users = np.repeat(np.arange(len(members)), counts)
    values = t.operands.values[spans(t.operands.offsets[members], counts)]
    operands = np.searchsorted(members, values)  # members ascend
    operands[operands == len(members)] = 0
    inside = members[operands] == values
    return operands[inside], users[inside]


def _connected(members: Ints, t: Table) -> Ints:
    """Connected component of each member, numbered by first appearance; hubs do not connect."""
    a, b = _edges(members, t)
    n = len(members)
    hub = np.bincount(a, minlength=n) > HUB
    silent = t.silent[members] | hub
    keep = ~silent[a] & ~silent[b]
    a, b = a[keep], b[keep]
    label = np.arange(n)
    while len(a):
        low = np.minimum(label[a], label[b])
        before = label.copy()
        np.minimum.at(label, label[a], low)
        np.minimum.at(label, label[b], low)
        label = label[label]
        if np.array_equal(before, label):
            break
    # A silent value goes with its first user.
    a, b = _edges(members, t)
    alone = silent[a]
    first_user = np.full(n, n)
    np.minimum.at(first_user, a[alone], b[alone])
    moved = np.flatnonzero((first_user < n) & ~hub)
    label[moved] = label[first_user[moved]]
    _, out = np.unique(label, return_inverse=True)
    return np.asarray(out, np.int64)


def _component_hashes(members: Ints, label: Ints, t: Table) -> NDArray[np.uint64]:
    a, b = _edges(members, t)
    own = tokens(t)[members]
    seen = np.zeros(len(members), np.uint64)
    inside = label[a] == label[b]
    with np.errstate(over="ignore"):
        np.add.at(seen, b[inside], mix(own[a[inside]]))
        sums = np.zeros(int(label.max()) + 1, np.uint64)
        np.add.at(sums, label, mix(own + mix(seen)))
    return sums


def _name(members: Ints, t: Table, quiet: NDArray[np.bool_]) -> str:
    """What the pieces do: their most telling opcodes."""
    words = words_of_mask(telling_mask(t, members))
    if words:
        return "·".join(words)
    loud = members[~quiet[members]]
    return str(t.opcodes[t.opcode[loud[0] if len(loud) else members[0]]])


def _names(models: list[Ints], t: Table, quiet: NDArray[np.bool_]) -> list[str]:
    """Names of classes of pieces; the same names are followed by the biggest array."""
    names = [_name(m, t, quiet) for m in models]
    full = [
        f"{name} {_biggest(m, t)}" if names.count(name) > 1 else name
        for name, m in zip(names, models, strict=True)
    ]
    seen: dict[str, int] = {}
    for k, name in enumerate(full):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            full[k] = f"{name} #{seen[name]}"
    return full


def _biggest(members: Ints, t: Table) -> str:
    shapes = {int(s) for s in t.shape[members]}
    arrays = [leaf for s in sorted(shapes) for leaf in t.shapes[s].leaves() if leaf.is_array]
    return max(arrays, key=lambda s: s.byte_size).dense_text if arrays else ""


def cut_sections(node: Node, t: Table, quiet: NDArray[np.bool_], size: int = SECTION) -> None:
    """Cuts by printed order, near every ``size`` boxes, where the fewest edges cross."""
    members = node.members
    a, b = _edges(members, t)
    n = len(members)
    change = np.bincount(np.minimum(a, b), minlength=n + 1) - np.bincount(
        np.maximum(a, b), minlength=n + 1
    )
    alive = np.cumsum(change)[:n]  # edges that cross the cut after position p
    loud = np.cumsum(~quiet[members])
    total = int(loud[-1])
    # Sections of sections, when there would be too many to read.
    width = size if total <= size * WIDE else -(-total // size)
    cuts = [0]
    while total - (loud[cuts[-1] - 1] if cuts[-1] else 0) > 1.5 * width:
        done = loud[cuts[-1] - 1] if cuts[-1] else 0
        low = int(np.searchsorted(loud, done + width - width // 4))
        high = max(low + 1, int(np.searchsorted(loud, done + width + width // 4)))
        fewest = low + np.flatnonzero(alive[low:high] == alive[low:high].min())
        nearest = np.abs(loud[fewest] - done - width).argmin()
        cuts.append(int(fewest[nearest]) + 1)
    if len(cuts) < 2:
        return
    cuts.append(n)
    parts = [members[begin:end] for begin, end in pairwise(cuts)]
    for label, part in zip(_names(parts, t, quiet), parts, strict=True):
        child = _node(node, label, part, "section")
        cut_sections(child, t, quiet)
        node.children.append(child)
    node.members = np.zeros(0, np.int64)
