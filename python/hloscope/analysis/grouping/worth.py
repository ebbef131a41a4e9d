"""How much of the program's work a group holds: this decides what the first picture opens.

A rank, not a figure to show: FLOPs of products as the square root of the product of the sizes of
operands and result (m·k, k·n and m·n give m·k·n), kernels by their bytes, other arithmetic by its
elements, each times its runs. A loop of unknown length counts as eight.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.labels.families import ID, families
from ..base.loops.trips import multiplicity
from ..base.table import table
from .groups import KINDS

if TYPE_CHECKING:
    from ...hlo import Module
    from .groups import GroupTree

_UNKNOWN_TRIPS = 8.0
_ONCE_MORE = 0.3  # twice the forward pass's products, or three times with recomputation
_UPDATES = re.compile(r"optimizer( ·|$)")
_PER_ELEMENT = ("elementwise", "reduction", "linear_algebra")
_ADD = 0.5  # of a product's multiplication and addition
_KERNEL = 128.0  # products a kernel may do with each element


def worth(module: Module, tree: GroupTree) -> NDArray[np.float64]:
    """One row per group: its share of the module's arithmetic, 0 to 1; all 0 if there is none."""
    t = table(module)
    family = families(module)
    products = np.isin(family, [ID["matmul"], ID["convolution"], ID["custom_call"]])
    products &= t.by_opcode(lambda o: o not in ("fusion", "call") and "async" not in o, bool)
    runs = [_UNKNOWN_TRIPS if r is None else float(r) for r in multiplicity(module)]
    of_shape = [float(sum(leaf.elements for leaf in s.leaves() if leaf.is_array)) for s in t.shapes]
    offsets, values, shape = t.operands.offsets, t.operands.values, t.shape
    out = [0.0] * len(tree.parent)
    group, computation = tree.group, t.computation
    for i in np.flatnonzero(products).tolist():
        sizes = [of_shape[shape[o]] for o in values[offsets[i] : offsets[i + 1]][:2].tolist()]
        mine = of_shape[shape[i]]
        if family[i] == ID["custom_call"]:
            work = _KERNEL * (mine + sum(sizes))
        else:
            work = math.sqrt(mine * math.prod(sizes)) if sizes else 0.0
        out[group[i]] += work * runs[computation[i]]
    elements = np.array(of_shape, np.float64)[shape]
    rows = np.flatnonzero(np.isin(family, [ID[name] for name in _PER_ELEMENT]))
    reads = rows[t.operands.counts[rows] > 0]
    done = elements.copy()  # a reduction takes more than it gives
    done[reads] = np.maximum(elements[reads], elements[values[offsets[reads]]])
    arithmetic = _ADD * done[rows] * np.array(runs, np.float64)[computation[rows]]
    out = (np.array(out) + np.bincount(group[rows], arithmetic, len(out))).tolist()
    above = _above(tree)
    for g in range(len(out) - 1, 0, -1):
        out[above[g]] += out[g]
    total = out[0] if out else 0.0
    return np.array(out) / total if total > 0 else np.zeros(len(out))


def worth_opening(module: Module, tree: GroupTree) -> NDArray[np.float64]:
    """``worth``, with the backward pass below the forward pass: it repeats the model.

    An optimiser beside a model counts as nothing: one that multiplies, such as muon, would come
    first.
    """
    out = worth(module, tree)
    above = _above(tree)
    scope = tree.kind == KINDS.index("scope")
    late = [g in tree.backward for g in range(len(tree.label))]
    named = [bool(_UPDATES.match(name)) for name in tree.label]
    updates = [s and n for s, n in zip(scope.tolist(), named, strict=True)]
    model = 1.0 - sum(float(out[g]) for g, yes in enumerate(updates) if yes)
    for g in range(1, len(late)):
        late[g] = late[g] or late[above[g]]
        updates[g] = updates[g] or updates[above[g]]
    out[late] *= _ONCE_MORE
    if any(late) and model > 0:
        out[updates] = 0.0
        out = np.minimum(out / model, 1.0)
    return out


def _above(tree: GroupTree) -> list[int]:
    """The group around each; for what an instruction calls, that of the instruction."""
    around = np.where(tree.owner >= 0, tree.group[np.maximum(tree.owner, 0)], tree.parent)
    return [int(g) for g in around]
