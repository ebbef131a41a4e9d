"""Where a value comes from: through copies, casts, slices, fusions and loops back to a name.

all-gather ← fusion(convert) ← get-tuple-element 3 of the loop ← params['w1']
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...hlo import Instruction, Module, Target, opcodes, walk
from ...hlo.walk import Position
from .table import per_module, table

# All of one array, or a part of it, with either sign, wherever it is computed or kept.
ONE_ARRAY = (
    opcodes.PART_OF_ONE | opcodes.FUSIONS | opcodes.CONTROL | {"concatenate", "negate"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueSource:
    """``name`` of an argument, or of the op that made the value; ``instruction`` is it.

    ``kind`` is "argument", "constant", "value" (an op's result) or "loop" (carried by a loop).
    """

    kind: str
    name: str
    instruction: Instruction
    parameter: int | None = None


# An operation's name begins with the function: jit(step)/jvp()/while.
_OF_OPERATION = re.compile(r"\w+\([^()]*\)/")


def given_name(parameter: Instruction) -> str:
    """The name that a parameter of ENTRY has in a dump: ``params['w1']``; "" if it has none.

    XLA:TPU sometimes replaces it by the name of a loop that the argument goes into.
    """
    name = parameter.op_name
    return "" if _OF_OPERATION.match(name) else name


def source_of(value: Instruction, target: Target) -> ValueSource:
    """Follows ``value`` back to an argument, a constant, or the op that computes it."""
    return _named(_source(value), target)


def argument_of(value: Instruction) -> Instruction | None:
    """The argument that ``source_of`` finds, or None."""
    at = _source(value).instruction
    return at if at.opcode == "parameter" and at.computation.is_entry else None


def _source(value: Instruction) -> Position:
    through = ONE_ARRAY | opcodes.RESHARDS
    at = walk.source(value, through)
    while (sent := _sent_for(at)) is not None:
        at = walk.source(sent, through)
    return at


_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')


def _rendezvous(i: Instruction) -> tuple[int, str]:
    m = _RENDEZVOUS.search(i.attribute_text)
    return i.computation.index, m[1] if m is not None else ""


def _sent_for(at: Position) -> Instruction | None:
    """What another slice sends for this receive: the same value of its own devices."""
    done = at.instruction
    if done.opcode != "recv-done" or not at.element or not done.operands:
        return None
    return _sent(done.module).get(_rendezvous(done.operands[0]))


@per_module
def _sent(module: Module) -> dict[tuple[int, str], Instruction]:
    t = table(module)
    sends = [t.instructions[n] for n in t.where("send").tolist()]
    return {_rendezvous(s): s.operands[0] for s in sends if s.operands and _rendezvous(s)[1]}


def _named(found: Position, target: Target) -> ValueSource:
    at = found.instruction
    if at.opcode == "parameter" and at.computation.is_entry:
        number = at.parameter_number
        for argument in target.arguments:
            if argument.parameter is not None and argument.parameter == number:
                return ValueSource("argument", argument.name, at, number)
        return ValueSource("argument", given_name(at) or f"%{at.name}", at, number)
    if at.opcode in opcodes.LITERALS or (
        at.opcode == "broadcast" and at.operands and at.operands[0].opcode == "constant"
    ):
        return ValueSource("constant", at.opcode, at)
    loop = walk.carrying_loop(found)
    if loop is not None:
        return ValueSource("loop", _carried(loop, found.element, target), at)
    if at.opcode == "parameter":  # without a caller, or in a reducer
        return ValueSource("value", f"%{at.name}", at)
    return ValueSource("value", short_op_name(at.op_name) or f"%{at.name}", at)


def _carried(loop: Instruction, index: tuple[int, ...], target: Target) -> str:
    """``x carried by a loop``: by its initial argument, else by what each step computes."""
    element = f" (element {index[0]})" if index else ""
    body = dict(loop.called).get("body")
    if body is None or body.root is None or len(index) != 1:
        return f"value carried by a loop{element}"
    if loop.operands:
        begun = walk.source(Position(loop.operands[0], index), ONE_ARRAY)
        if begun.instruction.opcode == "parameter" and begun.instruction.computation.is_entry:
            return f"{_named(begun, target).name} carried by a loop"
    made = walk.source(Position(body.root, index), ONE_ARRAY - opcodes.LOOPS).instruction
    name = short_op_name(made.op_name)
    if name and made.opcode not in ("parameter", "tuple"):
        return f"{name} carried by a loop"
    return f"value carried by a loop{element}"


_WRAPPERS = ("jit(", "pjit(", "jvp(", "transpose(", "vmap(", "checkpoint(", "remat(")
_NOISE = frozenset({
    "while", "body", "closed_call", "checkpoint", "rematted_computation", "remat2", "pjit",
})  # fmt: skip


def short_op_name(op_name: str) -> str:
    """``jit(step)/jvp(layer_0)/mlp/dot_general`` → ``layer_0/mlp/dot_general``."""
    parts = []
    # XLA joins the names of what it merges with ";": the first is the one that computes
    for at, part in enumerate(op_name.partition(";")[0].partition("[")[0].split("/")):
        if at == 0 and part.endswith(")") and not part.startswith(("jvp(", "transpose(")):
            continue  # the function: jit(step), xmap(step), parallelize(step)
        while part.endswith(")") and part.startswith(_WRAPPERS):
            wrapper, _, part = part[:-1].partition("(")
            if wrapper in ("jit", "pjit") and "(" not in part:
                part = ""
        if part and part not in _NOISE:
            parts.append(part)
    return "/".join(parts)
