"""What XLA computed once for several calls is of the one that ran first.

    objective(params)      ─ forward ─ …      XLA computes the same ``forward`` once for both, and
    exact_step(params)     ─ forward ─ …      keeps the frames of either, often of the last

In the person's program the first of them did the work. A row is of an earlier call of the same
function if that call has no such operation of the row's line in its forward pass, but uses the
row, or what the row's call makes of it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.table import Ints, Table
from .layers.repeats import Graph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .traced_calls import Place, Stack

Mask = NDArray[np.bool_]
Calls = tuple[int, ...]  # a stack by its calls, those of a loop in Python alike
Item = tuple[Calls, tuple[int, int], int]  # calls, line and column, and the operation of jax
Pair = tuple[Calls, Calls]  # a call and one that ran before it, where their stacks part


def of_first_callers(
    t: Table, stacks: list[Place], own: Ints, home: Ints, late: Mask, product: Mask
) -> Ints:
    """``own`` with such rows in the earlier call; their places are added to ``stacks``.

    So it is with calls that share ``product``s: that two layers share a mask says nothing of when
    they run. ``home``: each row, or for one in a fusion what calls it; ``late``: rows of backward
    passes.
    """
    early = np.flatnonzero((own >= 0) & ~late & ~t.silent)
    does = np.unique([name.rpartition("/")[2] for name in t.op_names], return_inverse=True)[1]
    made = does[t.op_name]  # the operation of jax: there are casts and others on a product's line
    calls = _CallPaths(stacks)
    items: dict[Item, list[int]] = defaultdict(list)
    for row, k, operation in zip(
        early.tolist(), own[early].tolist(), made[early].tolist(), strict=True
    ):
        items[calls.of[k], stacks[k][1], operation].append(row)
    earlier = calls.earlier(items)
    pairs = {pair for item, of in earlier.items() if product[items[item]].any() for pair, _ in of}
    mine = {
        row: [(pair, whole) for pair, whole in of if pair in pairs]
        for item, of in earlier.items()
        for row in items[item]
    }
    moved: dict[Pair, list[tuple[int, Calls]]] = defaultdict(list)
    for c in np.unique(t.computation[home[list(mine)]]).tolist() if pairs else ():
        here = np.flatnonzero(t.computation[home] == c)
        graph = Graph(t, c)
        known = here[(own[here] >= 0) & ~late[here]]
        known = known[(home[known] == known) | (own[home[known]] < 0)]  # a fusion is what it is of
        told = [
            (r - graph.first, calls.of[k])
            for r, k in zip(home[known].tolist(), own[known].tolist(), strict=True)
        ]
        bit = {pair: 1 << n for n, pair in enumerate(sorted(pairs))}
        uses = _uses(graph, int(t.roots[c]) - graph.first, told, bit)
        for row in here.tolist():
            for pair, whole in mine.get(row, ()):
                if uses[int(home[row]) - graph.first] & bit[pair]:
                    moved[pair].append((row, whole))
                    break
    out = own.copy()
    numbers = {place: k for k, place in enumerate(stacks)}
    for rows in moved.values():
        if any(product[row] for row, _ in rows):
            for row, whole in rows:
                stack, line = stacks[int(own[row])]
                place = calls.like(stack, whole), line
                out[row] = numbers.setdefault(place, len(numbers))
    stacks[:] = numbers
    return out


def _uses(
    graph: Graph, root: int, told: list[tuple[int, Calls]], bit: dict[Pair, int]
) -> list[int]:
    """For each row the bits of the pairs of which the earlier call uses it, or its own for that.

    ``told``: the rows whose calls are known. What jax traced once for both calls has the frames of
    one, as a rule for derivatives has: a row of the earlier call that only serves the later one is
    of that, and gradients tell nothing.
    """
    inside, first = [0] * graph.size, [0] * graph.size
    passes = [-1] * graph.size  # what is not known serves its users
    known: dict[Calls, tuple[int, int]] = {}
    for row, calls in told:
        if calls not in known:
            starts = {calls[:n] for n in range(1, len(calls) + 1)}
            known[calls] = (
                sum(b for pair, b in bit.items() if not starts.isdisjoint(pair)),
                sum(b for (_, earlier), b in bit.items() if earlier in starts),
            )
        inside[row] |= known[calls][0]
        first[row] |= known[calls][1]
        passes[row] = inside[row]
    passes[root] = 0
    out = [0] * graph.size
    for v, u in zip(reversed(graph.values), reversed(graph.users), strict=True):
        out[v] |= (out[u] & passes[u]) | (first[v] & ~passes[u])
    return out


class _CallPaths:
    """The calls of a program. ``of``: by the numbers of the places."""

    def __init__(self, stacks: list[Place]) -> None:
        self.number: dict[tuple[str, str, tuple[int, int]], int] = {}
        self.at: list[tuple[int, int]] = []
        self.function: list[tuple[str, str]] = []
        self.of: list[Calls] = []
        self.whole: dict[Calls, dict[Stack, None]] = defaultdict(dict)  # those of a loop apart
        for stack, _ in stacks:
            for c in stack:
                if (c.file, c.function, c.at) not in self.number:
                    self.number[c.file, c.function, c.at] = len(self.number)
                    self.at.append(c.at)
                    self.function.append((c.file, c.function))
            calls = self.plain(stack)
            self.of.append(calls)
            for n in range(1, len(stack) + 1):
                self.whole[calls[:n]].setdefault(stack[:n])

    def plain(self, stack: Stack) -> Calls:
        return tuple(self.number[c.file, c.function, c.at] for c in stack)

    def earlier(self, items: Iterable[Item]) -> dict[Item, list[tuple[Pair, Calls]]]:
        """For each of these the earlier calls of one function that lack it, the first one first.

        With what it would be in.
        """
        ways: dict[tuple[tuple[str, str], Calls], list[int]] = defaultdict(list)
        known = list(self.whole)
        for v, calls in enumerate(known):
            for n in range(1, len(calls) + 1):
                ways[self.function[calls[n - 1]], calls[n:]].append(v)
        number = {calls: v for v, calls in enumerate(known)}
        have = {(number[calls], *rest) for calls, *rest in items}
        out: dict[Item, list[tuple[Pair, Calls]]] = {}
        for item in items:
            calls, line, operation = item
            for n in range(1, len(calls) + 1):
                found = []
                for v in ways[self.function[calls[n - 1]], calls[n:]]:
                    if (v, line, operation) in have:
                        continue
                    both = enumerate(zip(calls, known[v], strict=False))
                    m = next((m for m, (a, b) in both if a != b), n)
                    if m < n and 0 < self.at[known[v][m]][0] < self.at[calls[m]][0]:
                        found.append(((calls[: m + 1], known[v][: m + 1]), known[v]))
                if found:
                    out[item] = sorted(found, key=lambda of: [self.at[c] for c in of[1]])
                    break
        return out

    def like(self, stack: Stack, whole: Calls) -> Stack:
        """The stack of these calls in the turn of Python's loops that another stack is in."""
        mine = list(self.whole[self.plain(stack)])
        theirs = list(self.whole[whole])
        return theirs[mine.index(stack) if len(theirs) == len(mine) else 0]
