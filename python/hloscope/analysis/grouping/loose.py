"""Gathers small operations beside calls, so that the calls are what is seen.

    embed ─ multiply ─ add ─ mask ─ Block ─ convert ─ Block ─ reduce ─ all-reduce
    embed ─┴─ 3 small operations ─┘ Block ─ convert ─ Block ─┴─ 2 small operations ─┘

Small: of next to none of the program's arithmetic. Those of one place have the same calls before
them: no path between two of them leads through a call. In a computation of boxes alone, all that
is between two products or collectives is one place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.labels.labels import telling_mask, words_of_mask
from ..base.table import Ints, Table
from .components import cut_sections
from .group_nodes import NAMELESS, Node, count_boxes, within
from .work import SMALL

# So many small boxes may stand beside calls by themselves.
FEW = 2
# Products are parts unless that leaves more boxes than this.
CROWDED = 12
_MINOR = "small operations"
# More places of small operations than this, and those with equally many calls before them are one.
MOST_PLACES = 3
# ENTRY if it has only boxes: this many are readable.
FLAT = 15
# It is cut into this many parts by schedule.
SECTIONS = 9
# Parts that need one another are told by going round; more often changes few places.
_ROUNDS = 6
# Fewer than this in one place stay as they are.
SMALLEST = 2
_UNNAMED = ("component", "section")


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


@dataclass(frozen=True, eq=False)
class Parts:
    """Which instructions are small, and what is no part, whatever its name.

    ``lights`` marks the small ones: without products, and with those too, where products would
    leave too many boxes. What XLA ``moved_out`` of a loop is no part, nor is a piece outside of a
    loop of what is ``run_by_loops``.
    """

    lights: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    loops: NDArray[np.bool_]
    moved_out: NDArray[np.bool_]
    run_by_loops: Collection[str]

    def is_misplaced(self, node: Node, shares: NDArray[np.float64]) -> bool:
        rows = np.concatenate([n.members for n in within(node)])
        if len(rows) == 0 or shares[rows].sum() >= SMALL or self.loops[rows].any():
            return False
        named = bool(node.path) and node.path[-1] in self.run_by_loops
        return named or bool(self.moved_out[rows].all())


def gather_minor(
    node: Node,
    t: Table,
    quiet: NDArray[np.bool_],
    parts: Parts,
    shares: NDArray[np.float64],
    walk: Walk,
) -> None:
    """Moves small boxes of a group that has others into boxes of their own, in place.

    ``shares`` has each instruction's share of the arithmetic.
    """
    own = node.members[~quiet[node.members]]
    for light in parts.lights:
        rows, others = own[light[own]], own[~light[own]]
        minor = [
            c for c in node.children
            if (c.kind in _UNNAMED and _is_light(c, light, shares))
            or parts.is_misplaced(c, shares)
        ]  # fmt: skip
        major = len(node.children) - len(minor) + len(others)
        if major <= CROWDED:
            break
    if len(rows) + len(minor) <= FEW or not major:
        return
    begin, end = extent(node)
    if not walk.takes(end - begin):
        return
    boxes, before = parts_before(node, t, begin, end, others, minor)
    first = [int(next(n.members[0] for n in within(c) if len(n.members))) for c in minor]
    found = [before[boxes[row - begin]] for row in [*first, *rows.tolist()]]
    if len(set(found)) > MOST_PLACES:
        found = [parts.bit_count() for parts in found]
    places: dict[int, list[int]] = defaultdict(list)
    for k, place in enumerate(found):
        places[place].append(k)
    for mine in places.values():
        if len(mine) < SMALLEST:
            continue
        held = [minor[k] for k in mine if k < len(minor)]
        loose = rows[[k - len(minor) for k in mine if k >= len(minor)]]
        box = Node("section", "", node.computation, children=held, members=loose)
        box.label = _minor(box, quiet)
        moved = {id(c) for c in held}
        node.children = [c for c in node.children if id(c) not in moved] + [box]
        node.members = np.setdiff1d(node.members, loose, assume_unique=True)


def _minor(box: Node, quiet: NDArray[np.bool_]) -> str:
    count = sum(count_boxes(quiet, x.members) for x in within(box))
    return f"{count} {_MINOR}"


def recount(top: Node, quiet: NDArray[np.bool_]) -> None:
    """After rows were moved: no group is empty, and small operations are counted, in place."""
    for node in within(top)[::-1]:
        kept = []
        for child in node.children:
            if child.kind == "section" and child.label.endswith(_MINOR):
                child.label = _minor(child, quiet)
                if child.label.startswith("1 "):  # a box in a box
                    node.members = np.union1d(node.members, child.members)
                    kept += child.children
                    continue
            if len(child.members) or child.children:
                kept.append(child)
        node.children = kept


def _is_light(node: Node, light: NDArray[np.bool_], shares: NDArray[np.float64]) -> bool:
    rows = np.concatenate([n.members for n in within(node)])
    return bool(light[rows].all()) and float(shares[rows].sum()) < SMALL


def gather_flat(
    node: Node, t: Table, quiet: NDArray[np.bool_], landmark: NDArray[np.bool_], walk: Walk
) -> None:
    """Makes groups in a computation that has only boxes, in place, if they are many.

    What is between two landmarks is a group; if that leaves too many, parts by schedule.
    """
    boxes = count_boxes(quiet, node.members)
    if node.children or boxes <= FLAT:
        return
    begin, end = extent(node)
    if not walk.takes(end - begin):
        return
    loose = _loose(node, quiet, landmark)
    places = _places(node, t, loose, begin, end, node.members[landmark[node.members]], FLAT)
    found, sizes = np.unique(places, return_counts=True)
    left = boxes - int((sizes[sizes >= SMALLEST] - 1).sum())
    if len(found) > 1 and left <= FLAT:
        _gather(node, loose, t, places)
    else:
        cut_sections(node, t, quiet, -(-boxes // SECTIONS))


def _loose(node: Node, quiet: NDArray[np.bool_], landmark: NDArray[np.bool_]) -> Ints:
    return node.members[~quiet[node.members] & ~landmark[node.members]]


def extent(node: Node) -> tuple[int, int]:
    """First row of a group, and the row after its last."""
    held = [n.members for n in within(node) if len(n.members)]
    return min(int(m.min()) for m in held), max(int(m.max()) for m in held) + 1


def _gather(node: Node, loose: Ints, t: Table, places: Ints) -> None:
    """Groups of what is loose in one place each; in ENTRY what has no part before it are inputs."""
    taken = {c.label for c in node.children}
    for d in np.unique(places).tolist():
        rows = loose[places == d]
        if len(rows) < SMALLEST:
            continue
        label = ""
        if node.kind == "entry":
            label = "inputs" if d == 0 else "outputs" if _are_results(rows, t, node) else ""
        label = label or "·".join(words_of_mask(telling_mask(t, rows))) or NAMELESS
        name, again = label, 1
        while label in taken:
            again += 1
            label = f"{name} {again}"
        taken.add(label)
        node.children.append(Node("component", label, node.computation, members=rows))
        node.members = np.setdiff1d(node.members, rows, assume_unique=True)


def _are_results(rows: Ints, t: Table, node: Node) -> bool:
    """Whether nothing but the result of the computation uses what these rows make."""
    mine = np.zeros(len(t.opcode), bool)
    mine[rows] = True
    users = t.operands.rows[mine[t.operands.values]]
    return bool((mine[users] | (users == t.roots[node.computation])).all())


def _places(
    node: Node, t: Table, loose: Ints, begin: int, end: int, alone: Ints, most: int
) -> Ints:
    """For each loose row a number that those with the same parts before them share.

    In the order of how many these are; by this alone if there would be more than ``most`` places.
    ``alone``: instructions outside all groups that are parts by themselves.
    """
    box, before = parts_before(node, t, begin, end, alone)
    sets = [before[box[row - begin]] for row in loose.tolist()]
    order = {
        parts: n for n, parts in enumerate(sorted({*sets, 0}, key=lambda b: (b.bit_count(), b)))
    }
    if len(order) > most:
        sizes = sorted({0, *(parts.bit_count() for parts in sets)})
        return np.array([sizes.index(parts.bit_count()) for parts in sets], np.int64)
    return np.array([order[parts] for parts in sets], np.int64)


def parts_before(
    node: Node, t: Table, begin: int, end: int, alone: Ints, minor: Sequence[Node] = ()
) -> tuple[list[int], list[int]]:
    """For each row of a group's extent its box, for each box the parts that lead to it, as bits.

    All that is before the extent is one part, but for parameters and constants. A part is one box:
    whatever leads into it leads to all that comes out of it. So is each of the group's children,
    but those in ``minor`` are no parts.
    """
    children = len(node.children)
    box = np.arange(end - begin) + children + 1  # each row its own, but
    for k, child in enumerate(node.children):
        for n in within(child):
            box[n.members - begin] = k
    outside = children  # what is before the extent
    is_part = np.zeros(children + 1 + end - begin, bool)
    is_part[: children + 1] = True
    small = {id(child) for child in minor}
    is_part[:children] = [id(child) not in small for child in node.children]
    is_part[box[alone - begin]] = True
    first, last = t.operands.offsets[[begin, end]].tolist()
    users, values = t.operands.rows[first:last] - begin, t.operands.values[first:last] - begin
    counts = ~t.silent[values + begin] & (values < users)
    users, values = users[counts], values[counts]
    source = np.where(values < 0, outside, box[np.maximum(values, 0)])
    edges = np.unique(box[users] * len(is_part) + source)  # by user: loose ones in their order
    into, from_ = np.divmod(edges, len(is_part))
    different = into != from_
    pairs = list(zip(into[different].tolist(), from_[different].tolist(), strict=True))
    bit = [0] * len(is_part)
    for number, k in enumerate(np.flatnonzero(is_part).tolist()):
        bit[k] = 1 << number
    before = [0] * len(is_part)
    for _ in range(_ROUNDS):
        changed = False
        for user, value in pairs:
            more = before[user] | before[value] | bit[value]
            if more != before[user]:
                before[user], changed = more, True
        if not changed:
            break
    return box.tolist(), before
