"""Where in the person's code each buffer comes from.

    made by an instruction with a stack      its stack; of a fusion without one, its heaviest part's
    stacked by a loop for a later one        of what is stored, not of the loop
    a copy or move of the compiler's own     of what it moves
    a prefetch or copy of an argument        of the first instruction that needs it

An argument has no line: it is the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction
from ..cost.cost import estimated
from ..cost.cost_lines import cost_lines
from .liveness_values import ARGUMENT, CONSTANT

if TYPE_CHECKING:
    from .memory import Memory

Ints = npt.NDArray[np.int64]
_FAR = 32  # instructions between a compiler's copy and what it is a copy of, at most


def buffer_frames(memory: Memory) -> Ints:
    """Innermost frame id, in ``module.source_frames()``, of each buffer; 0 for none."""
    live = memory.liveness
    frame = cost_lines(memory.module, estimated(memory.module, memory.target))[0]
    found: Ints = frame[live.defined_by] if len(live.defined_by) else live.defined_by
    found[live.kind == ARGUMENT] = 0
    if not frame.any():
        return found
    for r in memory.residuals:
        if r.stored is not None and frame[r.stored.index] and live.kind[r.buffer] != ARGUMENT:
            found[r.buffer] = frame[r.stored.index]
    lost = (found == 0) & (live.size > 0) & (live.kind != ARGUMENT) & (live.kind != CONSTANT)
    for b in np.flatnonzero(lost).tolist():
        made = memory.module.instructions[int(live.defined_by[b])]
        found[b] = _before(made, frame) or _after(made, frame)
    return found


def _before(i: Instruction, frame: Ints) -> int:
    """The frame of what an instruction without one is made from; 0 where that is an argument."""
    for _ in range(_FAR):
        if not i.operands or frame[i.index]:
            break
        i = i.operands[0]
    return int(frame[i.index]) if i.opcode != "parameter" else 0


def _after(i: Instruction, frame: Ints) -> int:
    """The frame of the first instruction that needs the value and has one."""
    for _ in range(_FAR):
        known = next((int(frame[u.index]) for u in i.users if frame[u.index]), 0)
        if known or not i.users:
            return known
        i = i.users[0]
    return 0
