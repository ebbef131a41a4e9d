"""The place in the user's code that each buffer comes from.

made by an instruction           its line, or the one inferred for it (``base.lines``)
stacked by a loop for a later    that of the stored value, not of the loop
an argument                      none: it belongs to the caller
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..base.lines.lines import lines
from .carries import Residual
from .liveness.liveness import Liveness
from .liveness.values import ARGUMENT

Ints = npt.NDArray[np.int64]


def buffer_frames(live: Liveness, residuals: Iterable[Residual]) -> Ints:
    """Innermost frame id, in ``module.source_frames()``, of each buffer; 0 for none."""
    frame = lines(live.module).frame
    found = frame[live.defined_by] if len(live.defined_by) else live.defined_by.copy()
    found[live.kind == ARGUMENT] = 0
    for r in residuals:
        if r.stored is not None and frame[r.stored.index] and live.kind[r.buffer] != ARGUMENT:
            found[r.buffer] = frame[r.stored.index]
    return np.asarray(found)
