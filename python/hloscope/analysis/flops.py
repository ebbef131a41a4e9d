"""FLOPs of every instruction, counted as XLA's ``HloCostAnalysis`` counts them.

One pass gives columns over ``module.instructions``. A value is what one execution of the
instruction itself does, without what its called computations do; ``cost.py`` adds those
and multiplies by loops. NaN is unknown: a custom call nobody described, an opcode that is
not in the tables below, a dump cut off before the operands.

    dot           2 · output elements · contracted elements
    convolution   2 · valid (kernel, output) positions · input features / groups · output features
                  · batch / batch groups; padding and holes of dilation are not counted
    elementwise   1 per output element; exp, log, tanh, … counted apart as transcendentals
    reduce        reducer's work · (input elements - output elements)

Complex and integer arithmetic count as one each, as in XLA (xla/service/hlo_cost_analysis.cc).
What XLA leaves out, matmuls in custom calls, is counted here from their backend configs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..hlo import Computation, Instruction, Module, Shape
from .async_opcodes import wrapped
from .flops_convolution import convolution_flops

Floats = npt.NDArray[np.float64]

TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log "
    "log-plus-one logistic power rsqrt sine sinh sqrt tan tanh".split()
)
ELEMENTWISE = frozenset(
    "abs add and bitcast-convert ceil clamp compare complex convert count-leading-zeros divide "
    "floor imag is-finite maximum minimum multiply negate not or popcnt real reduce-precision "
    "remainder round-nearest-afz round-nearest-even select shift-left shift-right-arithmetic "
    "shift-right-logical sign stochastic-convert subtract xor multiply-add".split()
)
# No arithmetic of their own; containers (fusion, while, call, …) get theirs in cost.py.
FREE = frozenset(
    "parameter constant iota tuple get-tuple-element bitcast copy copy-start copy-done reshape "
    "dynamic-reshape transpose broadcast slice concatenate pad reverse gather dynamic-slice "
    "dynamic-update-slice after-all add-dependency all-gather all-gather-start all-gather-done "
    "all-reduce-done all-to-all ragged-all-to-all collective-permute collective-permute-start "
    "collective-permute-done collective-broadcast partition-id replica-id infeed outfeed send "
    "send-done recv recv-done opt-barrier domain get-dimension-size set-dimension-size "
    "rng-get-and-update-state async-start async-update async-done fusion while call conditional "
    "stochastic-round".split()
)
# Custom calls that only mark, place or allocate.
FREE_CALLS = frozenset(
    "Sharding SPMDFullToShardShape SPMDShardToFullShape LayoutConstraint AllocateBuffer "
    "CreateBuffer Pin Unpin MoveToHost MoveToDevice annotate_device_placement "
    "AssumeGatherIndicesInBound AssumeGatherIndicesInBounds "
    "GatherScatterIndicesBitpacked ConcatBitcast GlobalToLocal "
    "LocalToGlobal xla.sdy.GlobalToLocalShape xla.sdy.LocalToGlobalShape ResizeDynamic "
    "X64Combine X64SplitLow X64SplitHigh SliceToDynamic PadToStatic "
    "InspectSharding Finalize BarrierStart BarrierDone inter_host_barrier".split()
)
CONVOLUTION_CALLS = {
    # target → which shapes are the forward convolution's input, filter and output:
    # operand number, or -1 for the call's own first result
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}


@dataclass(frozen=True)
class Work:
    """Columns over ``module.instructions``; NaN is unknown.

    ``matmul_flops`` is the part of ``flops`` done by dots, convolutions and custom-call
    matmuls. ``kind`` is "dot", "convolution", "gemm" or "" and ``dtype`` the operand type the
    arithmetic runs in, for matmuls with XLA's precision appended: "f32", "bf16", "f32:highest".
    """

    flops: Floats
    transcendentals: Floats
    matmul_flops: Floats
    kind: tuple[str, ...]
    dtype: tuple[str, ...]


def count(module: Module) -> Work:
    """FLOPs, transcendentals and matmul FLOPs of each instruction, for one execution of it."""
    return _Counter(module).work()


class _Counter:
    def __init__(self, module: Module) -> None:
        self.module = module
        n = len(module.instructions)
        self.flops = np.zeros(n)
        self.transcendentals = np.zeros(n)
        self.matmul = np.zeros(n)
        self.kind = [""] * n
        self.dtype = [""] * n
        self._done = False
        self._computations: dict[int, tuple[float, float]] = {}

    def work(self) -> Work:
        plain: list[int] = []
        plain_elements: list[int] = []
        heavy: list[int] = []
        heavy_elements: list[int] = []
        later: list[Instruction] = []
        elements: dict[int, int] = {}  # by shape identity: shapes are interned
        dtype = self.dtype
        for i in self.module.instructions:
            opcode = i.opcode
            if opcode in FREE:
                continue
            shape = i.shape
            if opcode in ELEMENTWISE:
                size = elements.get(id(shape))
                if size is None:
                    size = elements[id(shape)] = shape.elements
                plain.append(i.index)
                plain_elements.append(size)
                dtype[i.index] = shape.element_type
            elif opcode in TRANSCENDENTAL:
                size = elements.get(id(shape))
                if size is None:
                    size = elements[id(shape)] = shape.elements
                heavy.append(i.index)
                heavy_elements.append(size)
                dtype[i.index] = shape.element_type
            elif opcode in _REDUCERS:
                later.append(i)
            else:
                self._special(i)
        self.flops[plain] = plain_elements
        self.transcendentals[heavy] = heavy_elements
        for i in later:
            self._reducer(i)
        return Work(
            self.flops, self.transcendentals, self.matmul, tuple(self.kind), tuple(self.dtype)
        )

    def _matmul(self, i: Instruction, kind: str, flops: float, operand: Shape | None) -> None:
        self.flops[i.index] = self.matmul[i.index] = flops
        self.kind[i.index] = kind
        dtype = operand.element_type if operand is not None else ""
        precision = _PRECISION.search(i.attribute_text) if dtype == "f32" else None
        self.dtype[i.index] = f"{dtype}:{precision.group(1)}" if precision else dtype

    def _special(self, i: Instruction) -> None:
        """Everything that is neither free nor one per element."""
        operands = i.operands
        opcode = i.opcode
        if opcode == "dot":
            lhs = operands[0].shape if operands else None
            self._matmul(i, "dot", dot_flops(i), lhs)
        elif opcode == "convolution":
            flops = math.nan
            if len(operands) >= 2:
                flops = convolution_flops(
                    operands[0].shape, operands[1].shape, i.shape, _head(i.attribute_text)
                )
            self._matmul(i, "convolution", flops, operands[0].shape if operands else None)
        elif opcode == "custom-call":
            self._custom_call(i)
        else:
            rule = _RULES.get(opcode)
            inside = None if rule else wrapped(opcode)
            if inside and (inside[1] != "start" or inside[0] in FREE):
                return
            try:
                flops, heavy = rule(i) if rule else (math.nan, 0.0)
            except (IndexError, ValueError):  # operands or attributes lost in a cut dump
                flops, heavy = math.nan, 0.0
            self.flops[i.index] = flops
            self.transcendentals[i.index] = heavy
            self.dtype[i.index] = next((s.element_type for s in i.shape.leaves()), "")

    def _custom_call(self, i: Instruction) -> None:
        target = i.custom_call_target or ""
        if target in FREE_CALLS or target.startswith("AsyncCollective"):
            return
        roles = CONVOLUTION_CALLS.get(target)
        if roles:
            results = list(i.shape.leaves())
            shapes = [
                results[0] if r < 0 and results else _operand(i, r) if r >= 0 else None
                for r in roles
            ]
            flops = math.nan
            if all(shapes):
                flops = convolution_flops(*shapes, _head(i.attribute_text))
            self._matmul(i, "convolution", flops, _operand(i, 0))
            return
        if _is_matmul_call(target):
            self._matmul(i, "gemm", custom_matmul_flops(i), _operand(i, 0))
            return
        estimate = author_estimate(i)
        if estimate is None:
            self.flops[i.index] = math.nan
        else:
            self.flops[i.index] = estimate["flops"]
            self.transcendentals[i.index] = estimate["transcendentals"]
        self.dtype[i.index] = next((s.element_type for s in i.shape.leaves()), "")

    def _reducer(self, i: Instruction) -> None:
        """Instructions that apply a small computation many times."""
        self.dtype[i.index] = next((s.element_type for s in i.shape.leaves()), "")
        called = i.called
        try:
            times = [_REDUCERS[i.opcode](i, role) for role, _ in called]
        except (IndexError, ValueError):
            times = []
        if not times:
            self.flops[i.index] = math.nan
            return
        for (_, computation), n in zip(called, times, strict=True):
            flops, heavy = self._applied(computation, set())
            self.flops[i.index] += flops * n
            self.transcendentals[i.index] += heavy * n

    def _applied(self, computation: Computation, seen: set[int]) -> tuple[float, float]:
        """Work of one application of a reducer; nested reducers are resolved."""
        found = self._computations.get(computation.index)
        if found is not None:
            return found
        if computation.index in seen:
            return math.nan, 0.0
        seen = seen | {computation.index}
        flops = heavy = 0.0
        for i in computation.instructions:
            if i.opcode in _REDUCERS:
                for role, inner in i.called:
                    f, t = self._applied(inner, seen)
                    n = _REDUCERS[i.opcode](i, role)
                    flops, heavy = flops + f * n, heavy + t * n
            elif i.opcode in ("call", "fusion"):
                for inner in i.called_computations:
                    f, t = self._applied(inner, seen)
                    flops, heavy = flops + f, heavy + t
            else:
                flops += self.flops[i.index]
                heavy += self.transcendentals[i.index]
        self._computations[computation.index] = (flops, heavy)
        return flops, heavy


def _operand(i: Instruction, number: int) -> Shape | None:
    if number >= len(i.operands):
        return None
    return next(i.operands[number].shape.leaves(), None)


def _head(attribute_text: str) -> str:
    """The attributes before metadata: what says which dimensions are which."""
    return attribute_text.partition("metadata=")[0]


_PRECISION = re.compile(r"\boperand_precision=\{(highest|high)\b")
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


def _is_matmul_call(target: str) -> bool:
    return target.startswith("__cublas$") or target in (
        "__onednn$matmul",
        "__onednn$matmul_reorder",
        "__triton_gemm",
        "__cutlass$gemm",
    )


def custom_matmul_flops(i: Instruction) -> float:
    """FLOPs of a cuBLAS, cuBLASLt or oneDNN matmul: 2 · m · n · k · batch.

    The contracted size is read from ``dot_dimension_numbers`` in the backend config; where
    there is none it follows from the shapes of both operands and the result.
    """
    lhs, rhs = _operand(i, 0), _operand(i, 1)
    out = next(i.shape.leaves(), None)
    if lhs is None or rhs is None or out is None:
        return math.nan
    numbers = _find_key(i.backend_config_json, "dot_dimension_numbers")
    if isinstance(numbers, dict):
        dims = numbers.get("lhs_contracting_dimensions", [])
        if isinstance(dims, list) and all(str(d).isdigit() and int(d) < lhs.rank for d in dims):
            return 2.0 * out.elements * math.prod(lhs.dimensions[int(d)] for d in dims)
    if out.rank < 2 or not out.elements:
        return math.nan
    # lhs is batch·m·k and out batch·m·n whichever way either is transposed, so with
    # batch = the leading dimensions:  k² = lhs · rhs / (out · batch)
    batch = math.prod(out.dimensions[:-2])
    squared = lhs.elements * rhs.elements / (out.elements * batch)
    if rhs.rank < out.rank:  # the right operand is shared by the whole batch
        squared = lhs.elements * rhs.elements / out.elements
    k = math.isqrt(round(squared))
    return 2.0 * out.elements * k if k * k == squared else math.nan


def _find_key(value: Any, key: str) -> Any:
    """First value of ``key`` at any depth of a JSON object."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        for v in value.values():
            found = _find_key(v, key)
            if found is not None:
                return found
    return None


def author_estimate(i: Instruction) -> dict[str, float] | None:
    """What the kernel's author declared (Pallas ``cost_estimate``), or None."""
    if "cost_estimate" not in i.attribute_text:
        return None
    found = _find_key(i.backend_config_json, "cost_estimate")
    if not isinstance(found, dict):
        return None
    try:
        return {k: float(found.get(k, 0)) for k in ("flops", "transcendentals", "bytes_accessed")}
    except (TypeError, ValueError):
        return None


_SIZES = re.compile(r"\bsize=([\dx]+)")
_PADS = re.compile(r"\bpad=([-\d_x]+)")


def _first(shape: Shape) -> Shape:
    return next(shape.leaves())


def _window_sizes(i: Instruction) -> list[int]:
    m = _SIZES.search(_head(i.attribute_text))
    return [int(s) for s in m.group(1).split("x")] if m else []


def _reduce_window_times(i: Instruction, role: str) -> float:
    """(window - 1) per output element; a running sum over a whole dimension counts once."""
    sizes = _window_sizes(i)
    out = _first(i.shape)
    window = math.prod(sizes)
    times = (window - 1) * out.elements
    m = _PADS.search(_head(i.attribute_text))
    pads = [tuple(map(int, p.split("_"))) for p in m.group(1).split("x")] if m else []
    reduced = [d for d, s in enumerate(sizes) if s != 1]
    padded = [d for d, p in enumerate(pads) if p != (0, 0)]
    if len(reduced) == 1 and padded == reduced and not i.shape.is_tuple:
        d = reduced[0]
        low, high = pads[d]
        # a reduce followed by a broadcast, written as one window
        if low == high and sizes[d] == 2 * low + 1 and low == out.dimensions[d] - 1:
            span = out.dimensions[d]
            times = out.elements // max(span, 1) + span - 1
    return float(times)


def _select_and_scatter_times(i: Instruction, role: str) -> float:
    source = i.operands[1].shape.elements
    return float(source * (math.prod(_window_sizes(i)) - 1) if role == "select" else source)


# opcode → how often the computation in `role` is applied
_REDUCERS: dict[str, Any] = {
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
    m = re.search(r"\bfft_length=\{([\d,\s]*)\}", i.attribute_text)
    logs = math.prod(int(d).bit_length() - 1 for d in (m.group(1) if m else "").split(",") if d)
    return 8.0 * logs * i.operands[0].shape.elements, 0.0


def _all_reduce(i: Instruction) -> tuple[float, float]:
    # every output element taken as the sum of two, as XLA does
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
_RULES: dict[str, Any] = {
    "sort": _sort,
    "topk": _top_k,
    "fft": _fft,
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "reduce-scatter": _all_reduce,
    "rng": _random,
    "rng-bit-generator": _random,
    "triangular-solve": _triangular_solve,
    "cholesky": _cholesky,
}
