"""How much of the program's work a group holds: this decides what the first picture opens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .groups import KINDS
from .outline import OPTIMIZER, UPDATE
from .work import time_rank

if TYPE_CHECKING:
    from ...hlo import Module
    from .groups import GroupTree

_ONCE_MORE = 0.3  # twice the forward pass's products, or three times with recomputation
_UPDATES = re.compile(rf"({OPTIMIZER}|{UPDATE})( ·|$)")


def worth(module: Module, tree: GroupTree) -> NDArray[np.float64]:
    """One row per group: its share of the module's work, 0 to 1; all 0 if there is none.

    Work is arithmetic, but for products of a few rows: these take as long as reading their weights.
    """
    out = np.bincount(tree.group, time_rank(module), len(tree.parent)).tolist()
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
