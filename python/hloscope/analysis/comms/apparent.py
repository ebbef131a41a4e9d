"""Why a collective exists, as far as the partitioned HLO itself shows.

The reason for a sharding is in the program before partitioning. A dump without it still shows
what a sum adds up and what a gathered array is used for; only that is claimed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, islice

from ...hlo import Instruction, opcodes, walk
from ...hlo.collective_kinds import KINDS, split
from ..base.lines.frames import own_line
from ..base.lines.op_name import split_components
from .collective import Collective
from .limits import APPARENT_POSITIONS

# Sums and scalings of a value are still about the same array.
_THROUGH = opcodes.MOVES | {"add", "multiply"}
_PRODUCT_CALL = re.compile(r"gemm|matmul|cublas|triton_dot", re.I)
# Between slices: what waits for a transfer does not compute with it.
_TRANSFERS = frozenset(["send", "send-done", "recv", "recv-done"])


def apparent(row: Collective) -> str:
    """A sentence; "" if the HLO shows nothing."""
    i = row.instruction
    over = row.axes or f"groups of {row.group_size} devices"
    known = KINDS.get(row.kind)
    if known is None:
        return ""
    if known.reduces:
        # Of several arrays only the largest is followed, which most of the bytes are of.
        largest = max(i.operands, key=lambda o: o.shape.byte_size, default=None)
        summed = (largest,) if row.is_combined and largest is not None else i.operands
        made = _made_by(summed)
        if made is None:
            return ""
        of = f"of {row.moved}, the largest" if row.is_combined else "it"
        if made.opcode != "reduce":
            return (
                f"{of} adds up partial products of {_called(made)}: the dimension that it"
                f" contracts is split over {over}"
            )
        return (
            f"{of} adds up partial sums of {_called(made)}: the dimension that it reduces is"
            f" split over {over}"
        )
    if not known.reshards:
        return ""
    user = _used_by(i)
    if user is None:
        return ""
    if known.payload == "result":
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


def _made_by(values: Iterable[Instruction]) -> Instruction | None:
    """The product or reduction whose partial results are added up."""
    through = _THROUGH | opcodes.FUSIONS
    positions = chain.from_iterable(walk.back(o, through, inside_fusions=True) for o in values)
    for p in islice(positions, APPARENT_POSITIONS):
        i = p.instruction
        if i.opcode in opcodes.PRODUCTS or i.opcode == "reduce" or _is_product(i):
            return i
    return None


def _used_by(start: Instruction) -> Instruction | None:
    """The nearest instruction that computes with the result."""
    collective = split(start.opcode)
    own = opcodes.with_halves(collective[0]) if collective is not None else _TRANSFERS
    for use in islice(walk.uses(start, _THROUGH | own), APPARENT_POSITIONS):
        if use.instruction.opcode not in opcodes.CONTROL:
            return use.instruction
    return None
