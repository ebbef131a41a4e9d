"""FLOPs of custom calls: library matmuls and convolutions, and what kernel authors declare.

XLA counts none of these; targets that are not listed here stay unknown.
"""

from __future__ import annotations

import math
from typing import Any

from ...hlo import Instruction, Shape

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


# Of these, those that also move no data: they state a sharding, layout or fact, allocate a buffer
# without writing it, or join slices that were written side by side.
_ACCESS_NOTHING = frozenset(
    "Sharding SPMDFullToShardShape SPMDShardToFullShape LayoutConstraint AllocateBuffer "
    "CreateBuffer Pin Unpin AssumeGatherIndicesInBound AssumeGatherIndicesInBounds ConcatBitcast "
    "InspectSharding BarrierStart BarrierDone inter_host_barrier".split()
)


def accesses_nothing(target: str) -> bool:
    """Whether the call only marks, allocates or renames, as all Shardy's do (xla.sdy.…)."""
    return target in _ACCESS_NOTHING or target.startswith("xla.sdy.")


def is_free_call(target: str) -> bool:
    """Whether the call only marks, places or allocates, as all Shardy's do (xla.sdy.…)."""
    return target in FREE_CALLS or target.startswith(("xla.sdy.", "AsyncCollective"))


CONVOLUTION_CALLS = {
    # target → shapes of the forward convolution's input, filter and output:
    # operand number, or -1 for the call's own first result
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}


def is_matmul_call(target: str) -> bool:
    return target.startswith("__cublas$") or target in (
        "__onednn$matmul",
        "__onednn$matmul_reorder",
        "__triton_gemm",
        "__cutlass$gemm",
    )


def custom_matmul_flops(i: Instruction) -> float:
    """FLOPs of a cuBLAS, cuBLASLt or oneDNN matmul: 2 · m · n · k · batch.

    The contracted size is read from ``dot_dimension_numbers`` in the backend config; without it,
    it follows from the shapes of both operands and the result.
    """
    lhs, rhs = operand(i, 0), operand(i, 1)
    out = next(i.shape.leaves(), None)
    if lhs is None or rhs is None or out is None:
        return math.nan
    numbers = _find_key(i.backend_config_json, "dot_dimension_numbers")
    if isinstance(numbers, dict):
        dims = numbers.get("lhs_contracting_dimensions", [])
        if isinstance(dims, list) and all(str(d).isdecimal() and int(d) < lhs.rank for d in dims):
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
    """What the kernel's author declared (Pallas ``cost_estimate``); None if nothing."""
    if "cost_estimate" not in i.attribute_text:
        return None
    found = _find_key(i.backend_config_json, "cost_estimate")
    if not isinstance(found, dict):
        return None
    try:
        return {k: float(found.get(k, 0)) for k in ("flops", "transcendentals", "bytes_accessed")}
    except (TypeError, ValueError):
        return None


def kernel_dtype(i: Instruction) -> str:
    """The fastest type in which a kernel may multiply, judging by its operands; "" if none.

    It may round floats to bf16 inside, and to 8 bits if it has operands of 8 bits or fewer.
    """
    types = {s.element_type for o in i.operands for s in o.shape.leaves()}
    floats = {t for t in types if t.startswith(("f", "bf", "c"))}
    narrow = {t for t in types if t.startswith("f8") or t in ("s8", "u8", "s4", "u4")}
    if narrow:
        return "f8" if floats else "s8"
    return "bf16" if floats else ""


def operand(i: Instruction, number: int) -> Shape | None:
    """Shape of one operand, or its first leaf if it is a tuple; None if missing."""
    if number >= len(i.operands):
        return None
    return next(i.operands[number].shape.leaves(), None)


_WINDOWED = ("window", "dim_labels", "feature_group_count", "batch_group_count")


def window_attributes(i: Instruction) -> str:
    """Window, dimension labels and group counts as printed, wherever they stand in the text."""
    named = ((name, i.attribute(name)) for name in _WINDOWED)
    return ", ".join(f"{name}={value}" for name, value in named if value is not None)
