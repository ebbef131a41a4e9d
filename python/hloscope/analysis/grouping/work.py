"""How much of the program's arithmetic each instruction does: this decides what is seen at first.

A rank, not a figure to show: FLOPs, a transcendental as one, times the runs. A kernel of which the
FLOPs are unknown has some for each element; a loop of unknown length runs ``_UNKNOWN_TRIPS`` times,
each branch is taken.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...hlo.collective_kinds import is_collective
from ..base.labels.families import ID, families
from ..base.lines.op_name import is_expanded
from ..base.loops.trips import counted
from ..base.table import Table, per_module, table
from ..flops.flops import count_work

if TYPE_CHECKING:
    from ...hlo import Module

# An operation, statement or call that does less of the program's arithmetic is small.
SMALL = 0.01
_UNKNOWN_TRIPS = 32
_KERNEL = 256.0  # FLOPs that a kernel may do with each element
# FLOPs that a product takes the time of for each byte, at least: a TPU v5e does 197 TFLOP/s and
# reads 819 GB/s. Products of a few rows, as in decoding, take as long as reading their weights.
_OF_A_BYTE = 197e12 / 819e9


@per_module
def products(module: Module) -> NDArray[np.bool_]:
    """Matmuls and convolutions, but for those that XLA makes of one operation of linear algebra."""
    t = table(module)
    pieces = np.array([is_expanded(n) for n in t.places], bool)[t.place]
    return np.asarray(np.isin(families(module), [ID["matmul"], ID["convolution"]]) & ~pieces)


@per_module
def work(module: Module) -> NDArray[np.float64]:
    """One row per instruction: its own arithmetic, without that of what it calls."""
    t = table(module)
    counted = count_work(module)
    out = counted.flops + counted.transcendentals
    elements = _elements(module)
    offsets, values = t.operands.offsets, t.operands.values
    for i in np.flatnonzero(np.isnan(out)).tolist():
        read = elements[values[offsets[i] : offsets[i + 1]][:2]].sum()
        out[i] = _KERNEL * (elements[i] + read)
    out *= _runs(module)[t.computation]
    return out


@per_module
def time_rank(module: Module) -> NDArray[np.float64]:
    """``work``, with products that take as long as at least reading what they multiply."""
    t = table(module)
    out, runs = work(module).copy(), _runs(module)
    dense = [float(sum(leaf.byte_size for leaf in s.leaves() if leaf.is_array)) for s in t.shapes]
    of = np.array(dense, np.float64)[t.shape]
    offsets, values = t.operands.offsets, t.operands.values
    for i in np.flatnonzero(products(module)).tolist():
        read = of[values[offsets[i] : offsets[i + 1]][:2]].sum()
        out[i] = max(out[i], _OF_A_BYTE * (of[i] + read) * runs[t.computation[i]])
    return out


@per_module
def little(module: Module) -> NDArray[np.bool_]:
    """One row per instruction: whether it does less than ``SMALL`` of a known amount of work."""
    return np.asarray((shares(module) < SMALL) & (work(module).sum() > 0))


@per_module
def shares(module: Module) -> NDArray[np.float64]:
    """One row per instruction: its share, 0 to 1, of the arithmetic, with what it calls.

    Of a collective, its share of the elements that all collectives give, if that is more.
    """
    t = table(module)
    out = work(module).copy()
    runs = _runs(module)
    callers: dict[int, set[int]] = defaultdict(set)
    for row, callee in zip(t.called.rows.tolist(), t.called.values.tolist(), strict=True):
        callers[callee].add(row)
    for c in t.callees_first:
        first = int(t.first[c])
        whole = float(out[first : first + int(t.size[c])].sum())
        rows = list(callers[c])
        if len(rows) == 1:  # as nearly all have, such as fusions
            once = float(runs[t.computation[rows[0]]])
            if whole and once:
                out[rows[0]] += whole * once / once
            continue
        often = runs[t.computation[rows]]  # one that several call is done for each of them
        if whole and often.sum():
            out[rows] += whole * often / often.sum()
    out /= float(work(module).sum()) or 1.0
    sent = np.flatnonzero(t.by_opcode(is_collective, bool))
    elements = _elements(module)[sent] * runs[t.computation[sent]]
    if len(sent) and elements.sum() > 0:
        out[sent] = np.maximum(out[sent], elements / elements.sum())
    return out


@per_module
def _runs(module: Module) -> NDArray[np.float64]:
    """One row per computation."""
    runs = counted(module, 1, _UNKNOWN_TRIPS)
    return np.array([1.0 if r is None else float(r) for r in runs], np.float64)


def _of_shape(module: Module) -> list[float]:
    """One row per distinct shape: its elements."""
    shapes = table(module).shapes
    return [float(sum(leaf.elements for leaf in s.leaves() if leaf.is_array)) for s in shapes]


def _elements(module: Module) -> NDArray[np.float64]:
    """One row per instruction: the elements of its result."""
    return np.array(_of_shape(module), np.float64)[table(module).shape]


def out_of_loops(t: Table) -> NDArray[np.bool_]:
    """What has a name that is in more loops than it is: XLA moved it out, or unrolled a loop."""
    loops = np.array([name.count("while/") for name in t.places], np.int64)[t.place]
    is_loop = t.by_opcode(lambda o: o == "while", bool)
    caller, _ = t.caller()
    around = np.zeros(len(caller), np.int64)  # of a computation
    for c in range(len(caller) - 1, -1, -1):  # callers come after what they call
        if caller[c] >= 0:
            inside = int(is_loop[caller[c]])
            around[c] = max(around[t.computation[caller[c]]], loops[caller[c]]) + inside
    return np.asarray(loops > around[t.computation])
