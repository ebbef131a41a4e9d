"""What while loops carry, and so what a remat policy actually stores.

The gradient of a ``jax.lax.scan`` with ``jax.checkpoint`` becomes two loops. Whatever the policy
saves is *stacked* by the first, one slice per step, and *read* by the second:

    forward loop    residual = dynamic-update-slice(residual, value, step)
    backward loop   value    = dynamic-slice(residual, last - step)

The stacked array, its shape and what is written into it show what is stored, whatever the policy
intended: a partitioner may stack the gathered array although the sharded one was named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...hlo import Instruction, Shape, opcodes, walk
from ..base.loops.trips import trip_count
from ..base.phases.names import phase_names
from ..base.phases.phases import phases
from ..cost.runs import CallGraph, Role
from ..text.results import Row
from .argument_roles import moves_only
from .liveness.liveness import Liveness

ROLES = ("stacked", "read by slices", "updated", "passed through", "counter")


@dataclass(frozen=True, slots=True, repr=False)
class Carry(Row):
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


@dataclass(frozen=True, slots=True, repr=False)
class Residual(Row):
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
    def is_for_backward(self) -> bool:
        """Whether it belongs to a derivative, and not to a simulation or a decode step."""
        return "jvp(" in self.op_name or any(loop.phase == "backward" for loop in self.readers)

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
    scheduled = map(module.instructions.__getitem__, live.schedule.tolist())
    loops = [i for i in scheduled if i.opcode == "while"]
    if not loops:
        return ()
    uses = _Uses(live, calls)
    out = []
    for i in loops:
        carries = _carries(live, uses, i, bodies.get(i.index))
        out.append(Loop(i, trip_count(i), phase_names(module)[int(phase[i.index])], carries))
    return tuple(out)


class _Uses:
    """What executed computations do with buffers: each is looked at once, however deep it is."""

    def __init__(self, live: Liveness, calls: CallGraph) -> None:
        self.calls = calls
        self.written: dict[int, dict[int, Instruction]] = defaultdict(dict)
        self.made: dict[int, set[int]] = defaultdict(set)
        self.sliced: dict[int, set[int]] = defaultdict(set)
        # the computations that execute within each, as bits of a number
        self._inside: dict[int, int] = {}
        self._bit: dict[int, int] = {}
        in_loops = _in_loops(calls)
        for c in calls.order:
            if calls.executed[c]:
                self._count(c)
                if c in in_loops:
                    self._look_at(live, c)

    def _count(self, c: int) -> None:
        self._bit[c] = inside = 1 << len(self._bit)
        for e in self.calls.below[c]:
            if e.role >= Role.BODY:
                inside |= self._inside.get(e.callee, 0)
        self._inside[c] = inside

    def _look_at(self, live: Liveness, c: int) -> None:
        for i in live.module.computations[c].instructions:
            for k, v in enumerate(live.values.nodes(i)):
                b = int(live.buffer_of[v])
                if i.opcode in ("dynamic-update-slice", "scatter"):
                    self.written[b].setdefault(c, i)
                    continue
                update = _fused_update(i, k) if i.opcode == "fusion" else None
                if update is not None and _updates_own(i, update, b, live):
                    self.written[b].setdefault(c, update)
                elif live.values.defines[v]:
                    self.made[b].add(c)
            for k, o in enumerate(i.operands):
                if not o.shape.is_tuple and _reads_slices(i, k):
                    self.sliced[int(live.buffer_of[live.values.nodes(o)[0]])].add(c)

    def within(self, body: int | None, computations: Iterable[int]) -> list[int]:
        """Those of the computations that execute within a loop's body."""
        inside = self._inside.get(body, 0) if body is not None else 0
        return [c for c in computations if self._bit[c] & inside]

    def writer(self, body: int | None, buffer: int) -> Instruction | None:
        """What updates a part of the buffer within the body, the outermost first."""
        some = self.written.get(buffer)
        found = self.within(body, some) if some else []
        if len(found) > 1 and body is not None:
            found = [c for c in _computations_inside(self.calls, body) if c in found]
        return some[found[0]] if some and found else None


def _carries(live: Liveness, uses: _Uses, loop: Instruction, body: int | None) -> tuple[Carry, ...]:
    out = []
    nodes, leaves = live.values.nodes(loop), loop.shape.leaves()
    for k, (v, shape) in enumerate(zip(nodes, leaves, strict=True)):
        b = int(live.buffer_of[v])
        stored = slice_shape = None
        update = uses.writer(body, b)
        if update is not None:
            role = "stacked"
            stored, slice_shape = _stored(update)
        elif uses.within(body, uses.made.get(b, ())):
            role = "counter" if not shape.rank and shape.element_type[:1] in "su" else "updated"
        else:
            sliced = uses.within(body, uses.sliced.get(b, ()))
            role = "read by slices" if sliced else "passed through"
        out.append(Carry(k, shape, int(live.size[b]), role, b, stored, slice_shape))
    return tuple(sorted(out, key=lambda c: (-c.bytes, c.index)))


def _in_loops(calls: CallGraph) -> set[int]:
    """The computations that execute in the trips of some loop."""
    out: set[int] = set()
    for c in reversed(calls.order):
        for e in calls.below[c]:
            if e.role is Role.BODY or (c in out and e.role >= Role.BODY):
                out.add(e.callee)
    return out


def _computations_inside(calls: CallGraph, start: int) -> list[int]:
    """A loop body and all computations that execute within it."""
    out: dict[int, None] = {}
    stack = [start]
    while stack:
        c = stack.pop()
        if c not in out:
            out[c] = None
            stack += [e.callee for e in calls.below[c] if e.role >= Role.BODY]
    return list(out)


def _fused_update(fusion: Instruction, leaf: int) -> Instruction | None:
    called = fusion.called_computations
    root = called[0].root if called else None
    if root is None:
        return None
    if root.opcode == "tuple":
        root = root.operands[leaf] if leaf < len(root.operands) else root
    # on CPU, values may be converted to f32 around the update
    made = walk.source(root, opcodes.SAME_NUMBERS).instruction
    return made if made.opcode in ("dynamic-update-slice", "scatter") else None


def _reads_slices(i: Instruction, operand: int) -> bool:
    if i.opcode == "dynamic-slice":
        return operand == 0
    called = i.called_computations if i.opcode == "fusion" else ()
    if not called or all(j.opcode != "dynamic-slice" for j in called[0].instructions):
        return False
    parameters = called[0].parameters
    if operand >= len(parameters):
        return False
    uses = walk.uses(parameters[operand], opcodes.SAME_ORDER)
    return any(u.instruction.opcode == "dynamic-slice" and u.operand == 0 for u in uses)


def _updates_own(fusion: Instruction, update: Instruction, buffer: int, live: Liveness) -> bool:
    """Whether a fused update writes into the previous contents of the buffer."""
    updated = update.operands[0] if update.operands else update
    source = walk.source(updated, opcodes.SAME_NUMBERS).instruction
    number = source.parameter_number if source.opcode == "parameter" else None
    if number is None or number >= len(fusion.operands):
        return False
    return any(int(live.buffer_of[v]) == buffer for v in live.values.nodes(fusion.operands[number]))


def _stored(update: Instruction) -> tuple[Instruction | None, Shape | None]:
    """The value written, looking through moves and conversions, and the shape of one slice.

    A value of the loop's own state is followed to the trip before, once.
    """
    if len(update.operands) < 2:
        return None, None
    position = 1 if update.opcode == "dynamic-update-slice" else len(update.operands) // 2 + 1
    if position >= len(update.operands):
        return None, None
    value = update.operands[position]
    made, state = _maker(walk.Position(value))
    root = state.instruction.computation.root if state is not None else None
    if state is not None and root is not None and root.opcode == "tuple":
        made = _maker(walk.Position(root, state.element))[0] or made
    return made, value.shape


# A value rounded on purpose is the one that is kept.
_WRITTEN_AS = (opcodes.REPEATED | opcodes.FUSIONS) - opcodes.with_halves("reduce-precision")


def _maker(value: walk.Position) -> tuple[Instruction | None, walk.Position | None]:
    """The last array on the way back, and the way's end if that is an element of a loop's state."""
    positions = list(walk.path(value, _WRITTEN_AS))
    arrays = [p.instruction for p in positions if not p.element]
    last = positions[-1]
    is_state = last.instruction.opcode == "parameter" and last.element
    return (arrays[-1] if arrays else None), (last if is_state else None)


def _whole_copies(live: Liveness) -> dict[int, int]:
    """Buffer → the one of which it is only a copy or conversion."""
    out: dict[int, int] = {}
    moves = moves_only(live.module)
    for n in live.schedule.tolist():
        i = live.module.instructions[n]
        if not moves[n] or len(i.operands) != 1 or i.operands[0].shape.is_tuple:
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
    seen: set[int] = set()
    while buffer not in writers and buffer in origin and buffer not in seen:
        seen.add(buffer)
        buffer = origin[buffer]
    return buffer if buffer in writers else None


def find_residuals(live: Liveness, loops: Sequence[Loop]) -> tuple[Residual, ...]:
    """Buffers stacked by one loop and only read, or passed through, by a later one; largest first.

    The later one may carry a copy or conversion of the stack.
    """
    if not any(c.role == "stacked" for loop in loops for c in loop.carries):
        return ()
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
