"""Labels of collectives that sum the gradients of a step over the devices.

all-reduce f32[92,192] +60   →   all-reduce 60 gradients +1
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..table import table
from .edges import BACKWARD, OPTIMISER, summed_together
from .phases import phases

if TYPE_CHECKING:
    from ....hlo import Module

# The share of its arrays that are gradients, for a collective to be called after them.
MOST = 0.5


def gradient_labels(module: Module, words: Sequence[str]) -> list[str]:
    """``words`` with those of collectives of several gradients in place.

    A gradient is made by the backward pass, and the optimizer or the result alone uses its sum.
    """
    t = table(module)
    out = list(words)
    elements, arrays = summed_together(t)
    if not len(elements):
        return out
    phase = phases(module)
    root = np.zeros(len(phase), bool)
    root[t.roots[t.roots >= 0]] = True
    updates = (phase == OPTIMISER) | root
    others = np.bincount(t.operands.values[~updates[t.operands.rows]], minlength=len(phase)) > 0
    is_gradient = (phase[arrays] == BACKWARD) & ~others[elements]
    of = t.operands.values[t.operands.offsets[elements]]  # the sum, or the end of it
    found: dict[int, list[bool]] = defaultdict(list)
    for row, yes in zip(of.tolist(), is_gradient.tolist(), strict=True):
        found[row].append(yes)
    for row, each in found.items():
        some = sum(each)
        if some < 2 or some < MOST * len(each):
            continue
        rest = f" +{len(each) - some}" if some < len(each) else ""
        ends = t.operands.values[t.operands.offsets[row] : t.operands.offsets[row + 1]].tolist()
        for at in (row, *ends) if len(ends) == 1 else (row,):
            out[at] = f"{t.opcodes[t.opcode[at]]} {some} gradients{rest}"
    return out
