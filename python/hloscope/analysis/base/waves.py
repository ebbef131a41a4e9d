"""Edges in the order of the module, those of many small computations at a time.

What flows along edges is followed user by user, as a user's operands come before it. Most rows of
a large module are in fusions of a dozen, which are independent of one another: their first users
are one wave, their second users the next, and a wave is one step of numpy.

    fusion a    x ─▶ mul ─▶ add           wave 1: mul, sub     wave 2: add, exp
    fusion b    y ─▶ sub ─▶ exp
    ENTRY       a thousand rows, each after the last: one by one
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .table import Ints, Table, per_table

# A computation with more instructions is followed one by one.
SMALL = 64
# With fewer edges in small computations a wave is no quicker than its edges one by one.
WORTH_WAVES = 6_000

Edges = tuple[Ints, Ints]  # users, and what each uses


@dataclass(frozen=True, eq=False)
class _Order:
    waves: NDArray[np.int32]  # edges of small computations by position of their user in it
    place: NDArray[np.uint8]  # that position, ascending
    single: NDArray[np.bool_]  # one row per edge: whether it is in a large computation


@per_table
def _order(t: Table) -> _Order:
    small = t.size <= SMALL
    rows = t.operands.rows
    single = ~small[t.computation[rows]]
    edges = np.flatnonzero(~single).astype(np.int32)
    if len(edges) < WORTH_WAVES:
        none = np.zeros(0, np.int32)
        return _Order(none, none.astype(np.uint8), np.ones(len(rows), bool))
    users = rows[edges]
    place = (users - t.first[t.computation[users]]).astype(np.uint8)
    by_place = np.argsort(place, kind="stable")
    return _Order(edges[by_place], place[by_place], single)


def in_order(
    t: Table, chosen: NDArray[np.bool_], last_first: bool = False
) -> tuple[Iterator[Edges], Edges]:
    """The chosen edges as waves, and those that have to be followed one by one.

    Users ascend, or descend with ``last_first``. No two users of a wave are in one computation.
    """
    order = _order(t)
    rows, values = t.operands.rows, t.operands.values
    single = np.flatnonzero(chosen & order.single)
    if last_first:
        single = single[::-1]
    mine = chosen[order.waves]
    edges, place = order.waves[mine], order.place[mine]
    ends = np.searchsorted(place, np.arange(SMALL + 1)).tolist()
    places = [k for k in range(SMALL) if ends[k] < ends[k + 1]]
    if last_first:
        places.reverse()
    waves = (edges[ends[k] : ends[k + 1]] for k in places)
    return ((rows[w], values[w]) for w in waves), (rows[single], values[single])
