"""Where a value comes from: through copies, casts, slices, fusions and loops back to a name.

all-gather ← fusion(convert) ← get-tuple-element 3 of the loop ← params['w1']
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...hlo import Computation, Instruction, Module, Target
from ...hlo.barriers import BARRIERS
from ...hlo.collective_kinds import KINDS
from .table import per_module, table

_THROUGH = frozenset({
    "copy", "convert", "bitcast", "bitcast-convert", "reshape", "transpose", "copy-start",
    "copy-done", "dynamic-slice", "slice",
    "reduce-precision", "negate", "slice-start", "slice-done", *BARRIERS,
})  # fmt: skip
# XLA:TPU's own: joining the pieces of a prefetch; removing padding.
_PIECES, _CROPPED = '"ConcatBitcast"', '"ZeroCrop"'
# The same value, distributed differently.
_MOVES = tuple(k.name for k in KINDS.values() if k.reshards)
_STEPS = 200


@dataclass(frozen=True, slots=True)
class Source:
    """``name`` of an argument, or of the op that made the value; ``instruction`` is it.

    ``kind`` is "argument", "constant", "value" (an op's result) or "loop" (carried by a loop).
    """

    kind: str
    name: str
    instruction: Instruction
    parameter: int | None = None


@per_module
def callers(module: Module) -> dict[int, Instruction]:
    """Computation index → the first instruction that calls it."""
    rows, _ = table(module).caller()
    instructions = module.instructions
    return {c: instructions[r] for c, r in enumerate(rows.tolist()) if r >= 0}


def source_of(value: Instruction, target: Target) -> Source:
    """Follows ``value`` back to an argument, a constant, or the op that computes it."""
    path: list[int] = []  # tuple elements taken on the way
    at = value
    for _ in range(_STEPS):
        step = step_back(at, path)
        if step is None and at.opcode.startswith(_MOVES) and len(at.operands) == 1 and not path:
            step = at.operands[0]
        if step is None and at.opcode == "recv-done" and at.operands and path:
            step = _sent(at.module).get(_rendezvous(at.operands[0]))
            path.pop()
        if step is None:
            break
        at = step
    return _named(at, path, target)


_RENDEZVOUS = re.compile(r'_xla_host_transfer_rendezvous="([^"]*)"')


def _rendezvous(i: Instruction) -> tuple[int, str]:
    m = _RENDEZVOUS.search(i.attribute_text)
    return i.computation.index, m[1] if m is not None else ""


@per_module
def _sent(module: Module) -> dict[tuple[int, str], Instruction]:
    """What each send between slices sends; its receive gets the same value of other slices."""
    t = table(module)
    sends = [t.instructions[n] for n in t.where("send").tolist()]
    return {_rendezvous(s): s.operands[0] for s in sends if s.operands and _rendezvous(s)[1]}


def step_back(at: Instruction, path: list[int]) -> Instruction | None:
    """The value that ``at`` is a copy, cast, slice or element of; ``path`` holds tuple indices."""
    op = at.opcode
    if op == "get-tuple-element" and at.operands:
        raw = at.attribute("index") or ""
        if not raw.isdecimal():
            return None
        path.append(int(raw))
        return at.operands[0]
    if op == "tuple" and path and path[-1] < len(at.operands):
        return at.operands[path.pop()]
    if op in _THROUGH and at.operands:
        return at.operands[0]
    if op == "broadcast" and at.operands and at.shape.elements == at.operands[0].shape.elements:
        # for one element there may be nothing further, such as a constant
        return at.operands[0] if at.shape.elements > 1 else None
    if op == "custom-call" and at.operands:
        return _through_custom_call(at)
    if op == "parameter":
        return _outside(at, path)
    if op == "while" and path and at.operands:
        body = dict(at.called).get("body")
        return at.operands[0] if body is not None and _invariant(body, path[-1]) else None
    if op == "fusion":
        return _through_fusion(at, path)
    return None


def _through_custom_call(at: Instruction) -> Instruction | None:
    target = at.attribute("custom_call_target")
    if target == _CROPPED:
        return at.operands[0]
    if target != _PIECES:
        return None
    whole: Instruction | None = None
    for piece in at.operands:  # slice-done(slice-start(whole)), each another slice of it
        begun = piece.operands[0] if piece.opcode == "slice-done" and piece.operands else None
        of = begun.operands[0] if begun is not None and begun.operands else None
        if of is None or (whole is not None and of is not whole):
            return None
        whole = of
    return whole


def _outside(at: Instruction, path: list[int]) -> Instruction | None:
    """The value of a computation's parameter outside: the caller's operand."""
    caller = callers(at.module).get(at.computation.index)
    number = at.parameter_number
    if caller is None or at.computation.is_entry or number is None:
        return None
    if caller.opcode in ("fusion", "call", "call-start", "async-start"):
        return caller.operands[number] if number < len(caller.operands) else None
    if caller.opcode == "conditional":  # operands: the predicate or index, then one per branch
        branch = 1 + [c.index for c in caller.called_computations].index(at.computation.index)
        return caller.operands[branch] if branch < len(caller.operands) else None
    if caller.opcode == "while" and path and caller.operands:
        body = dict(caller.called).get("body")
        if body is not None and _invariant(body, path[-1]):
            return caller.operands[0]
    return None


def _invariant(body: Computation, element: int) -> bool:
    """Whether a loop passes this element of its tuple on unchanged."""
    root = body.root
    if root is None or root.opcode != "tuple" or element >= len(root.operands):
        return False
    at = root.operands[element]
    if at.opcode != "get-tuple-element" or (at.attribute("index") or "") != str(element):
        return False
    return bool(at.operands) and at.operands[0].opcode == "parameter"


def _through_fusion(at: Instruction, path: list[int]) -> Instruction | None:
    """The one operand that a fusion of casts, copies and slices passes on; None for others."""
    called = at.called_computations
    inside = called[0].root if called else None
    if inside is not None and inside.opcode == "tuple" and path and path[-1] < len(inside.operands):
        inside = inside.operands[path[-1]]
    for _ in range(_STEPS):
        if inside is None:
            return None
        if inside.opcode == "parameter":
            number = inside.parameter_number
            if number is None or number >= len(at.operands):
                return None
            if path and at.shape.is_tuple:
                path.pop()
            return at.operands[number]
        if inside.opcode not in _THROUGH:
            return None
        inside = inside.operands[0] if inside.operands else None
    return None


def _named(at: Instruction, path: list[int], target: Target) -> Source:
    if at.opcode == "parameter" and at.computation.is_entry:
        number = at.parameter_number
        for argument in target.arguments:
            if argument.parameter is not None and argument.parameter == number:
                return Source("argument", argument.name, at, number)
        return Source("argument", at.op_name or f"%{at.name}", at, number)
    if at.opcode in ("constant", "iota") or (
        at.opcode == "broadcast" and at.operands and at.operands[0].opcode == "constant"
    ):
        return Source("constant", at.opcode, at)
    if at.opcode in ("parameter", "while"):
        caller = at if at.opcode == "while" else callers(at.module).get(at.computation.index)
        if caller is None or caller.opcode != "while":
            return Source("value", f"%{at.name}", at)  # without a caller, or in a reducer
        return Source("loop", _carried(caller, path, target), at)
    return Source("value", short_op_name(at.op_name) or f"%{at.name}", at)


def _carried(loop: Instruction, path: list[int], target: Target) -> str:
    """``x carried by a loop``: by its initial argument, else by what each step computes."""
    element = f" (element {path[-1]})" if path else ""
    body = dict(loop.called).get("body")
    made = body.root if body is not None else None
    if made is None or not path or len(path) > 1:
        return f"value carried by a loop{element}"
    begun: Instruction | None = loop.operands[0] if loop.operands else None
    steps = list(path)
    for _ in range(_STEPS):
        back = step_back(begun, steps) if begun is not None else None
        if back is None:
            break
        begun = back
    if begun is not None and begun.opcode == "parameter" and begun.computation.is_entry:
        return f"{_named(begun, steps, target).name} carried by a loop"
    if made.opcode == "tuple" and path[0] < len(made.operands):
        at, steps = made.operands[path[0]], []
        for _ in range(_STEPS):
            back = step_back(at, steps)
            if back is None or back.opcode == "parameter":
                break
            at = back
        name = short_op_name(at.op_name)
        if name and at.opcode not in ("parameter", "get-tuple-element"):
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
