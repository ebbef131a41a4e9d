"""The source line that has each instruction's cost, and the FLOPs that stand there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...hlo import Module
from ..base.table import table
from .cost import Cost
from .cost_runs import Role

Floats = npt.NDArray[np.float64]


def cost_lines(module: Module, cost: Cost) -> tuple[npt.NDArray[np.int64], Floats]:
    """(frame id, FLOPs over all executions) by instruction.

    The frame is the instruction's own, or for a unit without one that of the heaviest
    instruction fused into it; FLOPs stand where they are done, inside fusions.
    """
    frame = np.array(module.source_frames()[1], np.int64)
    _borrow(module, cost, frame)
    executed = cost.execution.runs[table(module).computation]
    return frame, np.nan_to_num(cost.work.flops) * executed


def _borrow(module: Module, cost: Cost, frame: npt.NDArray[np.int64]) -> None:
    """Gives units without a line that of the heaviest instruction fused into them."""
    t = table(module)
    weight = np.nan_to_num(cost.work.flops) + np.nan_to_num(cost.work.transcendentals)
    for e in cost.execution.calls.edges:
        if e.role is Role.FUSED and frame[e.caller] == 0:
            rows = np.arange(t.first[e.callee], t.first[e.callee] + t.size[e.callee])
            rows = rows[frame[rows] > 0]
            if len(rows):
                frame[e.caller] = frame[rows[int(weight[rows].argmax())]]
