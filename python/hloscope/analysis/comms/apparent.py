"""Why a collective exists, as far as the partitioned HLO itself shows.

The reason for a sharding is in the program before partitioning. A dump without it still shows
what a sum adds up and what a gathered array is used for; only that is claimed.
"""

from __future__ import annotations

import re

from ...hlo import Instruction
from ...hlo.barriers import BARRIERS
from ...hlo.collective_kinds import KINDS
from ..base.lines.frames import own_line
from ..base.lines.op_name import split_components
from .collective import Collective

_THROUGH = frozenset({
    "convert", "bitcast", "copy", "reshape", "transpose", "get-tuple-element", "add", "multiply",
    "bitcast-convert", *BARRIERS, "pad", "slice", "concatenate",
})  # fmt: skip
_PRODUCT_CALL = re.compile(r"gemm|matmul|cublas|triton_dot", re.I)
_PRODUCTS = frozenset({"dot", "convolution", "ragged-dot"})


def apparent(row: Collective) -> str:
    """A sentence; "" if the HLO shows nothing."""
    i = row.instruction
    over = row.axes or f"groups of {row.group_size} devices"
    if row.kind in ("all-reduce", "reduce-scatter"):
        made = _made_by(i)
        if made is None:
            return ""
        if made.opcode != "reduce":
            return (
                f"it adds up partial products of {_called(made)}: the dimension that it contracts"
                f" is split over {over}"
            )
        return (
            f"it adds up partial sums of {_called(made)}: the dimension that it reduces is split"
            f" over {over}"
        )
    if row.kind not in KINDS or not KINDS[row.kind].reshards:
        return ""
    user = _used_by(i)
    if user is None:
        return ""
    if row.kind == "all-gather":
        return (
            f"{_called(user)} needs the array whole along the dimension that is split over {over}"
        )
    return f"{_called(user)} needs the array split differently"


def _is_product(i: Instruction) -> bool:
    return i.opcode == "custom-call" and bool(_PRODUCT_CALL.search(i.custom_call_target or ""))


def _called(i: Instruction) -> str:
    """``%dot.3 (attention/dot_general, line 8)``."""
    parts = split_components(i.op_name)[-2:] if i.op_name else []
    said = ["/".join(parts)] if parts else []
    frame = own_line(i.frames)
    if frame is not None:
        said.append(f"line {frame.line}")
    return f"%{i.name}" + (f" ({', '.join(said)})" if said else "")


def _made_by(start: Instruction) -> Instruction | None:
    """The product or reduction whose partial results are added up."""
    front, seen = list(start.operands), set()
    for _ in range(40):
        if not front:
            return None
        x = front.pop(0)
        if x.index in seen:
            continue
        seen.add(x.index)
        if x.opcode in _PRODUCTS or x.opcode == "reduce" or _is_product(x):
            return x
        if x.opcode == "fusion" and x.called_computations and x.called_computations[0].root:
            front.append(x.called_computations[0].root)
        elif x.opcode == "tuple" or x.opcode in _THROUGH:
            front += x.operands
    return None


def _used_by(start: Instruction) -> Instruction | None:
    front, seen = [start], set()
    for _ in range(40):
        if not front:
            return None
        x = front.pop(0)
        for u in x.users:
            if u.index in seen:
                continue
            seen.add(u.index)
            if u.opcode in _THROUGH or u.opcode.endswith(("-done", "-start")):
                front.append(u)
            elif u.opcode not in ("tuple", "while"):
                return u
    return None
