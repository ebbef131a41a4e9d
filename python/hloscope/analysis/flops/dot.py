"""FLOPs of a dot, from its shapes and the contracted dimensions."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from ...hlo import Instruction, Shape

_CONTRACTING = re.compile(r"\blhs_contracting_dims=\{([\d,\s]*)\}")


def dot_flops(i: Instruction) -> float:
    """2 · output elements · contracted elements (``HloCostAnalysis::GetDotFlops``)."""
    if not i.operands:
        return math.nan
    m = _CONTRACTING.search(i.attribute_text)
    dims = m.group(1) if m else ""
    return _dot_flops(i.operands[0].shape, i.shape, dims)


@lru_cache(maxsize=4096)
def _dot_flops(lhs: Shape, out: Shape, dims: str) -> float:
    width = 1
    for d in dims.split(","):
        if d.strip():
            if int(d) >= lhs.rank:
                return math.nan
            width *= lhs.dimensions[int(d)]
    return 2.0 * out.elements * width
