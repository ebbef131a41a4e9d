"""FLOPs of opcodes with their own rules: reducers applied many times, sorts, FFTs, ….

As ``HloCostAnalysis`` counts them (xla/service/hlo_cost_analysis.cc), but for FFTs.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ...hlo import Instruction, Shape
from ...hlo.collective_kinds import KINDS
from .calls import window_attributes

_SIZES = re.compile(r"\bsize=([\dx]+)")
_PADS = re.compile(r"\bpad=([-\d_x]+)")


def _first(shape: Shape) -> Shape:
    return next(shape.leaves())


def _window_sizes(i: Instruction) -> list[int]:
    m = _SIZES.search(window_attributes(i))
    return [int(s) for s in m.group(1).split("x")] if m else []


def _reduce_window_times(i: Instruction, role: str) -> float:
    """(window - 1) per output element; less for a reduce and broadcast written as a window."""
    sizes = _window_sizes(i)
    out = _first(i.shape)
    window = math.prod(sizes)
    times = (window - 1) * out.elements
    m = _PADS.search(window_attributes(i))
    pads = [tuple(map(int, p.split("_"))) for p in m.group(1).split("x")] if m else []
    reduced = [d for d, s in enumerate(sizes) if s != 1]
    padded = [d for d, p in enumerate(pads) if p != (0, 0)]
    if len(reduced) == 1 and padded == reduced and not i.shape.is_tuple:
        d = reduced[0]
        low, high = pads[d]
        # a reduce followed by a broadcast, written as one window
        if low == high and sizes[d] == 2 * low + 1 and low == out.dimensions[d] - 1:
            span = out.dimensions[d]
            times = out.elements // span + span - 1
    return float(times)


def _select_and_scatter_times(i: Instruction, role: str) -> float:
    source = i.operands[1].shape.elements
    return float(source * (math.prod(_window_sizes(i)) - 1) if role == "select" else source)


# opcode → how often the computation in `role` is applied
REDUCERS: dict[str, Any] = {
    "reduce": lambda i, role: i.operands[0].shape.elements - _first(i.shape).elements,
    "reduce-window": _reduce_window_times,
    "select-and-scatter": _select_and_scatter_times,
    "map": lambda i, role: _first(i.shape).elements,
    # the updates are the last third of the operands
    "scatter": lambda i, role: i.operands[len(i.operands) // 2 + 1].shape.elements,
}


def _sort(i: Instruction) -> tuple[float, float]:
    n = i.operands[0].shape.elements
    return float(n * math.ceil(math.log2(n))) if n > 1 else 0.0, 0.0


def _fft(i: Instruction) -> tuple[float, float]:
    """5 N log₂ N, half of that for real numbers (Frigo and Johnson, "The Design and Implementation
    of FFTW3", 2005), one dimension after another. XLA multiplies the logarithms of several
    dimensions: 38 times as much for 64 × 64 × 64."""
    m = re.search(r"\bfft_length=\{([\d,\s]*)\}", i.attribute_text)
    lengths = [int(d) for d in (m.group(1) if m else "").split(",") if d]
    logs = sum(math.log2(d) for d in lengths if d > 1)
    given, made = i.operands[0].shape, _first(i.shape)
    real = next((s for s in (given, made) if s.element_type[:1] == "f"), None)
    each = 2.5 if real is not None else 5.0
    return math.floor(each * logs * (real or given).elements), 0.0


def _combined(i: Instruction) -> tuple[float, float]:
    # every output element counts as the sum of two, as in XLA
    return float(sum(s.elements for s in i.shape.leaves())), 0.0


def _random(i: Instruction) -> tuple[float, float]:
    return 0.0, float(sum(s.elements for s in i.shape.leaves()))


def _triangular_solve(i: Instruction) -> tuple[float, float]:
    return 2.0 * i.operands[0].shape.dimensions[-1] * i.operands[1].shape.elements, 0.0


def _cholesky(i: Instruction) -> tuple[float, float]:
    a = i.operands[0].shape
    return float(a.dimensions[-1] * a.elements // 3), 0.0


def _top_k(i: Instruction) -> tuple[float, float]:
    return _sort(i)


# opcode → (FLOPs, transcendentals) of one execution
RULES: dict[str, Any] = {
    "sort": _sort,
    "topk": _top_k,
    "fft": _fft,
    **{
        opcode: _combined
        for kind in KINDS.values()
        if kind.reduces
        for opcode in kind.opcodes
        if not opcode.endswith("-done")
    },
    "rng": _random,
    "rng-bit-generator": _random,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
}
