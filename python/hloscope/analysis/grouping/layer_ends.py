"""What stands around the layers: tables that are looked up, and what is of gradients."""

from __future__ import annotations

import re

from ..base.op_name import BACKWARD, FORWARD, Path
from ..base.table import Ints, Table

_LOOKUP = re.compile(r"(?:^|[/(_])(?:gather|take|embed\w*|one_hot|wte)\b", re.I)


def of_gradients(t: Table, first: int, marked: list[Path]) -> list[bool]:
    """Rows from ``first`` on that depend on a gradient, or serve gradients alone.

    ``marked`` has the pass that each row's scope says, () for none.
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
        if 0 <= v < u and (early[u] or not late[u]):
            early[v] = True
    for v, u in zip(reversed(values), reversed(users), strict=True):
        if 0 <= v < u and late[u] and not early[v] and marked[v] != (FORWARD,):
            late[v] = True
    return late


def looks_up(t: Table, rows: Ints) -> bool:
    """Whether a table is looked up: a gather, or an operation that says it was one."""
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
