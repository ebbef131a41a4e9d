"""Tells the calls of one function from one line apart: ``conv`` called four times is four groups.

    x = conv(p[0], x)  ─ for p in …: one stack for all of them
    independent calls  ─ each is a connected part of the rows          expert 0 │ expert 1 │ …
    calls in a chain   ─ the k-th product of each line, by depth       conv 0 ─ conv 1 ─ …
    blocks of two kinds ─ attention 8 times, one of mlp and experts 4   block 0 ─ … ─ block 7

A call runs from its begin to its end before the next: no later one feeds an earlier one. Where
that does not hold, or lines do not occur equally often, the calls stay together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.lines.op_name import BACKWARD, FORWARD, LAYER, REMAT, Path
from ..base.phases.edges import summed_together
from ..base.table import Ints, Table
from .call_tree import AT_LINE, unnumbered
from .layers.repeats import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

Mask = NDArray[np.bool_]
# Products by the place in a call that they come from.
Lines = dict[tuple[Path, int], list[int]]

# The share of a call's products on lines that occur equally often in each of its calls. Of two
# calls all do: a line that runs once beside one that runs twice says that the call has a loop.
REGULAR = 0.8
# Of two calls, none of which has what the other has, nobody can say that something is missing.
PAIR = 2
# In larger computations only the finder of layers tells calls apart: this one walks every edge.
MOST_ROWS = 200_000
_NONE = 1 << 40


@dataclass(frozen=True)
class Steady:
    """What runs once in each call of the function around it, and what is in a loop of it.

    Calls by their lines; rows by the line of the innermost function. ``products``: how many of
    them one run of that line makes.
    """

    calls: frozenset[str]
    calls_in_loops: set[str]
    rows: Mask
    rows_in_loops: Mask
    products: Ints

    def times(self, lines: Lines, depth: list[int] | None, first: int) -> tuple[int, bool]:
        """How often the function of these lines is called, as its steady lines say; 0 if none is.

        Of some calls one may be missing: a line in a condition, a result that nobody uses. Whether
        that is all of them: of blocks of two kinds some lines run more seldom.
        """
        often = _often(lines, depth, first)
        known = [
            often[path, place] // int(self.products[rows].max())
            for (path, place), rows in lines.items()
            if self.rows[rows].all() and self.are_steady(path)
        ]
        n = max(known, default=0)
        return n, _regular(Counter(often.values()), n) >= REGULAR

    def are_steady(self, path: Path) -> bool:
        """Whether each of these calls is made once; scopes without a line are no calls."""
        return all(line_of(name) in self.calls or AT_LINE not in name for name in path)

    def loops(self, lines: Lines) -> bool:
        """Whether any of these lines is in a loop of the function that they are of."""
        return any(
            self.rows_in_loops[rows].any()
            or any(line_of(name) in self.calls_in_loops for name in path)
            for (path, _), rows in lines.items()
        )


class Instances:
    """Splits repeated calls in the paths of one module, in place."""

    def __init__(
        self,
        t: Table,
        scope: Ints,
        paths: list[Path],
        product: Mask,
        quiet: Mask,
        place: Ints,
        path_id: Callable[[Path], int],
    ) -> None:
        self.t, self.scope, self.paths, self.quiet = t, scope, paths, quiet
        self.times: dict[Path, int] = {}  # of calls in the forward pass
        # their rows, where they do not feed one another, each with its number
        self.side_by_side: dict[Path, dict[int, int]] = {}
        self.product, self.place, self.path_id = product, place, path_id

    def split(
        self, computations: list[int], is_one: Callable[[Path], bool], steady: Steady
    ) -> None:
        """Splits the calls of each computation, outer ones first, but those that are one call."""
        self.is_one, self.steady = is_one, steady
        for c in computations:
            if int(self.t.size[c]) <= MOST_ROWS:
                self._split_computation(c)

    def _split_computation(self, c: int) -> None:
        first = int(self.t.first[c])
        rows = np.arange(first, first + int(self.t.size[c]))
        if self.product[rows].sum() < 2:
            return
        graph: Graph | None = None
        depth: list[int] = []
        below: dict[Path, list[int]] = defaultdict(list)
        for row in rows.tolist():
            if self.scope[row] >= 0 and not self.t.silent[row]:
                below[self.paths[self.scope[row]]].append(row)
        level = 1
        while True:
            nodes: dict[Path, list[Path]] = defaultdict(list)
            for path in below:
                if len(path) >= level:
                    nodes[path[:level]].append(path)
            if not nodes:
                return
            calls = Counter(_function(node) for node in nodes)
            layers = Counter(_calls(node) for node in nodes if node[-1].endswith(LAYER))
            for node in nodes:
                if BACKWARD not in node:
                    self.times[node] = layers[node] or 1  # until it is split
            # what a gradient is of first
            for node, inside in sorted(nodes.items(), key=lambda of: BACKWARD in of[0]):
                if AT_LINE not in node[-1] or node[-1].endswith(LAYER) or self.is_one(node):
                    continue
                mine = sorted(r for p in inside for r in below[p])
                counts = self._lines(mine, level)
                if graph is None and max(map(len, counts.values()), default=0) > 1:
                    graph = Graph(self.t, c)
                    depth = graph.depth(self.product[rows].tolist())
                if graph is None:
                    continue
                late = BACKWARD in node
                n, counts = self._how_often(node, mine, counts, depth, first)
                if n == 1:
                    continue
                found = self._of_forward(node, mine, graph) if late else {}
                found = found or self._apart(mine, graph, n, counts)
                if found and not late:
                    self.side_by_side[node] = found
                if not found and n:
                    found = self._in_turn(mine, graph, n, depth, counts, level)
                if not found:
                    continue
                n = 1 + max(found.values())
                name, _, at = node[-1].partition(AT_LINE)
                around = node if calls[_function(node)] > 1 else node[:-1]
                if not late:
                    self.times[node] = n
                for path in inside:
                    for row in below.pop(path):
                        k = found.get(row, -1)
                        new = path
                        if k >= 0:
                            number = n - 1 - k if late else k
                            one = f"{name} {number}{AT_LINE}{at}{LAYER}"
                            new = (*around, one, *_calls(path[level:]))
                            self.scope[row] = self.path_id(new)
                        below[new].append(row)
            level += 1

    def _how_often(
        self, node: Path, rows: list[int], lines: Lines, depth: list[int], first: int
    ) -> tuple[int, Lines]:
        """How often a call is made, 0 if that is unknown, and the lines that say so."""
        late = BACKWARD in node
        ranks = depth if late else None
        n = self.times.get(_forward(node), 0) if late else 0
        if n:
            return n, lines
        least, regular = self.steady.times(lines, ranks, first)
        if least and regular:
            return least, lines
        if not self.steady.loops(lines):
            n = _times(lines, ranks, first)
            if n > 1 and n >= least and self._all_of_it(rows, len(node), n):
                return n, lines
        if not late:
            n, of_all = _times_of_kinds(lines, first)
            if n > 1 and self._all_of_it(rows, len(node), n):
                return n, of_all
        return 0, lines

    def _lines_to(self, row: int, level: int) -> tuple[str | int, ...]:
        """The lines that lead to a row in a call whose path has so many names."""
        calls = _calls(self.paths[self.scope[row]][level:])
        return (*(line_of(name) or name for name in calls), int(self.place[row]))

    def _lines(self, rows: list[int], level: int) -> Lines:
        """Products by the place in the call that they come from."""
        out: Lines = defaultdict(list)
        for row in rows:
            if self.product[row]:
                path = self.paths[self.scope[row]][level:]
                if self.steady.calls:  # which lines are in loops is known: no need of layers
                    path = _calls(path)
                out[path, int(self.place[row])].append(row)
        return out

    def _all_of_it(self, rows: list[int], level: int, n: int) -> bool:
        """Whether the lines of the call run about as often as those of its products."""
        times: Counter[tuple[Path, int]] = Counter()
        for row in rows:
            if not self.quiet[row] and self.place[row]:
                times[_calls(self.paths[self.scope[row]][level:]), int(self.place[row])] += 1
        often = sum(2 * c >= n for c in times.values())
        return often >= REGULAR * len(times)

    def _edges(self, rows: list[int], graph: Graph) -> list[tuple[int, int]]:
        """Values and users among these rows; arrays that XLA sums in one operation stay apart."""
        inside = bytearray(graph.size)
        for r in rows:
            inside[r - graph.first] = 1
        elements, arrays = self.summed
        mine = (elements >= graph.first) & (elements < graph.first + graph.size)
        of = dict(zip((elements[mine] - graph.first).tolist(), arrays[mine].tolist(), strict=True))
        return [
            (v, u)
            for value, u in zip(graph.values, graph.users, strict=True)
            for v in (of.get(u, value + graph.first) - graph.first,)
            if inside[v] and inside[u]
        ]

    @cached_property
    def loop(self) -> Mask:
        return self.t.by_opcode(lambda o: o == "while", bool)

    @cached_property
    def summed(self) -> tuple[Ints, Ints]:
        return summed_together(self.t)

    def _of_forward(self, node: Path, rows: list[int], graph: Graph) -> dict[int, int]:
        """Rows of a backward pass by the call that they depend on, of several side by side."""
        calls = self.side_by_side.get(_forward(node), {})
        n = 1 + max(calls.values(), default=0)
        if not calls:
            return {}
        after = [0] * graph.size
        for row, k in calls.items():
            after[row - graph.first] = 1 << (n - 1 - k)  # numbers of a backward pass run back
        for v, u in self._edges(list(range(graph.first, graph.first + graph.size)), graph):
            after[u] |= after[v]
        of = {r: after[r - graph.first] for r in rows}
        if any(of[r].bit_count() != 1 for r in rows if self.product[r]):
            return {}
        return {r: bits.bit_length() - 1 for r, bits in of.items() if bits.bit_count() == 1}

    def _apart(self, rows: list[int], graph: Graph, n: int, lines: Lines) -> dict[int, int]:
        """Calls that share nothing: connected parts, if there are ``n`` with products.

        Where ``n`` is 0, any number, if these are no turns of one loop: each has several
        turns of the same lines. What XLA computes once for all, before their first products or
        loops or after their last ones, ties none of them together.
        """
        parent = {r - graph.first: r - graph.first for r in rows}
        begun = {r - graph.first: bool(self.product[r] or self.loop[r]) for r in rows}
        ahead = {x: n == 0 or works for x, works in begun.items()}
        edges = self._edges(rows, graph)

        def root(x: int) -> int:
            while parent[x] != x:
                parent[x] = parent[parent[x]]
                x = parent[x]
            return x

        for v, u in reversed(edges):
            ahead[v] = ahead[v] or ahead[u]
        for v, u in edges:  # values come before users
            begun[u] = begun[u] or begun[v]
            if begun[v] and ahead[u]:
                a, b = root(v), root(u)
                parent[max(a, b)] = min(a, b)
        of = {r: root(r - graph.first) for r in rows}
        parts = sorted({of[r] for r in rows if self.product[r]})
        if len(parts) < 2 or n not in (0, len(parts)):
            return {}
        least = 1 if n else 2
        each = Counter((of[r], place) for place, found in lines.items() for r in found)
        for place, found in lines.items():
            share = len(found) / len(parts)
            if share < least or any(each[part, place] != share for part in parts):
                return {}
        number = {part: k for k, part in enumerate(parts)}
        out = {r - graph.first: 1 << number[of[r]] for r in rows if of[r] in number}
        if n:  # what is of one part alone, before its products and after them
            for v, u in edges:
                if not ahead[u]:
                    out[u] = out.get(u, 0) | out.get(v, 0)
            for v, u in reversed(edges):
                if not begun[v]:
                    out[v] = out.get(v, 0) | out.get(u, 0)
        return {
            x + graph.first: bits.bit_length() - 1
            for x, bits in out.items()
            if bits.bit_count() == 1
        }

    def _in_turn(
        self,
        rows: list[int],
        graph: Graph,
        n: int,
        depth: list[int],
        lines: Lines,
        level: int,
    ) -> dict[int, int]:
        """Calls that feed one another: products by depth, the rest by what they are between.

        What one line of the function makes is of the call before or of the next one, always.
        """
        first = graph.first
        own: dict[int, int] = {}
        side_by_side: list[list[int]] = []
        for found in lines.values():
            ranks = sorted({depth[r - first] for r in found})
            if len(ranks) % n == 0:  # a gradient's two products depend on the same
                for row in found:
                    own[row - first] = ranks.index(depth[row - first]) * n // len(ranks)
            elif len(found) % n == 0:
                side_by_side.append(found)
        # what depends on weights alone is of the call that uses it, whenever it runs
        for found in side_by_side if not own else ():
            for k, row in enumerate(sorted(found, key=lambda r: (depth[r - first], r))):
                own[row - first] = k * n // len(found)
        if not own:
            return {}
        edges = self._edges(rows, graph)
        low = {r - first: own.get(r - first, -1) for r in rows}
        high = {r - first: own.get(r - first, _NONE) for r in rows}
        wrong = 0
        for v, u in edges:  # values come before users
            if low[v] > low[u]:
                if u in own:
                    wrong += 1
                else:
                    low[u] = low[v]
        if wrong:
            return {}
        for v, u in reversed(edges):
            if high[u] < high[v] and v not in own:
                high[v] = high[u]
        votes: Counter[tuple[str | int, ...]] = Counter()
        lines_of = {r: self._lines_to(r, level) for r in rows}
        known = {lines_of[r][:n] for r in rows if r - first in own for n in range(len(lines_of[r]))}
        place = {  # the outermost line that holds no product whose call is known
            r: next((x[:n] for n in range(1, len(x)) if x[:n] not in known), x)
            for r, x in lines_of.items()
        }
        for r in rows:
            a, b = low[r - first], high[r - first]
            if a < 0 and b < _NONE:
                votes[place[r]] += 1
            elif a >= 0 and b == _NONE:
                votes[place[r]] -= 1
        out: dict[int, int] = {}
        for r in rows:
            a, b = low[r - first], high[r - first]
            if a < 0 and b == _NONE:
                continue
            if a < 0 or (b < _NONE and votes[place[r]] > 0):
                out[r] = b
            else:
                out[r] = a
        return out


def line_of(name: str) -> str:
    """Line and column of the call that a name is of, "12:4"."""
    return name.partition(AT_LINE)[2].lstrip("'").removesuffix(LAYER)


def _function(node: Path) -> Path:
    """A path that ends with a call, without the line where it is made."""
    return (*node[:-1], node[-1].partition(AT_LINE)[0])


def _forward(node: Path) -> Path:
    """The call of the forward pass that one of the backward pass is of, recomputed or not."""
    return tuple(FORWARD if p == BACKWARD else p for p in node if p != REMAT)


def _times(lines: Lines, depth: list[int] | None, first: int) -> int:
    """How often a call runs: what most of its lines' counts are a multiple of; 1 if unclear.

    In the backward pass, with ``depth``, the two products of a gradient count once: both depend
    on the same.
    """
    counts = Counter(_often(lines, depth, first).values())
    for n in sorted(counts):
        if n > 1 and _regular(counts, n) >= (REGULAR if n > PAIR else 1.0):
            return n
    return 1


def _often(lines: Lines, depth: list[int] | None, first: int) -> dict[tuple[Path, int], int]:
    """How often each line runs; in a backward pass its two products count once."""
    return {
        line: len(rows if depth is None else {depth[r - first] for r in rows})
        for line, rows in lines.items()
    }


def _regular(counts: Counter[int], n: int) -> float:
    """The share of products on lines that run equally often in each of ``n`` calls."""
    regular = sum(c * k for c, k in counts.items() if n and runs_in_each(c, n))
    return regular / max(1, sum(c * k for c, k in counts.items()))


def runs_in_each(count: int, calls: int) -> bool:
    """Whether a line with so many products runs equally often in each of several calls.

    At an end one may be missing: nobody uses what the last block passes on.
    """
    return count % calls == 0 or (calls > PAIR and count == calls - 1)


def _times_of_kinds(lines: Lines, first: int) -> tuple[int, Lines]:
    """How often a call runs whose line calls one of several kinds, and the lines of all its calls.

    The calls of the kinds add up: ``self.ff(self.attention(x))`` runs 8 times if attention does,
    a dense ``ff`` 4 times and one of experts 4 times. 1 if they do not.
    """
    of_kind: dict[str, Lines] = defaultdict(lambda: defaultdict(list))
    for (path, place), rows in lines.items():
        calls = _calls(path)
        of_kind[calls[0] if calls else ""][calls, place] += rows
    times = {kind: _times(found, None, first) for kind, found in of_kind.items()}
    n = max(times.values(), default=1)
    at_line: Counter[str] = Counter()
    for kind, k in times.items():
        if k < n:
            at_line[kind.partition(AT_LINE)[2]] += k
    if not at_line or any(k != n for k in at_line.values()):
        return 1, lines
    return n, {
        at: rows for kind, k in times.items() if k == n for at, rows in of_kind[kind].items()
    }


def _calls(path: Path) -> Path:
    """A path without numbers of calls: what is in one call of them needs none.

    Nor does it need the layers that repetition found there, which have no line.
    """
    return tuple(dict.fromkeys(unnumbered(name) for name in path if not line_of(name).isdigit()))
