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
    from .traced_calls import Place, Stack, TracedCall

    # A call, one that ran before it, and the place in that one of what both computed.
    Earlier = tuple[Stack, Stack, Place]

Mask = NDArray[np.bool_]


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
    wanted = _earlier(stacks, set(zip(own[early].tolist(), made[early].tolist(), strict=True)))
    mine = {r: of for r in early.tolist() if (of := wanted.get((int(own[r]), int(made[r]))))}
    out = own.copy()
    numbers = {place: k for k, place in enumerate(stacks)}
    moved: dict[tuple[Stack, Stack], list[tuple[int, Place]]] = defaultdict(list)
    for c in np.unique(t.computation[home[list(mine)]]).tolist() if mine else ():
        here = np.flatnonzero(t.computation[home] == c)
        graph = Graph(t, c)
        shared = [r for r in here.tolist() if r in mine]
        pairs = dict.fromkeys(of[:2] for r in shared for of in mine[r])
        known = here[(own[here] >= 0) & ~late[here]]
        known = known[(home[known] == known) | (own[home[known]] < 0)]  # a fusion is what it is of
        calls = [
            (r - graph.first, stacks[k][0])
            for r, k in zip(home[known].tolist(), own[known].tolist(), strict=True)
        ]
        uses = _uses(graph, int(t.roots[c]) - graph.first, calls, pairs)
        bit = {pair: 1 << n for n, pair in enumerate(pairs)}
        for row in shared:
            for call, earlier, place in mine[row]:
                if uses[int(home[row]) - graph.first] & bit[call, earlier]:
                    moved[call, earlier].append((row, place))
                    break
    for rows in moved.values():
        if any(product[row] for row, _ in rows):
            for row, place in rows:
                out[row] = numbers.setdefault(place, len(numbers))
    stacks[:] = numbers
    return out


def _uses(
    graph: Graph, root: int, calls: list[tuple[int, Stack]], pairs: dict[tuple[Stack, Stack], None]
) -> list[int]:
    """For each row the bits of the pairs of which the earlier call uses it, or its own for that.

    ``calls``: the rows whose calls are known. What jax traced once for both calls has the frames of
    one, as a rule for derivatives has: a row of the earlier call that only serves the later one is
    of that, and gradients tell nothing.
    """
    inside, first = [0] * graph.size, [0] * graph.size
    told = [row == root for row in range(graph.size)]
    known: dict[Stack, tuple[int, int]] = {}
    for row, stack in calls:
        if stack not in known:
            of = [(_begins(stack, call), _begins(stack, earlier)) for call, earlier in pairs]
            known[stack] = (
                sum((a or b) << n for n, (a, b) in enumerate(of)),
                sum(b << n for n, (_, b) in enumerate(of)),
            )
        inside[row] |= known[stack][0]
        first[row] |= known[stack][1]
        told[row] = True
    out = [0] * graph.size
    for v, u in zip(reversed(graph.values), reversed(graph.users), strict=True):
        within = inside[u] if told[u] else -1
        out[v] |= (out[u] & within) | (first[v] & ~within)
    return out


def _earlier(
    stacks: list[Place], used: set[tuple[int, int]]
) -> dict[tuple[int, int], list[Earlier]]:
    """For each of these places and operations the earlier calls that may have been first."""
    by_function: dict[tuple[str, str], dict[Stack, None]] = defaultdict(dict)
    known: dict[object, dict[Stack, None]] = defaultdict(dict)
    for stack, _ in stacks:
        for n, call in enumerate(stack, 1):
            by_function[call.file, call.function].setdefault(stack[:n])
            known[_plain(stack[:n])].setdefault(stack[:n])
    have = {(_plain(stacks[k][0]), stacks[k][1], made) for k, made in used}
    out: dict[tuple[int, int], list[Earlier]] = {}
    for k, made in used:
        stack, line = stacks[k]
        for n, call in enumerate(stack, 1):
            found: list[Earlier] = []
            for other in by_function[call.file, call.function]:
                pairs = enumerate(zip(stack, other, strict=False))
                m = next((m for m, (a, b) in pairs if a != b), n)
                if m >= n or not _is_before(other[m], stack[m]):
                    continue
                inner = list(known.get(_plain(other + stack[n:]), ()))
                if inner and (_plain(inner[0]), line, made) not in have:
                    whole = inner[0] if len(inner) == 1 else other + stack[n:]
                    found.append((stack[: m + 1], other[: m + 1], (whole, line)))
            if found:
                out[k, made] = sorted(found, key=lambda of: [(c.number, c.at) for c in of[1]])
                break
    return out


def _begins(stack: Stack, call: Stack) -> bool:
    return stack[: len(call)] == call


def _is_before(a: TracedCall, b: TracedCall) -> bool:
    """Whether one of two calls in one caller runs first: by its number, else by its line."""
    if a.number >= 0 and b.number >= 0:
        return a.number < b.number
    return 0 < a.at[0] < b.at[0]


def _plain(stack: Stack) -> tuple[object, ...]:
    """Calls without their numbers."""
    return tuple((c.file, c.function, c.at) for c in stack)
