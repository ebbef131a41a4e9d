"""How much of the program's arithmetic each instruction does: this decides what is seen at first.

A rank, not a figure to show: FLOPs of products as the square root of the product of the sizes of
operands and result (m·k, k·n and m·n give m·k·n), kernels by their bytes, other arithmetic by its
elements, each times its runs. A loop of unknown length counts as eight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...hlo.collective_kinds import is_collective
from ..base.labels.families import ID, families
from ..base.loops.trips import multiplicity
from ..base.table import per_module, table

if TYPE_CHECKING:
    from ...hlo import Module

_UNKNOWN_TRIPS = 8.0
_PER_ELEMENT = ("elementwise", "reduction", "linear_algebra")
_ADD = 0.5  # of a product's multiplication and addition
_KERNEL = 128.0  # products a kernel may do with each element


@per_module
def work(module: Module) -> NDArray[np.float64]:
    """One row per instruction: its own arithmetic, without that of what it calls."""
    t = table(module)
    family = families(module)
    products = np.isin(family, [ID["matmul"], ID["convolution"], ID["custom_call"]])
    products &= t.by_opcode(lambda o: o not in ("fusion", "call") and "async" not in o, bool)
    runs = _runs(module)[t.computation]
    elements = _elements(module)
    offsets, values, shape = t.operands.offsets, t.operands.values, t.shape
    of_shape = _of_shape(module)
    out = np.zeros(len(shape), np.float64)
    for i in np.flatnonzero(products).tolist():
        sizes = [of_shape[shape[o]] for o in values[offsets[i] : offsets[i + 1]][:2].tolist()]
        mine = of_shape[shape[i]]
        if family[i] == ID["custom_call"]:
            done = _KERNEL * (mine + sum(sizes))
        else:
            done = math.sqrt(mine * math.prod(sizes)) if sizes else 0.0
        out[i] = done * runs[i]
    rows = np.flatnonzero(np.isin(family, [ID[name] for name in _PER_ELEMENT]))
    reads = rows[t.operands.counts[rows] > 0]
    done = elements.copy()  # a reduction takes more than it gives
    done[reads] = np.maximum(elements[reads], elements[values[offsets[reads]]])
    out[rows] += _ADD * done[rows] * runs[rows]
    return out


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
        often = runs[t.computation[rows]]  # one that several call is done for each of them
        if whole and often.sum():
            out[rows] += whole * often / often.sum()
    out /= float(work(module).sum()) or 1.0
    sent = np.flatnonzero(t.by_opcode(is_collective, bool))
    elements = _elements(module)[sent] * runs[t.computation[sent]]
    if len(sent) and elements.sum() > 0:
        out[sent] = np.maximum(out[sent], elements / elements.sum())
    return out


def _runs(module: Module) -> NDArray[np.float64]:
    """One row per computation."""
    runs = multiplicity(module)
    return np.array([_UNKNOWN_TRIPS if r is None else float(r) for r in runs], np.float64)


def _of_shape(module: Module) -> list[float]:
    """One row per distinct shape: its elements."""
    shapes = table(module).shapes
    return [float(sum(leaf.elements for leaf in s.leaves() if leaf.is_array)) for s in shapes]


def _elements(module: Module) -> NDArray[np.float64]:
    """One row per instruction: the elements of its result."""
    return np.array(_of_shape(module), np.float64)[table(module).shape]
