"""What comes out of a call and goes back into it is inside it.

    attention ─ copy ─ attention          XLA's copy, transpose or fusion without a stack of its own
                                          seems to stand beside the call that it is in

A call runs from its begin to its end, so nothing of its caller can be in between. This holds of one
call only: where several are together, what is between them is the caller's.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from ..base.lines.op_name import BACKWARD, LAYER, Path
from ..base.table import Ints, Table

Mask = NDArray[np.bool_]

# The share of a call's products on lines that occur once, for it to be one call.
ONCE = 0.9
# Products that one line of the forward pass has in the backward pass.
OF_A_GRADIENT = 2


def move_inside_calls(t: Table, scope: Ints, paths: list[Path], product: Mask, place: Ints) -> None:
    """Moves rows into the calls that they are in the middle of, in place; ``paths`` grows."""
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
    depth = np.array([len(p) for p in paths] + [0], np.int64)
    one = _single_calls(t, scope, paths, around, product, place)
    rows, values = t.operands.rows, t.operands.values
    real = ~t.silent[values] & ~t.silent[rows] & (scope[rows] >= 0) & (scope[values] >= 0)
    rows, values = rows[real & (values < rows)], values[real & (values < rows)]
    single = [
        [k for k in around[n, 1 : len(p) + 1].tolist() if one[k]] for n, p in enumerate(paths)
    ]
    holds = np.zeros(len(paths) + 1, bool)  # has a single call somewhere below
    for k in np.flatnonzero(one).tolist():
        holds[around[k, : depth[k]]] = True
    a, b = scope[values], scope[rows]
    into = holds[b] & (depth[a] > depth[b]) & (around[a, depth[b]] == b)
    out_of = holds[a] & (depth[b] > depth[a]) & (around[b, depth[a]] == a)
    beside = holds[a] & (a == b)
    before = _calls(rows[into], a[into], single)
    after = _calls(values[out_of], b[out_of], single)
    edges = list(zip(values[beside].tolist(), rows[beside].tolist(), strict=True))
    for v, u in edges:
        if v in before:
            before[u] |= before[v]
    for v, u in sorted(edges, key=lambda e: -e[1]):
        if u in after:
            after[v] |= after[u]
    for row, calls in before.items():
        both = [k for k in calls & after.get(row, set()) if depth[k] > depth[scope[row]]]
        if both:
            scope[row] = max(both, key=lambda k: (int(depth[k]), k))


def _calls(rows: Ints, scopes: Ints, single: list[list[int]]) -> defaultdict[int, set[int]]:
    """For each row the single calls that a neighbour's scope is in."""
    out: defaultdict[int, set[int]] = defaultdict(set)
    for row, s in zip(rows.tolist(), scopes.tolist(), strict=True):
        out[row].update(single[s])
    return out


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
