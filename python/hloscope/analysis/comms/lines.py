"""The frame of every instruction, of collectives that of the line which asks for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...hlo import FrameTable, Module, Target
from ..base.lines.frames import own_line
from ..base.lines.lines import lines
from .collectives import collectives


def asked_frames(module: Module, target: Target) -> npt.NDArray[np.int64]:
    """Frame ids as ``base.lines`` has them; a collective's members have the line of its card.

    The module's table of frames may lack that line: then they keep theirs.
    """
    found = lines(module)
    asked = [row for row in collectives(module, target) if row.asked]
    if not asked:
        return found.frame
    ids = _first_ids(found.table)
    out = found.frame.copy()
    for row in asked:
        at = row.source
        frame = ids.get((at.file, at.line), 0) if at is not None else 0
        if frame:
            out[list(row.members)] = frame
    return out


def _first_ids(table: FrameTable) -> dict[tuple[str, int], int]:
    """The first frame id of each own line."""
    out: dict[tuple[str, int], int] = {}
    for n in range(1, len(table.frames) + 1):
        at = own_line(table.stack(n))
        if at is not None:
            out.setdefault((at.file, at.line), n)
    return out
