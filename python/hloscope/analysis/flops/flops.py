"""FLOPs of every instruction, counted as XLA's ``HloCostAnalysis`` counts them.

One pass gives columns over ``module.instructions``. A value is for one execution of the
instruction itself, without called computations; ``cost`` adds those and multiplies by trip
counts. NaN means unknown: a custom call without a known cost, an opcode that is not in the
tables beside this file, a dump cut off before the operands.

    dot           2 · output elements · contracted elements
    convolution   2 · valid (kernel, output) positions · input features / groups · output features
                  · batch / batch groups; padding and holes of dilation are not counted
    elementwise   1 per output element; exp, log, tanh, … are counted separately as transcendentals
    reduce        reducer's work · (input elements - output elements)

Complex and integer operations count as one each, as in XLA (xla/service/hlo_cost_analysis.cc).
Matmuls in custom calls, which XLA leaves out, are counted from their backend configs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...hlo import Computation, Instruction, Module, Shape
from ...hlo.collective_kinds import KINDS
from ...hlo.opcodes import is_top_k
from ..base.collectives.async_opcodes import produced, wrapped
from ..base.table import per_module
from .calls import (
    CONVOLUTION_CALLS,
    author_estimate,
    custom_matmul_flops,
    is_free_call,
    is_matmul_call,
    kernel_dtype,
    operand,
    window_attributes,
)
from .convolution import convolution_flops
from .dot import dot_flops
from .elementwise import ELEMENTWISE, FREE, TRANSCENDENTAL
from .rules import REDUCERS, RULES

_PRECISION = re.compile(r"\boperand_precision=\{(highest|high)\b")
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """Columns over ``module.instructions``; NaN means unknown.

    ``matmul_flops`` is the part of ``flops`` done by dots, convolutions and custom-call
    matmuls; ``matrix_flops`` adds FLOPs that kernel authors declare: whether these are matmuls is
    unknown, so a lower bound of time assumes it. ``kind`` is "dot", "convolution", "gemm" or ""
    and ``dtype`` the operand type of the arithmetic, for matmuls with XLA's precision appended:
    "f32", "bf16", "f32:highest".
    """

    flops: Floats
    transcendentals: Floats
    matmul_flops: Floats
    matrix_flops: Floats
    kind: tuple[str, ...]
    dtype: tuple[str, ...]


def _multiplied(i: Instruction) -> Shape | None:
    """The operand in whose type a product is computed: a mask or indices become floats first."""
    shapes = [o.shape for o in i.operands[:2]]
    floats = [s for s in shapes if s.element_type[:1] in ("f", "b", "c")]
    return next(iter(floats or shapes), None)


@per_module
def count_work(module: Module) -> Work:
    """Count the work of one execution of each instruction, without called computations."""
    return _FlopCounter(module).work()


class _FlopCounter:
    def __init__(self, module: Module) -> None:
        self.module = module
        n = len(module.instructions)
        self.flops = np.zeros(n)
        self.transcendentals = np.zeros(n)
        self.matmul = np.zeros(n)
        self.matrix = np.zeros(n)
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
        elements: dict[int, int] = {}  # by identity of the shape: shapes are interned
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
            elif opcode in REDUCERS:
                later.append(i)
            else:
                self._special(i)
        self.flops[plain] = plain_elements
        self.transcendentals[heavy] = heavy_elements
        for i in later:
            self._reducer(i)
        return Work(
            self.flops, self.transcendentals, self.matmul, self.matrix,
            tuple(self.kind), tuple(self.dtype),
        )  # fmt: skip

    def _matmul(self, i: Instruction, kind: str, flops: float, operand: Shape | None) -> None:
        self.flops[i.index] = self.matmul[i.index] = self.matrix[i.index] = flops
        self.kind[i.index] = kind
        dtype = operand.element_type if operand is not None else ""
        precision = _PRECISION.search(i.attribute_text) if dtype == "f32" else None
        self.dtype[i.index] = f"{dtype}:{precision.group(1)}" if precision else dtype

    def _special(self, i: Instruction) -> None:
        """Count an opcode that is neither free nor elementwise."""
        operands = i.operands
        opcode = i.opcode
        if opcode == "dot":
            self._matmul(i, "dot", dot_flops(i), _multiplied(i))
        elif opcode == "convolution":
            flops = math.nan
            if len(operands) >= 2:
                flops = convolution_flops(
                    operands[0].shape, operands[1].shape, i.shape, window_attributes(i)
                )
            self._matmul(i, "convolution", flops, _multiplied(i))
        elif opcode == "custom-call":
            self._custom_call(i)
        else:
            rule = RULES.get(opcode)
            inside = None if rule else wrapped(opcode)
            if inside:
                if inside[1] == "start" and inside[0] not in FREE:
                    self._started(i, inside[0])
                return
            try:
                flops, heavy = rule(i) if rule else (math.nan, 0.0)
            except (IndexError, ValueError):  # operands or attributes lost in a cut dump
                flops, heavy = math.nan, 0.0
            self.flops[i.index] = flops
            self.transcendentals[i.index] = heavy
            self.dtype[i.index] = next((s.element_type for s in i.shape.leaves()), "")

    def _started(self, i: Instruction, opcode: str) -> None:
        """Count ``add-start`` and the like: the work of ``opcode`` for the final result."""
        leaves = list(produced(i).leaves())
        elements = float(sum(s.elements for s in leaves))
        kind = KINDS.get(opcode)
        if opcode in TRANSCENDENTAL:
            self.transcendentals[i.index] = elements
        elif opcode in ELEMENTWISE or (kind is not None and kind.reduces):
            self.flops[i.index] = elements
        else:
            self.flops[i.index] = math.nan
        self.dtype[i.index] = next((s.element_type for s in leaves), "")

    def _custom_call(self, i: Instruction) -> None:
        target = i.custom_call_target or ""
        if is_free_call(target):
            return
        if is_top_k(i.opcode, target):
            self.flops[i.index] = RULES["topk"](i)[0] if i.operands else math.nan
            self.dtype[i.index] = next((s.element_type for s in i.shape.leaves()), "")
            return
        roles = CONVOLUTION_CALLS.get(target)
        if roles:
            results = list(i.shape.leaves())
            shapes = [
                results[0] if r < 0 and results else operand(i, r) if r >= 0 else None
                for r in roles
            ]
            flops = math.nan
            if all(shapes):
                flops = convolution_flops(*shapes, window_attributes(i))
            self._matmul(i, "convolution", flops, operand(i, 0))
            return
        if is_matmul_call(target):
            self._matmul(i, "gemm", custom_matmul_flops(i), operand(i, 0))
            return
        estimate = author_estimate(i)
        if estimate is None:
            self.flops[i.index] = math.nan
        else:
            self.flops[i.index] = estimate["flops"]
            self.transcendentals[i.index] = estimate["transcendentals"]
            fastest = kernel_dtype(i)
            if fastest:
                self.matrix[i.index] = estimate["flops"]
                self.dtype[i.index] = fastest
                return
        self.dtype[i.index] = next((s.element_type for s in i.shape.leaves()), "")

    def _reducer(self, i: Instruction) -> None:
        """Count an instruction that applies a small computation many times."""
        self.dtype[i.index] = next((s.element_type for s in i.shape.leaves()), "")
        called = i.called
        try:
            times = [REDUCERS[i.opcode](i, role) for role, _ in called]
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
            if i.opcode in REDUCERS:
                for role, inner in i.called:
                    f, t = self._applied(inner, seen)
                    n = REDUCERS[i.opcode](i, role)
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
