"""Groups beside one another run in turn: the little that would make two need each other moves.

    mask ─▶ forward ─▶ backward           a scale that XLA computed once for both calls, or a cast
      ▲────────┘                          fused with what comes later, stands in the wrong one

An arrow that runs back cannot be drawn, and what it says is not so: the person's calls ran one
after the other. Of two groups that need each other either a few operations of the first wait for
the second, or a few of the second are needed by the first. The fewer of them go to the other
group, if they are a small part of their own and none is a product, a loop or a collective.
Where the program says which of the two runs first, nothing of the first waits for the second.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.table import Ints, Table
from .group_nodes import Node, within
from .loose import extent
from .program_order import ProgramOrder

# Boxes that may leave their group: two, or such a share of it, but not more than a handful.
FEW = 2
SMALL_SHARE = 0.15
HANDFUL = 6
# The share of a group's boxes that may leave it where the order of the two groups is known.
KNOWN_SHARE = 0.5
# Groups that need one another in a container, at most; more are left as they are.
MOST_GROUPS = 60
# Moves in one container, at most.
MOST_MOVES = 40

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RowsAndOrder:
    """Rows that are not drawn (``quiet``), that never move (``heavy``), and of a backward pass;
    the order in which the program makes its calls."""

    quiet: Mask
    heavy: Mask
    backward: Mask
    order: ProgramOrder

    def in_order(self, node: Node, by_lines: bool = False) -> list[int]:
        """Numbers of those of a group's children whose order is known, in it; see
        ``ProgramOrder``."""
        if len(known := self.order.of(node.children, by_lines)) < 2:
            return []
        rows = np.concatenate([n.members for n in within(node)])
        rows = rows[~self.quiet[rows]]
        backward = 2 * np.count_nonzero(self.backward[rows]) > len(rows)
        return known[::-1] if backward else known


def put_in_turn(top: Node, t: Table, of: RowsAndOrder) -> None:
    """Moves rows between the groups of each container under ``top``, in place."""
    quiet = of.quiet
    first = int(t.first[top.computation])
    values, users = _flow(t, quiet, first, int(t.size[top.computation]))
    order = np.argsort(users, kind="stable")
    ordered = users[order]
    for node in within(top):
        if node.children and any(len(n.members) for n in within(node)):  # not all moved away
            begin, end = extent(node)
            mine = np.sort(order[slice(*np.searchsorted(ordered, (begin, end)))])
            mine = mine[values[mine] >= begin]
            flow = values[mine], users[mine]
            _Container(node, flow, of, begin).put_in_turn()


def _flow(t: Table, quiet: Mask, first: int, size: int) -> tuple[Ints, Ints]:
    """Values and users among drawn rows of a computation, through what is not drawn."""
    begin, end = t.operands.offsets[[first, first + size]].tolist()
    users, values = t.operands.rows[begin:end], t.operands.values[begin:end]
    counts = t.operands.counts[first : first + size]
    through = np.arange(first, first + size)
    passes = quiet[first : first + size] & (counts == 1)
    through[passes] = t.operands.values[t.operands.offsets[:-1][first : first + size][passes]]
    for _ in range(20):  # by doubling: chains of copies, elements and bitcasts
        further = through[through - first]
        if (further == through).all():
            break
        through = further
    values = through[values - first]
    # a tuple is looked through once: what a loop takes
    several = quiet[values] & (counts[values - first] > 1)
    wide = several & ~quiet[users]
    more_users, more_values = [], []
    for user, value in zip(users[wide].tolist(), values[wide].tolist(), strict=True):
        inside = t.operands.values[t.operands.offsets[value] : t.operands.offsets[value + 1]]
        more_values.append(through[inside - first])
        more_users.append(np.full(len(inside), user, np.int64))
    users = np.concatenate([users, *more_users])
    values = np.concatenate([values, *more_values])
    drawn = ~quiet[users] & ~quiet[values] & (values < users)
    return values[drawn], users[drawn]


@dataclass
class _Container:
    """The children and loose rows of one group: parts, numbered. ``flow`` is that among its rows,
    of which ``first`` is the first."""

    node: Node
    flow: tuple[Ints, Ints]
    of: RowsAndOrder
    first: int

    def put_in_turn(self) -> None:
        known = {k: n for n, k in enumerate(self.of.in_order(self.node, by_lines=True))}
        for _ in range(MOST_MOVES):
            part, parts = self._parts()
            values, users = self.flow
            a, b = part[values - self.first], part[users - self.first]
            real = (a >= 0) & (b >= 0)
            inner = values[real], users[real], a[real], b[real]
            core = _needing_one_another(inner[2], inner[3], len(parts))
            rank = np.full(len(parts), -1)
            rank[list(known)] = list(known.values())
            of_value, of_user = rank[inner[2]], rank[inner[3]]
            against = bool(((of_value > of_user) & (of_user >= 0)).any())
            if len(core) > MOST_GROUPS or not (core or against):
                return
            if not self._move(core, known, inner, part, parts):
                return

    def _parts(self) -> tuple[Ints, list[Node | int]]:
        """The part of each row from ``first`` on, or -1; a part is a child or a loose row."""
        rows = [np.concatenate([n.members for n in within(c)]) for c in self.node.children]
        loose = self.node.members[~self.of.quiet[self.node.members]]
        last = max([*(int(r.max()) for r in rows if len(r)), *loose[-1:].tolist()])
        part = np.full(max(last + 1, self._end()) - self.first, -1, np.int64)
        for k, mine in enumerate(rows):
            part[mine - self.first] = k
        part[loose - self.first] = len(rows) + np.arange(len(loose))
        return part, [*self.node.children, *loose.tolist()]

    def _end(self) -> int:
        values, users = self.flow
        return int(max(values.max(), users.max())) + 1 if len(users) else self.first + 1

    def _move(
        self,
        core: set[int],
        known: dict[int, int],
        inner: tuple[Ints, Ints, Ints, Ints],
        part: Ints,
        parts: list[Node | int],
    ) -> bool:
        """Makes the cheapest move between two of ``core``; whether there was one.

        Before that those between two whose order is ``known``: to the first that shares it, as what
        XLA computes once for several calls is of the first.
        """
        values, users, a, b = inner
        boxes = np.bincount(part[part >= 0][self._drawn(part)], minlength=len(parts))
        when = {k: self._when(part, k) for k in core}
        back: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        among = [*core, *known]
        between = (a != b) & np.isin(a, among) & np.isin(b, among)
        for v, u, late, early in zip(*(x[between].tolist() for x in inner), strict=True):
            both = known if late in known and early in known else when
            if both.get(late, -1) > both.get(early, np.inf):
                back[late, early].append((v, u))
        best: tuple[tuple[tuple[int, bool], int], list[int], int, int, bool] | None = None
        edges = a == b
        for (late, early), pairs in back.items():
            for start, forth, where, to in (
                ([u for _, u in pairs], True, early, late),
                ([v for v, _ in pairs], False, late, early),
            ):
                mine = edges & (a == where)
                certain = late in known and early in known
                share = int((KNOWN_SHARE if certain else SMALL_SHARE) * boxes[where])
                most = max(FEW, share if certain else min(HANDFUL, share))
                rows = _reached(start, values[mine], users[mine], forth, most)
                if rows is None or self.of.heavy[rows].any():
                    continue
                if len(rows) >= boxes[where] and isinstance(parts[where], Node):
                    continue  # all of it
                cost = (known[early], forth) if certain else (len(known), False), len(rows)
                if best is None or cost < best[0]:
                    best = cost, rows, where, to, forth
        if best is None:
            return False
        _, rows, where, to, forth = best
        source, target = parts[where], parts[to]
        gone = np.array(rows, np.int64)
        holders = within(source) if isinstance(source, Node) else [self.node]
        for holder in holders:
            holder.members = np.setdiff1d(holder.members, gone)
        if not isinstance(target, Node):
            self.node.members = np.union1d(self.node.members, gone)
            return isinstance(source, Node)
        for row, home in self._homes(rows, target, forth).items():
            home.members = np.union1d(home.members, [row])
        return True

    def _homes(self, rows: list[int], target: Node, forth: bool) -> dict[int, Node]:
        """The group inside ``target`` that each moved row goes to: where what it serves is.

        With what made its operands, if it waits for them, else with its users.
        """
        above: dict[int, Node] = {}
        holder: dict[int, Node] = {}
        for n in within(target):
            above.update((id(child), n) for child in n.children)
            holder.update((row, n) for row in n.members.tolist())
        values, users = self.flow
        at, beside = (users, values) if forth else (values, users)
        mine = np.isin(at, rows)
        near: dict[int, list[int]] = defaultdict(list)
        for row, other in zip(at[mine].tolist(), beside[mine].tolist(), strict=True):
            near[row].append(other)

        def chain(at: Node) -> list[Node]:
            path = [at]
            while id(path[-1]) in above:
                path.append(above[id(path[-1])])
            return path[::-1]

        out: dict[int, Node] = {}
        for row in rows if forth else rows[::-1]:
            beside_it = [out.get(o) or holder.get(o) for o in near[row]]
            found = [chain(home) for home in beside_it if home is not None]
            shared = found[0] if found else [target]
            for path in found[1:]:
                shared = [x for x, y in zip(shared, path, strict=False) if x is y]
            out[row] = shared[-1] if shared else target
        return out

    def _drawn(self, part: Ints) -> Mask:
        rows = np.flatnonzero(part >= 0) + self.first
        return ~self.of.quiet[rows]

    def _when(self, part: Ints, k: int) -> float:
        """The mean place of a part's drawn rows in the schedule."""
        rows = np.flatnonzero(part == k) + self.first
        drawn = rows[~self.of.quiet[rows]]
        return float((drawn if len(drawn) else rows).mean())


def _needing_one_another(a: Ints, b: Ints, parts: int) -> set[int]:
    """Parts on cycles, and between two: what is left when first and last ones are taken away."""
    pairs = np.unique(a * parts + b)
    from_, to = np.divmod(pairs, parts)
    different = from_ != to
    from_, to = from_[different], to[different]
    while len(from_):
        has_in, has_out = np.zeros(parts, bool), np.zeros(parts, bool)
        has_in[to] = True
        has_out[from_] = True
        kept = (has_in & has_out)[from_] & (has_in & has_out)[to]
        if kept.all():
            break
        from_, to = from_[kept], to[kept]
    return set(from_.tolist()) | set(to.tolist())


def _reached(
    start: list[int], values: Ints, users: Ints, forth: bool, most: int
) -> list[int] | None:
    """Rows that are reached within one part, with the start; None if more than ``most``."""
    next_: dict[int, list[int]] = defaultdict(list)
    at, to = (values, users) if forth else (users, values)
    for x, y in zip(at.tolist(), to.tolist(), strict=True):
        next_[x].append(y)
    seen = set(start)
    todo = list(seen)
    while todo:
        if len(seen) > most:
            return None
        for row in next_.get(todo.pop(), ()):
            if row not in seen:
                seen.add(row)
                todo.append(row)
    return sorted(seen) if len(seen) <= most else None
