"""Groups beside one another run in turn: the little that would make two need each other moves.

    mask ─▶ forward ─▶ backward           a scale that XLA computed once for both calls, or a cast
      ▲────────┘                          fused with what comes later, stands in the wrong one

An arrow that runs back cannot be drawn, and what it says is not so: the person's calls ran one
after the other. Of two groups that need each other either a few operations of the first wait for
the second, or a few of the second are needed by the first. The fewer of them go to the other
group, if they are a small part of their own and none is a product, a loop or a collective.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.table import Ints, Table
from .group_nodes import Node, within
from .loose import extent

# Boxes that may leave their group: two, or such a share of it, but not more than a handful.
FEW = 2
SMALL_SHARE = 0.15
HANDFUL = 6
# Groups that need one another in a container, at most; more are left as they are.
MOST_GROUPS = 60
# Moves in one container, at most.
MOST_MOVES = 40

Mask = NDArray[np.bool_]


def put_in_turn(top: Node, t: Table, quiet: Mask, heavy: Mask) -> None:
    """Moves rows between the groups of each container under ``top``, in place.

    ``quiet``: rows that are not drawn; ``heavy``: rows that never move.
    """
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
            _Container(node, flow, quiet, heavy, begin).put_in_turn()


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
    quiet: Mask
    heavy: Mask
    first: int

    def put_in_turn(self) -> None:
        for _ in range(MOST_MOVES):
            part, parts = self._parts()
            values, users = self.flow
            a, b = part[values - self.first], part[users - self.first]
            real = (a >= 0) & (b >= 0)
            inner = values[real], users[real], a[real], b[real]
            core = _needing_one_another(inner[2], inner[3], len(parts))
            if not core or len(core) > MOST_GROUPS or not self._move(core, inner, part, parts):
                return

    def _parts(self) -> tuple[Ints, list[Node | int]]:
        """The part of each row from ``first`` on, or -1; a part is a child or a loose row."""
        rows = [np.concatenate([n.members for n in within(c)]) for c in self.node.children]
        loose = self.node.members[~self.quiet[self.node.members]]
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
        inner: tuple[Ints, Ints, Ints, Ints],
        part: Ints,
        parts: list[Node | int],
    ) -> bool:
        """Makes the cheapest move between two of ``core``; whether there was one."""
        values, users, a, b = inner
        within_core = np.isin(a, list(core)) & np.isin(b, list(core))
        boxes = np.bincount(part[part >= 0][self._drawn(part)], minlength=len(parts))
        when = {k: self._when(part, k) for k in core}
        back: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for v, u, of_value, of_user in zip(*(x[within_core].tolist() for x in inner), strict=True):
            if of_value != of_user and when[of_value] > when[of_user]:
                back[of_value, of_user].append((v, u))
        best: tuple[int, list[int], int, int, bool] | None = None
        edges = a == b
        for (late, early), pairs in back.items():
            for start, forth, where, to in (
                ([u for _, u in pairs], True, early, late),
                ([v for v, _ in pairs], False, late, early),
            ):
                mine = edges & (a == where)
                most = max(FEW, min(HANDFUL, int(SMALL_SHARE * boxes[where])))
                rows = _reached(start, values[mine], users[mine], forth, most)
                if rows is None or self.heavy[rows].any():
                    continue
                if len(rows) >= boxes[where] and isinstance(parts[where], Node):
                    continue  # all of it
                if best is None or len(rows) < best[0]:
                    best = len(rows), rows, where, to, forth
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
        return ~self.quiet[rows]

    def _when(self, part: Ints, k: int) -> float:
        """The mean place of a part's drawn rows in the schedule."""
        rows = np.flatnonzero(part == k) + self.first
        drawn = rows[~self.quiet[rows]]
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
