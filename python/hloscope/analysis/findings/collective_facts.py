"""What the rules about collectives share: wording, and what a collective moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...hlo import Instruction, Module
from ...hlo.barriers import BARRIERS
from ..base.operands import callers
from ..base.table import per_module
from ..comms.collective import Collective


def over(row: Collective) -> str:
    return f"over {row.axes_or_groups}"


def moved(row: Collective) -> str:
    return f"`{row.moves.name}`" if row.moves is not None else row.parts[0].shape


def sent(rows: Iterable[Collective]) -> int | None:
    """Sum of the known wire bytes of the rows; None if none are known."""
    known = [wire for row in rows if (wire := row.total_wire_bytes) is not None]
    return sum(known) if known else None


def times(row: Collective) -> str:
    n = row.most_executions if row.executions is None else row.executions
    return "" if n in (0, 1, None) else f", {row.executions_text} times a step"


SAME = frozenset({
    "get-tuple-element", "bitcast", "reshape", "convert", "copy", "transpose", "copy-start",
    "copy-done", "all-reduce-done", "bitcast-convert", "tuple", *BARRIERS,
})  # fmt: skip


def moves_constants(row: Collective) -> bool:
    """Whether everything that a row moves is constant.

    The first permute of a windowed sum moves its zeros, the others what was added to them.
    """
    here = row.instruction.computation
    beside = [p.instruction for p in row.parts if p.instruction.computation is here]
    senders = {row.instruction, *beside}
    operands = [o for i in senders for o in i.operands]
    return bool(operands) and all(_is_constant(o) for o in operands)


_OWN = ("rng", "partition-id", "replica-id", "infeed", "recv", "custom-call")
_CALLING = (
    "while", "conditional", "async", "all-reduce", "reduce-scatter", "reduce-window", "scatter",
    "select-and-scatter", "sort",
)  # fmt: skip


@per_module
def _known(module: Module) -> dict[int, bool]:
    """What is known about values so far: a module may have 40,000 collectives in a chain."""
    return {}


def _is_constant(value: Instruction) -> bool:
    """Whether nothing that a value is computed from differs between devices or runs."""
    known = _known(value.module)
    stack = [value]
    while stack:
        x = stack[-1]
        if x.index not in known:
            ahead = _made_from(x)
            differs = ahead is None or any(known.get(o.index) is False for o in ahead)
            unknown = [o for o in ahead or () if o.index not in known]
            if unknown and not differs:
                stack.append(unknown[0])
                continue
            known[x.index] = not differs
        stack.pop()
    return known[value.index]


def _made_from(x: Instruction) -> Sequence[Instruction] | None:
    """What a value depends on; None if it may differ regardless."""
    if x.opcode.startswith(_OWN):
        return None
    if x.opcode == "parameter":
        caller = callers(x.module).get(x.computation.index)
        number = x.parameter_number
        if caller is None or caller.opcode not in ("fusion", "call") or number is None:
            return None
        return caller.operands[number : number + 1]
    if x.opcode in ("fusion", "call") and x.called_computations:
        root = x.called_computations[0].root
        return (root,) if root is not None else ()
    return None if x.opcode.startswith(_CALLING) else x.operands
