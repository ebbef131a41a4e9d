"""How often a loop body runs, and with it how often every computation runs.

This is hard because only some dumps state it: CPU and GPU text carries ``known_trip_count`` in
the while's backend config, TPU text does not. Then it is derived from the loop itself, for
loops that count:

    init:       tuple(…, constant(2), …)                element k starts at 2
    body:       tuple(…, add(get-tuple-element(k), constant(1)), …)      and moves by 1
    condition:  compare(get-tuple-element(k), constant(9)), direction=LT       → 7 trips

Anything else is unknown (None), never a guess.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....hlo import Instruction, Module, Shape, opcodes, walk
from ....hlo.limits import MOST_RUNS
from ....hlo.walk import Position
from ..table import per_module, table

MAX_DEPTH = 200  # arithmetic on the way from a value to what it is made of
# Leave a number as it is: any part of an array in which it is repeated, too.
_SAME_NUMBER = opcodes.REPEATED | opcodes.SLICES
_WRAPPED = opcodes.BUNDLES | opcodes.CALLS | opcodes.FUSIONS
_NEGATED = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_RANGES = {
    f"{sign}{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1)
    if sign == "s"
    else (0, (1 << bits) - 1)
    for sign in "su"
    for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True, slots=True)
class _Affine:
    """``element + offset`` of the loop-carried tuple, or a plain number (element None)."""

    element: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class _Compare:
    direction: str
    left: _Affine
    right: _Affine


class _Evaluator:
    """Values of scalars of one computation as affine functions of its tuple parameter."""

    def __init__(self) -> None:
        self.known: dict[Position, object] = {}
        self.depth = 0  # of what is being evaluated

    def value(self, at: Position) -> object:
        end = walk.source(at, _keeps_number, inside_fusions=True)
        if end not in self.known:
            self.known[end] = None  # cycles (malformed dumps) end here
            self.depth += 1
            self.known[end] = self._value(end) if self.depth <= MAX_DEPTH else None
            self.depth -= 1
        return self.known[end]

    def _value(self, end: Position) -> object:
        at, element, calls = end
        if at.shape.is_array and at.shape.elements > 1:  # neither a counter nor part of one
            return None
        if at.opcode == "constant":
            return _constant(at)
        if at.opcode == "parameter" and len(element) == 1:
            return _Affine(element[0], 0)
        operands = [Position(o, (), calls) for o in at.operands]
        if at.opcode in _BINARY and len(operands) == 2:
            return _binary(at, *map(self.value, operands))
        if at.opcode == "not" and len(operands) == 1:
            inside = self.value(operands[0])
            if isinstance(inside, _Compare):
                return _Compare(_NEGATED[inside.direction], inside.left, inside.right)
        return None


def _keeps_number(i: Instruction) -> bool:
    """Whether what is one number in its operand is the same number in its result."""
    opcode = walk.acts_as(i)
    if opcode in _WRAPPED:
        return True
    if opcode not in _SAME_NUMBER or not i.operands:
        return False
    before, after = i.operands[0].shape, i.shape
    if before.is_tuple or after.is_tuple or before.element_type == after.element_type:
        return True
    return before.elements == after.elements and _is_integer(before) and _is_integer(after)


_BINARY = ("add", "subtract", "multiply", "compare", "and")
_ONE = _Affine(None, 1)


def _binary(at: Instruction, left: object, right: object) -> object:
    if at.opcode == "and" and at.shape.element_type != "pred":
        return None
    if at.opcode in ("and", "multiply"):  # with true, or with 1: the other side
        return right if left == _ONE else left if right == _ONE else None
    if not (isinstance(left, _Affine) and isinstance(right, _Affine)):
        return None
    if at.opcode == "compare":
        direction = at.attribute("direction") or ""
        return _Compare(direction, left, right) if direction in _NEGATED else None
    if at.opcode == "add":
        if left.element is not None and right.element is not None:
            return None
        element = left.element if left.element is not None else right.element
        return _Affine(element, left.offset + right.offset)
    return _Affine(left.element, left.offset - right.offset) if right.element is None else None


def _constant(at: Instruction) -> _Affine | None:
    text = (at.literal or "").strip("{ }")
    if not at.shape.is_array:
        return None
    if at.shape.element_type == "pred":
        return {"true": _Affine(None, 1), "false": _Affine(None, 0)}.get(text)
    if at.shape.element_type not in _RANGES or len(text) > 20:
        return None
    try:
        return _Affine(None, int(text))
    except ValueError:
        return None


def _is_integer(shape: Shape) -> bool:
    return shape.element_type in _RANGES


def trip_count(loop: Instruction) -> int | None:
    """How often the body of a ``while`` runs; None when it is unknown.

    From ``known_trip_count`` in the backend config where the compiler wrote it, else from
    the induction variable's start, step and bound.
    """
    if loop.opcode != "while":
        raise ValueError(f"{loop!r} is not a while")
    known = _trips(loop.module)
    if loop.index not in known:
        known[loop.index] = _trip_count(loop)
    return known[loop.index]


@per_module
def _trips(module: Module) -> dict[int, int | None]:
    """Trip counts found so far, by loop."""
    return {}


def _trip_count(loop: Instruction) -> int | None:
    if loop.backend_config and "known_trip_count" in loop.backend_config:
        known = loop.backend_config_json.get("known_trip_count")
        n = known.get("n") if isinstance(known, Mapping) else known
        if isinstance(n, int) or (isinstance(n, str) and n.isdecimal() and len(n) < 19):
            return int(n) if int(n) <= MOST_RUNS else None
    return _counted(loop)


def _counted(loop: Instruction) -> int | None:
    roles = dict(loop.called)
    body, condition = roles.get("body"), roles.get("condition")
    if not (body and condition and body.root and condition.root and loop.operands):
        return None
    return _until(loop, body.root, _Evaluator().value(Position(condition.root)))


def most_trips(loop: Instruction) -> int | None:
    """How often a loop of unknown trip count may run at most; None where nothing bounds it.

    One of the conditions that must all hold counts: ``(step < 128) & any(alive)``.
    """
    roles = dict(loop.called)
    body, condition = roles.get("body"), roles.get("condition")
    if not (body and condition and body.root and condition.root and loop.operands):
        return None
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | {"and"}
    bounds = [
        _until(loop, body.root, _Evaluator().value(at))
        for at in walk.back(condition.root, through, inside_fusions=True, reach=_CONDITIONS)
        if at.instruction.opcode == "compare" and at.instruction.shape.elements == 1
    ]
    return min((n for n in bounds if n is not None), default=None)


# Steps through which the conditions of a loop are looked for.
_CONDITIONS = 40


def _until(loop: Instruction, root: Instruction, test: object) -> int | None:
    """How often a loop's body runs until ``test`` does not hold; None where that is unknown."""
    if not isinstance(test, _Compare):
        return None
    begin = loop.operands[0]
    after, before = _Evaluator(), _Evaluator()

    def start_and_step(value: _Affine) -> tuple[int, int] | None:
        k = value.element
        if k is None:
            return value.offset, 0
        moved, initial = after.value(Position(root, (k,))), before.value(Position(begin, (k,)))
        if not (isinstance(moved, _Affine) and moved.element == k):
            return None
        if not (isinstance(initial, _Affine) and initial.element is None):
            return None
        return initial.offset + value.offset, moved.offset

    left, right = start_and_step(test.left), start_and_step(test.right)
    if left is None or right is None:
        return None
    if left[1] and right[1]:
        return None
    direction = test.direction
    if right[1]:
        left, right, direction = right, left, _MIRRORED[direction]
    moving = test.left if left[1] or test.left.element is not None else test.right
    kind = _element_type(loop, moving.element)
    return count_steps(left[0], left[1], right[0], direction, kind)


def _element_type(loop: Instruction, element: int | None) -> str:
    shapes = loop.shape.tuple_shapes
    return shapes[element].element_type if element is not None and element < len(shapes) else ""


def count_steps(start: int, step: int, bound: int, direction: str, kind: str) -> int | None:
    """Smallest n ≥ 0 for which ``start + n·step  direction  bound`` is false.

    None when it never is, or when the variable would leave the range of element type
    ``kind`` ("s32", …) on the way.
    """
    lowest, highest = _RANGES.get(kind, _RANGES["s64"])
    if step > highest // 2 and lowest == 0:  # an unsigned count down, printed wrapped
        step -= highest + 1
    gap = bound - start
    if direction in ("GT", "GE"):
        gap, step, direction = -gap, -step, {"GT": "LT", "GE": "LE"}[direction]
        sign = -1
    else:
        sign = 1
    if direction == "EQ":
        if gap:
            return 0
        return 1 if step else None
    if direction == "NE":
        if gap == 0:
            return 0
        n = gap // step if step and gap % step == 0 and gap // step > 0 else None
    else:
        if direction == "LE":
            gap += 1
        if gap <= 0:
            return 0
        n = -(-gap // step) if step > 0 else None
    if n is None or not lowest <= start + sign * n * step <= highest:
        return None
    return n


def runs_at_least_once(loop: Instruction) -> bool:
    """Whether the condition of a ``while`` is known to hold of what the loop begins with.

    A loop of unknown trip count, of which that is not known, may run 0 times.
    """
    condition = dict(loop.called).get("condition")
    if condition is None or condition.root is None or not loop.operands:
        return False
    return _Beginning(loop).number(Position(condition.root)) == 1


class _Beginning:
    """Numbers of a loop's condition before its first trip; None where one is not constant."""

    def __init__(self, loop: Instruction) -> None:
        self.loop = loop
        self.condition = dict(loop.called)["condition"]
        self.known: dict[Position, float | None] = {}
        self.depth = 0

    def number(self, at: Position) -> float | None:
        end = walk.source(at, _keeps_number, inside_fusions=True)
        if end not in self.known:
            self.known[end] = None  # cycles (malformed dumps) end here
            self.depth += 1
            self.known[end] = self._number(end) if self.depth <= MAX_DEPTH else None
            self.depth -= 1
        return self.known[end]

    def _number(self, end: Position) -> float | None:
        at, element, calls = end
        if at.opcode == "parameter" and at.computation is self.condition:
            return self.number(Position(self.loop.operands[0], element))
        if not at.shape.is_array or at.shape.elements > 1:
            return None
        if at.opcode == "constant":
            return _written(at)
        given = [self.number(Position(o, (), calls)) for o in at.operands]
        if at.opcode in ("and", "or") and at.shape.element_type == "pred" and len(given) == 2:
            decides = 0 if at.opcode == "and" else 1
            return decides if decides in given else None if None in given else 1 - decides
        numbers = [n for n in given if n is not None]
        if len(numbers) < len(given):
            return None
        if at.opcode == "not" and at.shape.element_type == "pred" and len(numbers) == 1:
            return 1 - numbers[0]
        if at.opcode == "compare" and len(numbers) == 2:
            test = _TESTS.get(at.attribute("direction") or "")
            return None if test is None else int(test(*numbers))
        return None


_TESTS: Mapping[str, Callable[[float, float], bool]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}


def _written(at: Instruction) -> float | None:
    """The number that a scalar constant is; 1 for true."""
    text = (at.literal or "").strip("{ }")
    if text in ("true", "false"):
        return int(text == "true")
    try:
        return int(text) if at.shape.element_type in _RANGES else float(text)
    except ValueError:
        return None


@per_module
def may_not_run(module: Module) -> tuple[bool, ...]:
    """Whether a loop of unknown trip count around a computation may run 0 times; by its index.

    What is counted once in such a loop is neither the least nor the most of it.
    """
    t = table(module)
    below: dict[int, list[tuple[int, bool]]] = {}
    for row, callee, role in zip(
        t.called.rows.tolist(), t.called.values.tolist(), t.called_roles, strict=True
    ):
        caller = t.instructions[row]
        is_body = caller.opcode == "while" and role == "body"
        unsure = is_body and trip_count(caller) is None and not runs_at_least_once(caller)
        below.setdefault(caller.computation.index, []).append((callee, unsure))
    found = [False] * len(module.computations)
    waiting = [callee for calls in below.values() for callee, unsure in calls if unsure]
    while waiting:
        at = waiting.pop()
        if not found[at]:
            found[at] = True
            waiting += [callee for callee, _ in below.get(at, ())]
    return tuple(found)


_REPEATS = ("async-update", "async-done")  # repeat what async-start calls


@per_module
def multiplicity(module: Module) -> tuple[int | None, ...]:
    """How often each computation runs in one execution of ENTRY, by ``Computation.index``.

    Loop bodies count their trips (conditions one more). A reducer or comparator counts as
    often as the instruction that applies it, not once per element. None: a loop whose trip
    count is unknown, a branch of a conditional, or, without ENTRY, anything. A computation
    that nothing calls counts 0.
    """
    return counted(module, None)


def counted(
    module: Module, branch: int | None, unknown: int | None = None
) -> tuple[int | None, ...]:
    """``multiplicity`` with a branch of a conditional taken ``branch`` times; None: unknown.

    Loops of unknown trip count, their conditions too, run ``unknown`` times.
    """
    t = table(module)
    calls: list[list[tuple[int, int | None]]] = [[] for _ in module.computations]
    trips: dict[int, int | None] = {}
    called = t.called
    for row, callee, role in zip(
        called.rows.tolist(), called.values.tolist(), t.called_roles, strict=True
    ):
        caller = t.instructions[row]
        times: int | None = 1
        if caller.opcode in _REPEATS:
            continue
        if caller.opcode == "conditional":
            times = branch
        elif role in ("body", "condition") and caller.opcode == "while":
            if row not in trips:
                trips[row] = trip_count(caller)
            times = trips[row]
            if times is None:
                times = unknown
            elif role == "condition":
                times += 1
        calls[callee].append((caller.computation.index, times))
    if module.entry is None:
        return (None,) * len(module.computations)
    counts: dict[int, int | None] = {module.entry.index: 1}
    for start in range(len(module.computations)):
        _resolve(start, calls, counts)
    return tuple(counts[at] for at in range(len(module.computations)))


def _resolve(
    start: int, calls: list[list[tuple[int, int | None]]], counts: dict[int, int | None]
) -> None:
    """Counts of ``start`` and of all that call it, depth first without Python recursion."""
    stack, visiting = [start], set[int]()
    while stack:
        at = stack[-1]
        if at not in counts and at not in visiting:
            visiting.add(at)
            waiting = [c for c, _ in calls[at] if c not in counts and c not in visiting]
            if waiting:
                stack.extend(dict.fromkeys(waiting))
                continue
        stack.pop()
        if at in counts:
            continue
        total: int | None = 0
        for caller, times in calls[at]:
            count = counts.get(caller)  # a computation that calls itself stays unknown
            if count == 0 or times == 0:
                continue
            if total is None or count is None or times is None:
                total = None
            else:
                total += count * times
        # more often than a machine can: the product of counts that are wrong
        counts[at] = total if total is None or total <= MOST_RUNS else None
