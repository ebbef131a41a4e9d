"""Operations of one line of the person's are one box: a function is drawn as its statements.

    convert ─ matmul ─ convert ─ select ─ log ─ reduce
    └─ logits = x @ w.T ──────┘  └─ loss = xent(logits) ─┘

Beside calls, loops and collectives, which have boxes of their own. An arrow never runs back
between two statements: where fusions do work of several lines, a few operations stand with the
line that needs them; more are a box of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property, reduce
from itertools import combinations
from operator import or_

import numpy as np
from numpy.typing import NDArray

from ..base.labels.labels import telling_mask, words_of_mask
from ..base.table import Ints, Table
from .group_nodes import NAMELESS, Node, within
from .loose import Walk, extent

# Statements are told apart in groups of no more rows and boxes than this.
MOST_ROWS = 3000
# So many operations of a line may stand with another one, or this share of the line's.
FEW = 2
SMALL_SHARE = 0.25
# Lines that need one another are put in order one pair at a time, at most so often.
_MOVES = 24
# Of more lines that need one another all are one box.
_TOGETHER = 12

Key = tuple[int, int]  # a line, or -1 and a row; a piece of it
Pairs = list[tuple[int, int]]


def gather_statements(
    node: Node,
    t: Table,
    quiet: NDArray[np.bool_],
    stays: NDArray[np.bool_],
    walk: Walk,
    line: Ints,
) -> None:
    """Makes the operations of each line that are directly in a group one box, in place.

    ``stays`` marks the instructions that have a box of their own; ``line`` numbers the person's
    line that each row is of, -1 unknown: such a row is with what uses it, else with what it uses.
    """
    loose = node.members[~quiet[node.members] & ~stays[node.members]]
    if not 2 <= len(loose) <= MOST_ROWS or len(node.members) > MOST_ROWS:
        return
    begin, end = extent(node)
    if not walk.takes(end - begin):
        return
    found = _Statements(node, t, quiet, loose, begin, end).keys(line[loose])
    boxes: dict[Key, list[int]] = defaultdict(list)
    for row, key in zip(loose.tolist(), found, strict=True):
        boxes[key].append(row)
    if len(boxes) == 1 and not node.children:
        return
    for rows in boxes.values():
        if len(rows) > 1:
            members = np.array(rows, np.int64)
            label = "·".join(words_of_mask(telling_mask(t, members))) or NAMELESS
            node.children.append(Node("component", label, node.computation, members=members))
            node.members = np.setdiff1d(node.members, members, assume_unique=True)


class _Statements:
    """Nodes 0 … n-1 are the loose rows, then what has a box of its own or none."""

    def __init__(
        self, node: Node, t: Table, quiet: NDArray[np.bool_], loose: Ints, begin: int, end: int
    ) -> None:
        self.n = len(loose)
        kept = np.setdiff1d(node.members, loose)
        at = np.full(end - begin, -1, np.int64)
        at[loose - begin] = np.arange(self.n)
        at[kept - begin] = self.n + np.arange(len(kept))
        self.parts = (self.n + np.flatnonzero(~quiet[kept])).tolist()
        self.total = self.n + len(kept)
        for child in node.children:
            for inner in within(child):
                at[inner.members - begin] = self.total
            self.parts.append(self.total)
            self.total += 1
        first, last = t.operands.offsets[[begin, end]].tolist()
        users = at[t.operands.rows[first:last] - begin]
        values = t.operands.values[first:last] - begin
        outside = (values < 0) | (values >= end - begin)
        values = np.where(outside, -1, at[np.where(outside, 0, values)])
        real = (users >= 0) & (values >= 0) & (users != values)
        pairs = zip(values[real].tolist(), users[real].tolist(), strict=True)
        self.pairs: Pairs = list(dict.fromkeys(pairs))

    def keys(self, line: Ints) -> list[Key]:
        """What each loose row is of; each row of a kind that cannot be one box for itself."""
        keys = self._lines(line)
        fixed = lambda cycle: any(isinstance(k, int) for k in cycle)  # noqa: E731
        for _ in range(_MOVES):
            cycles = self._cycles(keys)
            around = {k for cycle in cycles if fixed(cycle) for k in cycle}
            if around:
                pieces = self._pieces()
                told = [k if k not in around else (k[0], pieces[r]) for r, k in enumerate(keys)]
                if told != keys:
                    keys = told
                    continue
            mutual = [cycle for cycle in cycles if not fixed(cycle)]
            if not any(self._move(cycle, keys) for cycle in mutual):
                break
        else:
            cycles = self._cycles(keys)
        for cycle in cycles:
            if fixed(cycle):
                keys = [(-1, self.n + r) if k in cycle else k for r, k in enumerate(keys)]
            else:
                one = min(k for k in cycle if not isinstance(k, int))
                keys = [one if k in cycle else k for k in keys]
        return keys

    def _lines(self, line: Ints) -> list[Key]:
        of = line.tolist()
        beside = [(v, u) for v, u in self.pairs if v < self.n and u < self.n]
        for v, u in sorted(beside, reverse=True):
            if of[v] < 0:
                of[v] = of[u]
        for v, u in sorted(beside):
            if of[u] < 0:
                of[u] = of[v]
        return [(k, 0) if k >= 0 else (-1, r) for r, k in enumerate(of)]

    @cached_property
    def _needs(self) -> list[int]:
        return self._before(self.pairs, self.total)

    def _before(self, pairs: Pairs, total: int) -> list[int]:
        """For each node the nodes that it needs, itself among them, as bits."""
        out = [1 << k for k in range(total)]
        for _ in range(total):  # users are in their order: a cycle takes another round
            changed = False
            for value, user in pairs:
                more = out[user] | out[value]
                if more != out[user]:
                    out[user], changed = more, True
            if not changed:
                break
        return out

    def _cycles(self, keys: list[Key]) -> list[set[Key | int]]:
        """Statements and other nodes (numbers) that need one another, each set once."""
        names: list[Key | int] = [*dict.fromkeys(keys), *range(self.n, self.total)]
        number = {name: k for k, name in enumerate(names)}
        of = [number[key] for key in keys] + [number[k] for k in range(self.n, self.total)]
        pairs = list(dict.fromkeys((of[v], of[u]) for v, u in self.pairs if of[v] != of[u]))
        if _is_acyclic(pairs, len(names)):
            return []
        before = self._before(pairs, len(names))
        after = self._before([(u, v) for v, u in reversed(pairs)], len(names))
        seen: set[int] = set()
        out: list[set[Key | int]] = []
        for k in range(len(set(keys))):
            if k in seen:
                continue
            cycle = set(_bits(before[k] & after[k]))
            if len(cycle) > 1:
                seen |= cycle
                out.append({names[m] for m in cycle})
        return out

    def _pieces(self) -> list[int]:
        """A number for each loose row: rows of one have the same other boxes before them."""
        before = self._needs
        mask = sum(1 << k for k in self.parts)
        sets = [before[r] & mask for r in range(self.n)]
        number = {bits: k + 1 for k, bits in enumerate(dict.fromkeys(sets))}
        return [number[bits] for bits in sets]

    def _move(self, cycle: set[Key | int], keys: list[Key]) -> bool:
        """Takes the fewest rows out of a line that needs what it is needed by; whether any."""
        lines = [k for k in cycle if not isinstance(k, int)]
        if len(lines) > _TOGETHER:
            return False
        rows = {k: [r for r, key in enumerate(keys) if key == k] for k in lines}
        before = self._needs
        best: tuple[int, list[int], Key, Key] | None = None
        for pair in combinations(sorted(lines), 2):
            for x, y in (pair, pair[::-1]):
                of_x = sum(1 << r for r in rows[x])
                early = _union(before[r] for r in rows[x])
                needed = [r for r in rows[y] if early >> r & 1]
                needing = [r for r in rows[y] if before[r] & of_x]
                if not needed or not needing:
                    continue
                for some in (needed, needing):
                    if len(some) < len(rows[y]) and (best is None or len(some) < best[0]):
                        best = len(some), some, y, x
        if best is None:
            return False
        _, some, y, x = best
        small = len(some) <= max(FEW, SMALL_SHARE * len(rows[y]))
        to = x if small else (y[0], 1 + max(k[1] for k in keys if k[0] == y[0]))
        for r in some:
            keys[r] = to
        return True


def _is_acyclic(pairs: Pairs, total: int) -> bool:
    ahead: list[list[int]] = [[] for _ in range(total)]
    waits_for = [0] * total
    for value, user in pairs:
        ahead[value].append(user)
        waits_for[user] += 1
    done = [k for k in range(total) if not waits_for[k]]
    for value in done:
        for user in ahead[value]:
            waits_for[user] -= 1
            if not waits_for[user]:
                done.append(user)
    return len(done) == total


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _bits(number: int) -> list[int]:
    out = []
    while number:
        low = number & -number
        out.append(low.bit_length() - 1)
        number ^= low
    return out
