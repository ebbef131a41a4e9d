"""What comes out of a call and goes back into it is inside it.

    attention ─ copy ─ attention          XLA's copy, transpose or fusion without a stack of its own
                                          seems to stand beside the call that it is in

A call runs from its begin to its end, so nothing of its caller can be in between. This holds of one
call only: where several are together, what is between them is the caller's.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ..base.lines.op_name import BACKWARD, LAYER, Path, common
from ..base.table import Ints, Table

Mask = NDArray[np.bool_]

# The share of a call's products on lines that occur once, for it to be one call.
ONCE = 0.9
# Edges of a module that are walked at most.
MOST_EDGES = 1_000_000
# Products that one line of the forward pass has in the backward pass.
OF_A_GRADIENT = 2


def move_inside_calls(
    t: Table, own: Ints, scope: Ints, paths: list[Path], product: Mask, place: Ints
) -> None:
    """Moves rows into the calls that they are in the middle of, in place; ``paths`` grows.

    Of what has no stack and no name, also what is made of arguments alone: to its users.
    """
    if len(t.operands.rows) > MOST_EDGES:
        return
    ids = {path: n for n, path in enumerate(paths)}
    for path in list(paths):
        for n in range(len(path)):
            if path[:n] not in ids:
                ids[path[:n]] = len(paths)
                paths.append(path[:n])
    deepest = max(map(len, paths), default=0)
    around = np.full((len(paths) + 1, deepest + 2), -1, np.int64)  # the last row is no path
    for n, path in enumerate(paths):
        around[n, : len(path) + 1] = [ids[path[:k]] for k in range(len(path) + 1)]
    one = _single_calls(t, scope, paths, around, product, place)
    single = [
        frozenset(k for k in around[n, 1 : len(path) + 1].tolist() if one[k])
        for n, path in enumerate(paths)
    ]
    holds = np.zeros(len(paths) + 1, bool)  # has a single call somewhere below
    for k in np.flatnonzero(one).tolist():
        holds[around[k, : len(paths[k])]] = True
    fixed = product | ((t.called.counts > 0) & ~t.by_opcode(lambda o: o == "fusion", bool))
    unnamed = (own < 0) & (scope >= 0) & ~fixed & ~t.silent
    loose = unnamed | ((own >= 0) & holds[scope] & ~fixed & ~t.silent)
    rows, values = t.operands.rows, t.operands.values
    real = (scope[rows] >= 0) & (scope[values] >= 0) & ~t.silent[values] & (values < rows)
    real &= loose[rows] | loose[values]
    rows, values = rows[real], values[real]
    through = loose[values] & loose[rows] & (unnamed[values] | unnamed[rows])
    through |= loose[values] & loose[rows] & (scope[values] == scope[rows])
    edges = list(
        zip(values.tolist(), rows.tolist(), scope[values].tolist(), scope[rows].tolist(),
            through.tolist(), strict=True)
    )  # fmt: skip
    nothing: frozenset[int] = frozenset()
    before: dict[int, frozenset[int]] = {}
    for v, u, s, _, passes in edges:
        found = before.get(v, nothing) if passes else single[s]
        if found and loose[u]:
            before[u] = before.get(u, nothing) | found
    after: dict[int, frozenset[int]] = {}
    used: dict[int, Path] = {}
    for v, u, _, s, passes in sorted(edges, key=lambda e: -e[1]):
        found = after.get(u, nothing) if passes else single[s]
        if found and loose[v]:
            after[v] = after.get(v, nothing) | found
        if unnamed[v] and v not in before:
            users = used.get(u, paths[s])
            used[v] = common([used[v], users]) if v in used else users
    for row, calls in before.items():
        both = calls & after.get(row, nothing)
        if not unnamed[row]:
            both = frozenset(k for k in both if around[k, len(paths[scope[row]])] == scope[row])
        here = max(both, key=lambda k: (len(paths[k]), k), default=-1)
        if here >= 0 and here not in single[scope[row]] and here != scope[row]:
            scope[row] = here
    for row, path in used.items():
        if path:
            scope[row] = ids[path]


def _single_calls(
    t: Table, scope: Ints, paths: list[Path], around: Ints, product: Mask, place: Ints
) -> Mask:
    """Which paths are one call: a numbered one, or one whose products are on lines of their own."""
    caller, _ = t.caller()
    fusion = t.by_opcode(lambda o: o == "fusion", bool)
    open_ = ~((caller >= 0) & fusion[np.maximum(caller, 0)])[t.computation]
    mine = np.flatnonzero(product & open_ & (scope >= 0))
    lines = Counter(
        (s, p or -n - 1)
        for s, p, n in zip(
            scope[mine].tolist(), place[mine].tolist(), t.place[mine].tolist(), strict=True
        )
    )
    whole: Counter[int] = Counter()
    once: Counter[int] = Counter()
    for (s, _), times in lines.items():
        most = OF_A_GRADIENT if BACKWARD in paths[s] else 1
        for k in around[s, 1 : len(paths[s]) + 1].tolist():
            whole[k] += times
            once[k] += times if times <= most else 0
    out = np.zeros(len(paths) + 1, bool)
    for k, n in whole.items():
        out[k] = once[k] >= ONCE * n
    for k, path in enumerate(paths):
        if path and path[-1].endswith(LAYER):
            out[k] = True
    return out
