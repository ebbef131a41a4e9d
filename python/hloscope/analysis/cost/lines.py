"""The source line to which each instruction's cost belongs, and the FLOPs of the line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...hlo import Module
from ..base.table import table
from ..comms.lines import asked_frames
from .cost import Cost

Floats = npt.NDArray[np.float64]


def cost_lines(module: Module, cost: Cost) -> tuple[npt.NDArray[np.int64], Floats]:
    """(frame id, FLOPs over all executions) columns by instruction.

    The frame is the instruction's own, else the one inferred (``base.lines``), of a collective that
    of its card (``comms.lines``); FLOPs of fusions are attributed to the instructions inside.
    """
    executed = cost.execution.runs[table(module).computation]
    return asked_frames(module, cost.target), np.nan_to_num(cost.work.flops) * executed
