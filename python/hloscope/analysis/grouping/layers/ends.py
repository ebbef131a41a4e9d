"""What is around the layers: lookups in tables, and what belongs to gradients."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ...base.lines.op_name import BACKWARD, FORWARD, Path
from ...base.table import Ints, Table
from .repeats import Graph, Repeats

# A loop with so many products does the work of a layer or more.
LOOP = 4

_LOOKUP = re.compile(r"(?:^|[/(_])(?:gather|take|embed\w*|one_hot|wte)\b", re.I)


def of_gradients(t: Table, first: int, marked: list[Path]) -> list[bool]:
    """Rows from ``first`` on that depend on a gradient, or whose users all are such rows.

    ``marked`` has the pass of each row by its scope, () for none.
    """
    n = len(marked)
    late = [m == (BACKWARD,) for m in marked]
    begin = int(t.operands.offsets[first])
    end = int(t.operands.offsets[first + n])
    users = (t.operands.rows[begin:end] - first).tolist()
    values = (t.operands.values[begin:end] - first).tolist()
    for v, u in zip(values, users, strict=True):
        if 0 <= v < u and late[v]:
            late[u] = True
    early = [False] * n
    for v, u in zip(reversed(values), reversed(users), strict=True):
        if 0 <= v < u and not late[u]:
            early[v] = True
    for v, u in zip(reversed(values), reversed(users), strict=True):
        if 0 <= v < u and late[u] and not early[v] and marked[v] != (FORWARD,):
            late[v] = True
    return late


def looks_up(t: Table, rows: Ints) -> bool:
    """Whether a table is looked up: a gather, or an operation named like one."""
    gathers = t.by_opcode(lambda o: o == "gather", bool)
    if gathers[rows].any():
        return True
    called, some = t.called, rows[t.called.counts[rows] > 0]
    for r in some.tolist():
        for c in called.values[called.offsets[r] : called.offsets[r + 1]].tolist():
            first = int(t.first[c])
            if gathers[first : first + int(t.size[c])].any():
                return True
    names = {t.op_names[n] for n in set(t.op_name[rows].tolist())}
    return any(_LOOKUP.search(n) for n in names)


def only_for(
    t: Table, found: Repeats, loose: NDArray[np.bool_], ends: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Rows of ``loose`` that only rows of ``ends`` need, directly or through others of them.

    What a tuple takes is no part of the loss: the root takes every result.
    """
    if not loose.any():
        return loose
    g = Graph(t, int(t.computation[found.first]))
    only, used = loose.tolist(), [False] * len(loose)
    tuples = t.by_opcode(lambda o: o == "tuple", bool)[found.first : found.first + len(ends)]
    kept = (ends & ~tuples).tolist()
    for v, u in zip(reversed(g.values), reversed(g.users), strict=True):
        used[v] = True
        if not (kept[u] or (only[u] and used[u])):
            only[v] = False
    return np.array(only, np.bool_) & np.array(used, np.bool_)


def of_loops(t: Table, found: Repeats, free: NDArray[np.bool_], work: Ints) -> NDArray[np.bool_]:
    """Loops beside the layers that do a layer's work, and what they alone need before any.

    ``free``: rows of the computation in no layer; ``work``: products that an instruction runs.
    A loop that writes words with the same layers is no embedding.
    """
    rows = np.arange(len(free)) + found.first
    loops: NDArray[np.bool_] = t.by_opcode(lambda o: o == "while", bool)[rows]
    loops = np.asarray(loops & free & (work[rows] >= LOOP))
    if not loops.any():
        return loops
    g = Graph(t, int(t.computation[found.first]))
    early = (free & (found.after < 0)).tolist()
    mine, others = loops.tolist(), [False] * len(free)
    ends = loops.tolist()  # whoever uses a loop's results does not use what the loop needs
    loose = free.tolist()
    for v, u in zip(reversed(g.values), reversed(g.users), strict=True):
        if mine[u]:
            mine[v] = True
        if (others[u] and not ends[u]) or not (mine[u] and loose[u]):
            others[v] = True
    only = np.array([m and e and not o for m, e, o in zip(mine, early, others, strict=True)])
    return np.asarray(loops | only)
