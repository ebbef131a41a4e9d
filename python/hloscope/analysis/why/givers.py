"""What a value is computed from, one step back: out of loops and branches, and into them.

get-tuple-element 1 of a branch's parameter ─▶ what the conditional hands to that branch
get-tuple-element 1 of a loop ─▶ what it starts from, and what each step makes of it
"""

from __future__ import annotations

from ...hlo import Instruction
from ..base.operands import callers

_CALLS = ("call", "async-start")


def givers(at: Instruction) -> list[Instruction]:
    """The values that ``at`` is computed from; of what a loop carries, where it starts and goes on.

    Of an ordinary op its operands. [] for an argument of the program.
    """
    if at.opcode == "get-tuple-element" and at.operands:
        raw = at.attribute("index") or ""
        return _elements(at.operands[0], int(raw) if raw.isdecimal() else 0, set())
    if at.opcode in ("parameter", "while", "conditional", *_CALLS):
        return _ends(at)
    return list(at.operands)


def _elements(whole: Instruction, index: int, seen: set[int]) -> list[Instruction]:
    """What element ``index`` of a tuple is, for each way that it may have come about."""
    if whole.index in seen:
        return []
    seen.add(whole.index)
    if whole.opcode == "tuple":
        return [whole.operands[index]] if index < len(whole.operands) else []
    if whole.opcode in ("opt-barrier", "optimization-barrier"):
        ends = list(whole.operands)
    elif whole.opcode in ("parameter", "while", "conditional", *_CALLS):
        ends = _ends(whole)
    else:
        return list(whole.operands)
    return [e for end in ends for e in _elements(end, index, seen)]


def _ends(at: Instruction) -> list[Instruction]:
    """Where a parameter, or the result of a loop, branches or a call, comes from."""
    if at.opcode == "parameter":
        return _handed(at)
    roots = [c.root for role, c in at.called if role != "condition" and c.root is not None]
    return [*at.operands[:1], *roots] if at.opcode == "while" else roots


def _handed(parameter: Instruction) -> list[Instruction]:
    """What the caller of a computation gives it."""
    inside = parameter.computation
    caller = None if inside.is_entry else callers(parameter.module).get(inside.index)
    number = parameter.parameter_number
    if caller is None or number is None:
        return []
    if caller.opcode == "while":
        return _ends(caller)
    if caller.opcode == "conditional":  # operands: the predicate or index, then one a branch
        number = 1 + [c.index for c in caller.called_computations].index(inside.index)
    elif caller.opcode not in (*_CALLS, "fusion"):
        return []
    return [caller.operands[number]] if number < len(caller.operands) else []
