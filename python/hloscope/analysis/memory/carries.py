"""What while loops carry, and so what a remat policy actually stores.

The gradient of a ``jax.lax.scan`` with ``jax.checkpoint`` becomes two loops. Whatever the policy
saves is *stacked* by the first, one slice per step, and *read* by the second:

    forward loop    residual = dynamic-update-slice(residual, value, step)
    backward loop   value    = dynamic-slice(residual, last - step)

The stacked array, its shape and what is written into it show what is stored, whatever the policy
intended: a partitioner may stack the gathered array although the sharded one was named.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ...hlo import Instruction, Shape
from ..base.loops.trips import trip_count
from ..base.phases.phases import PHASES, phases
from ..cost.runs import Calls, Role
from .argument_roles import moves_only
from .liveness.liveness import Liveness

ROLES = ("stacked", "read by slices", "updated", "passed through", "counter")


@dataclass(frozen=True, slots=True)
class Carry:
    """One element of a loop's tuple.

    ``role``: "stacked" (written one slice at a time), "read by slices", "updated", "passed
    through" (never changed) or "counter". ``buffer`` is its row in ``Memory.liveness``.
    ``stored`` makes the values that a stacked array is filled with; ``slice_shape`` is the shape
    of one step.
    """

    index: int
    shape: Shape
    bytes: int
    role: str
    buffer: int
    stored: Instruction | None = None
    slice_shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """A while loop: its trip count (None if unknown), phase and carries, largest first."""

    instruction: Instruction
    trips: int | None
    phase: str
    carries: tuple[Carry, ...]

    @property
    def carried_bytes(self) -> int:
        """Bytes of distinct buffers that the loop carries."""
        return sum({c.buffer: c.bytes for c in self.carries}.values())


@dataclass(frozen=True, slots=True)
class Residual:
    """An array that one loop stacks and later loops read: stored between the passes.

    ``readers`` are the loops that read it. ``stored`` makes the value of each slice; its
    ``op_name`` and source line show what is kept.
    """

    writer: Loop
    readers: tuple[Loop, ...]
    shape: Shape
    slice_shape: Shape | None
    bytes: int
    buffer: int
    stored: Instruction | None

    @property
    def op_name(self) -> str:
        return self.stored.op_name if self.stored is not None else ""


def find_loops(live: Liveness) -> tuple[Loop, ...]:
    """Executed while loops in the order of the schedule."""
    module = live.module
    calls = live.values.calls
    phase = phases(module)
    bodies = {
        e.caller: e.callee for below in calls.below for e in reversed(below) if e.role is Role.BODY
    }
    out = []
    for n in live.schedule.tolist():
        loop = module.instructions[n]
        if loop.opcode == "while":
            out.append(
                Loop(
                    loop,
                    trip_count(loop),
                    PHASES[int(phase[n])],
                    _carries(live, calls, loop, bodies.get(loop.index)),
                )
            )
    return tuple(out)


def _carries(
    live: Liveness, calls: Calls, loop: Instruction, body: int | None
) -> tuple[Carry, ...]:
    module = live.module
    nodes = list(live.values.nodes(loop))
    leaves = list(loop.shape.leaves())
    written: dict[int, Instruction] = {}
    sliced: set[int] = set()
    made: set[int] = set()
    inner = _computations_inside(calls, body) if body is not None else []
    for c in inner:
        for i in module.computations[c].instructions:
            for k, v in enumerate(live.values.nodes(i)):
                b = int(live.buffer_of[v])
                if i.opcode in ("dynamic-update-slice", "scatter"):
                    written.setdefault(b, i)
                elif i.opcode == "fusion":
                    update = _fused_update(i, k)
                    if update is not None and _updates_own(i, update, b, live):
                        written.setdefault(b, update)
                    elif live.values.defines[v]:
                        made.add(b)
                elif live.values.defines[v]:
                    made.add(b)
            for k, o in enumerate(i.operands):
                if not o.shape.is_tuple and _reads_slices(i, k):
                    sliced.add(int(live.buffer_of[live.values.nodes(o)[0]]))
    out = []
    for k, (v, shape) in enumerate(zip(nodes, leaves, strict=True)):
        b = int(live.buffer_of[v])
        stored = slice_shape = None
        if b in written:
            role = "stacked"
            stored, slice_shape = _stored(written[b], live)
        elif b in made:
            role = "counter" if not shape.rank and shape.element_type[:1] in "su" else "updated"
        else:
            role = "read by slices" if b in sliced else "passed through"
        out.append(Carry(k, shape, int(live.size[b]), role, b, stored, slice_shape))
    return tuple(sorted(out, key=lambda c: (-c.bytes, c.index)))


def _computations_inside(calls: Calls, start: int) -> list[int]:
    """A loop body and all computations that execute within it."""
    out, stack = [], [start]
    while stack:
        c = stack.pop()
        if c not in out:
            out.append(c)
            stack += [e.callee for e in calls.below[c] if e.role >= Role.BODY]
    return out


def _fused_update(fusion: Instruction, leaf: int) -> Instruction | None:
    called = fusion.called_computations
    root = called[0].root if called else None
    if root is None:
        return None
    if root.opcode == "tuple":
        root = root.operands[leaf] if leaf < len(root.operands) else root
    # on CPU, values may be converted to f32 around the update
    while root.opcode in ("bitcast", "convert") and root.operands:
        root = root.operands[0]
    return root if root.opcode in ("dynamic-update-slice", "scatter") else None


def _reads_slices(i: Instruction, operand: int) -> bool:
    if i.opcode == "dynamic-slice":
        return operand == 0
    called = i.called_computations if i.opcode == "fusion" else ()
    parameters = called[0].parameters if called else ()
    if operand >= len(parameters):
        return False
    seen = [parameters[operand]]
    while seen:
        for u in seen.pop().users:
            if u.opcode == "dynamic-slice":
                return True
            if u.opcode == "bitcast":
                seen.append(u)
    return False


def _updates_own(fusion: Instruction, update: Instruction, buffer: int, live: Liveness) -> bool:
    """Whether a fused update writes into the previous contents of the buffer."""
    source = update.operands[0] if update.operands else update
    while source.opcode in ("bitcast", "convert") and source.operands:
        source = source.operands[0]
    number = source.parameter_number if source.opcode == "parameter" else None
    if number is None or number >= len(fusion.operands):
        return False
    return any(int(live.buffer_of[v]) == buffer for v in live.values.nodes(fusion.operands[number]))


_SAME_VALUE = frozenset({"bitcast", "reshape", "broadcast", "copy", "transpose", "convert"})


def _stored(update: Instruction, live: Liveness) -> tuple[Instruction | None, Shape | None]:
    """The value written, looking through moves and conversions, and the shape of one slice."""
    if len(update.operands) < 2:
        return None, None
    position = 1 if update.opcode == "dynamic-update-slice" else len(update.operands) // 2 + 1
    if position >= len(update.operands):
        return None, None
    value = update.operands[position]
    shape = value.shape
    callers = _fusion_callers(live)
    seen_carry = False
    for _ in range(64):
        if value.opcode in _SAME_VALUE and value.operands:
            value = value.operands[0]
        elif value.opcode == "parameter" and value.computation.index in callers:
            fusion = callers[value.computation.index]
            number = value.parameter_number or 0
            if number >= len(fusion.operands):
                break
            value = fusion.operands[number]
        elif value.opcode == "get-tuple-element" and value.operands[0].opcode == "parameter":
            # the loop's own state: the value from the previous step
            before = None if seen_carry else _element(value.computation.root, value)
            if before is None:
                break
            seen_carry = True
            value = before
        else:
            break
    return value, shape


_INDEX = re.compile(r"\bindex=(\d{1,6})")


def _element(whole: Instruction | None, i: Instruction) -> Instruction | None:
    """The operand of a tuple that a get-tuple-element of one like it takes."""
    m = _INDEX.search(i.attribute_text)
    if whole is None or whole.opcode != "tuple" or m is None:
        return None
    return next(islice(whole.operands, int(m[1]), None), None)


def _fusion_callers(live: Liveness) -> dict[int, Instruction]:
    out: dict[int, Instruction] = {}
    for e in live.values.calls.edges:
        if e.role is Role.FUSED:
            out.setdefault(e.callee, live.module.instructions[e.caller])
    return out


def _whole_copies(live: Liveness) -> dict[int, int]:
    """Buffer → the one of which it is only a copy or conversion."""
    out: dict[int, int] = {}
    for n in live.schedule.tolist():
        i = live.module.instructions[n]
        if len(i.operands) != 1 or i.operands[0].shape.is_tuple or not moves_only(i):
            continue
        made, given = live.values.nodes(i), live.values.nodes(i.operands[0])
        if len(made) and len(given):
            source = int(live.buffer_of[given[0]])
            target = int(live.buffer_of[made[0]])
            if source != target:
                out.setdefault(target, source)
    return out


def _stack_behind(buffer: int, origin: Mapping[int, int], writers: Container[int]) -> int | None:
    """The stack that a buffer is, or was copied from; None if no loop filled it."""
    for _ in range(8):
        if buffer in writers or buffer not in origin:
            break
        buffer = origin[buffer]
    return buffer if buffer in writers else None


def find_residuals(live: Liveness, loops: Sequence[Loop]) -> tuple[Residual, ...]:
    """Buffers stacked by one loop and only read, or passed through, by a later one; largest first.

    The later one may carry a copy or conversion of the stack.
    """
    origin = _whole_copies(live)
    position = {loop.instruction.index: k for k, loop in enumerate(loops)}
    writers: dict[int, tuple[Loop, Carry]] = {}
    readers: dict[int, list[Loop]] = defaultdict(list)
    for loop in loops:
        for c in loop.carries:
            if c.role == "stacked":
                writers.setdefault(c.buffer, (loop, c))
            elif (
                (stack := _stack_behind(c.buffer, origin, writers)) is not None
                and c.role in ("read by slices", "passed through")
                and position[writers[stack][0].instruction.index] < position[loop.instruction.index]
            ):
                readers[stack].append(loop)
    out = [
        Residual(loop, tuple(readers[b]), c.shape, c.slice_shape, c.bytes, b, c.stored)
        for b, (loop, c) in writers.items()
        if readers[b]
    ]
    return tuple(sorted(out, key=lambda r: (-r.bytes, r.buffer)))
