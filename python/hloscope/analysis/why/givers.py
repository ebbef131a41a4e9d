"""What a value is computed from, one step back, into and out of loops and branches.

get-tuple-element 1 of a branch's parameter ─▶ what the conditional passes to that branch
get-tuple-element 1 of a loop ─▶ its initial value, and the value that each step returns
"""

from __future__ import annotations

from ...hlo import Instruction
from ...hlo.barriers import BARRIERS
from ..base.operands import callers

_CALLS = ("call", "call-start", "async-start")
_CARRIES = ("parameter", "while", "conditional", *_CALLS)


def givers(at: Instruction) -> list[Instruction]:
    """Values that ``at`` is computed from; for a loop-carried value, its initial and next value.

    For an ordinary op, its operands; [] for an argument of the program.
    """
    if at.opcode == "get-tuple-element" and at.operands:
        raw = at.attribute("index") or ""
        return _elements(at.operands[0], int(raw) if raw.isdecimal() else 0)
    if at.opcode in _CARRIES:
        return _ends(at)
    return list(at.operands)


def _elements(tuples: Instruction, index: int) -> list[Instruction]:
    """Possible values of element ``index`` of a tuple."""
    out: list[Instruction] = []
    seen, left = {tuples.index}, [tuples]
    while left:  # depth first, in order
        whole = left.pop()
        if whole.opcode == "tuple":
            out += whole.operands[index : index + 1]
            continue
        if whole.opcode in BARRIERS:
            ends = list(whole.operands)
        elif whole.opcode in _CARRIES:
            ends = _ends(whole)
        else:
            out += whole.operands
            continue
        fresh = [e for e in dict.fromkeys(ends) if e.index not in seen]
        seen.update(e.index for e in fresh)
        left += reversed(fresh)
    return out


def _ends(at: Instruction) -> list[Instruction]:
    """Where a parameter, or the result of a loop, conditional or call, comes from."""
    if at.opcode == "parameter":
        return _handed(at)
    roots = [c.root for role, c in at.called if role != "condition" and c.root is not None]
    return [*at.operands[:1], *roots] if at.opcode == "while" else roots


def _handed(parameter: Instruction) -> list[Instruction]:
    """What the caller of a computation passes for this parameter."""
    inside = parameter.computation
    caller = None if inside.is_entry else callers(parameter.module).get(inside.index)
    number = parameter.parameter_number
    if caller is None or number is None:
        return []
    if caller.opcode == "while":
        return _ends(caller)
    if caller.opcode == "conditional":  # operands: the predicate or index, then one per branch
        branches = enumerate(caller.called_computations, 1)
        numbers = [k for k, c in branches if c.index == inside.index]
    else:
        numbers = [number] if caller.opcode in (*_CALLS, "fusion") else []
    return [caller.operands[k] for k in numbers if k < len(caller.operands)]
