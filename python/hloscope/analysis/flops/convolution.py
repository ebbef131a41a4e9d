"""FLOPs of a convolution from its window and dimension labels.

Only positions where the kernel meets actual input count: padding and the holes of base
dilation do not (``HloCostAnalysis::GetConvolutionFlops``). Worked example: one spatial
dimension, input 4, kernel 3, padding 1_1:

    output 0   ·[x0 x1]   2 valid      output 2  [x1 x2 x3]  3 valid
    output 1  [x0 x1 x2]  3 valid      output 3  [x2 x3]·    2 valid      → 10 of 12

The same code handles TPU's matmuls in the form of convolutions (``dim_labels=bf_io->bf``, no
window) and batched ones, whose batch is a spatial dimension with a window as wide as the array.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from ...hlo import Shape

_LABELS = re.compile(r"\bdim_labels=([\da-z?]+)_([\da-z?]+)->([\da-z?]+)")
_WINDOW = re.compile(r"\bwindow=\{([^}]*)\}")
# Positions of a kernel that are looked at one by one.
_MOST_POSITIONS = 1 << 20
_GROUPS = re.compile(r"\b(feature|batch)_group_count=(\d+)")


@lru_cache(maxsize=4096)
def convolution_flops(lhs: Shape, rhs: Shape, out: Shape, attributes: str) -> float:
    """2 · multiply-adds of input ``lhs`` with kernel ``rhs``; NaN if the labels are missing."""
    m = _LABELS.search(attributes)
    if m is None or any(len(t) != s.rank for t, s in zip(m.groups(), (lhs, rhs, out), strict=True)):
        return math.nan
    lhs_labels, rhs_labels, out_labels = m.groups()
    groups = {k: int(v) for k, v in _GROUPS.findall(attributes)}
    window = _window(attributes)
    try:
        batch = lhs.dimensions[lhs_labels.index("b")]
        features = lhs.dimensions[lhs_labels.index("f")]
        out_features = out.dimensions[out_labels.index("f")]
    except ValueError:
        return math.nan
    fma = (features // max(groups.get("feature", 1), 1)) * out_features
    fma *= batch // max(groups.get("batch", 1), 1)
    for d in sorted(c for c in out_labels if c.isdecimal()):
        if d not in lhs_labels or d not in rhs_labels:
            return math.nan
        k = int(d)
        if rhs.dimensions[rhs_labels.index(d)] > _MOST_POSITIONS:
            return math.nan
        fma *= valid_positions(
            lhs.dimensions[lhs_labels.index(d)],
            rhs.dimensions[rhs_labels.index(d)],
            out.dimensions[out_labels.index(d)],
            stride=_entry(window, "stride", k, 1),
            low=_pad_low(window, k),
            base_dilation=_entry(window, "lhs_dilate", k, 1),
            window_dilation=_entry(window, "rhs_dilate", k, 1),
        )
    return 2.0 * fma


def valid_positions(
    input_size: int,
    kernel: int,
    output: int,
    *,
    stride: int = 1,
    low: int = 0,
    base_dilation: int = 1,
    window_dilation: int = 1,
) -> int:
    """Number of (kernel, output) pairs of one dimension that fall on an actual input element.

    ``low`` is the low padding, in dilated elements, and may be negative. Kernel position k
    of output o reads dilated element o·stride - low + k·window_dilation; for each k the
    outputs that hit are counted in closed form, without iterating over all pairs.
    """
    if input_size <= 0 or kernel <= 0 or output <= 0:
        return 0
    k = np.arange(kernel, dtype=np.int64)
    offset = k * window_dilation - low  # element read by output 0
    last = (input_size - 1) * base_dilation
    # outputs o with 0 ≤ offset + o·stride ≤ last
    first_o = np.maximum(0, -(offset // stride))  # ceil(-offset / stride)
    last_o = np.minimum(output - 1, (last - offset) // stride)
    if base_dilation == 1:
        return int(np.maximum(0, last_o - first_o + 1).sum())
    # … and offset + o·stride ≡ 0 (mod base_dilation): every `period`-th output
    g = math.gcd(stride, base_dilation)
    period = base_dilation // g
    solvable = offset % g == 0
    inverse = pow(stride // g, -1, period) if period > 1 else 0
    residue = (-(offset // g) * inverse) % period
    first_hit = first_o + (residue - first_o) % period
    hits = (last_o - first_hit) // period + 1
    return int(np.where(solvable & (last_o >= first_hit), hits, 0).sum())


def _window(attributes: str) -> dict[str, list[str]]:
    m = _WINDOW.search(attributes)
    if m is None:
        return {}
    return {k: v.split("x") for k, _, v in (p.partition("=") for p in m.group(1).split())}


def _entry(window: dict[str, list[str]], key: str, d: int, default: int) -> int:
    values = window.get(key)
    return int(values[d]) if values and d < len(values) else default


def _pad_low(window: dict[str, list[str]], d: int) -> int:
    values = window.get("pad")
    return int(values[d].partition("_")[0]) if values and d < len(values) else 0
