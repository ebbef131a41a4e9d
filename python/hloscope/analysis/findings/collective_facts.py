"""What the rules about collectives share: words for one, and what it moves."""

from __future__ import annotations

from ...hlo import Instruction
from ..base.operands import callers
from ..comms.collective import Collective


def over(row: Collective) -> str:
    return f"over {row.axes_or_groups}"


def moved(row: Collective) -> str:
    return f"`{row.moves.name}`" if row.moves is not None else row.parts[0].shape


def times(row: Collective) -> str:
    n = row.most_executions if row.executions is None else row.executions
    return "" if n in (0, 1, None) else f", {row.executions_text} times a step"


SAME = frozenset({
    "get-tuple-element", "bitcast", "reshape", "convert", "copy", "transpose", "copy-start",
    "copy-done", "all-reduce-done", "optimization-barrier", "bitcast-convert", "tuple",
})  # fmt: skip


def moves_constants(row: Collective) -> bool:
    operands = row.instruction.operands
    return bool(operands) and all(_is_constant(o) for o in operands)


_OWN = ("rng", "partition-id", "replica-id", "infeed", "recv", "custom-call")


def _is_constant(value: Instruction) -> bool:
    """Whether nothing that a value is made from differs between devices or runs."""
    front, seen = [value], {value.index}
    while front:
        x = front.pop()
        if x.opcode.startswith(_OWN) or len(seen) > 100:
            return False
        if x.opcode == "parameter":
            caller = callers(x.module).get(x.computation.index)
            number = x.parameter_number
            if caller is None or caller.opcode not in ("fusion", "call") or number is None:
                return False
            ahead = caller.operands[number : number + 1]
        elif x.opcode in ("fusion", "call") and x.called_computations:
            root = x.called_computations[0].root
            ahead = (root,) if root is not None else ()
        elif x.called_computations and x.opcode not in ("reduce", "map"):
            return False
        else:
            ahead = x.operands
        for o in ahead:
            if o.index not in seen:
                seen.add(o.index)
                front.append(o)
    return True
