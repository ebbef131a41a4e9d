"""Live bytes over the schedule, simulated from scheduled HLO alone.

    program points   0 ─────────────────────────────────────────▶ n     (called bodies inline)
    arguments        ███████████████████████████████████████████        held by the caller
    outputs          ███████████████████████████████████████████        reserved when it starts
    temp %dot.3            ├──────────┤                                 definition .. last use
    temp %tanh.4                      ├────────┤                        may take %dot.3's place

The order is the printed one, which in a scheduled module is the schedule; bodies of loops,
branches and calls stand before their caller, as in XLA's ``HloLiveRange``. Values that must
share a buffer are one (``liveness_values.py``). A temporary may take the place of an operand
that dies where it is made (elementwise, same shape: ``CanShareOperandBufferWithUser``), and
may lie in an output's buffer before that is written, as ``BufferAssignment`` does.

Offsets are not simulated: fragmentation of the heap comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..hlo import Instruction, Module
from .cost_runs import Calls, Role, call_graph
from .liveness_sharing import reuse
from .liveness_values import ARGUMENT, CONSTANT, OUTPUT, TEMP, Values
from .memory_tiling import memory_space, storage_bytes

Ints = npt.NDArray[np.int64]

KINDS = ("argument", "output", "temp", "constant")
_TRANSPARENT = frozenset(
    "tuple get-tuple-element bitcast opt-barrier optimization-barrier domain".split()
)


@dataclass(frozen=True, eq=False)
class Liveness:
    """Buffers with live ranges over program points; all arrays but the last three by buffer.

    ``start`` and ``end`` are inclusive points. ``kind`` is ARGUMENT, OUTPUT, TEMP or CONSTANT;
    an argument that is donated to an output is an ARGUMENT. ``shared[b]`` is the buffer whose
    place b takes over at its start, -1 for none; ``home[b]`` the output or donated argument
    in whose buffer temp b lies, -1 for none. ``schedule[t]`` is the instruction at point t.
    """

    module: Module
    values: Values
    schedule: Ints
    buffer_of: Ints  # by value node
    defined_by: Ints  # instruction that makes the first value
    leaf: Ints  # which leaf of its shape
    size: Ints
    space: Ints
    start: Ints
    end: Ints
    kind: Ints
    shared: Ints
    home: Ints
    definitions: tuple[tuple[int, ...], ...]  # all instructions that make a value of it

    @cached_property
    def counted_end(self) -> Ints:
        """``end``, one point earlier where another buffer takes the place over there."""
        end = self.end.copy()
        taken = self.shared[self.shared >= 0]
        end[taken] -= 1
        return end

    @cached_property
    def reserved(self) -> tuple[Ints, Ints]:
        """``start`` and ``counted_end`` as memory is held: arguments and outputs throughout."""
        whole = (self.kind == ARGUMENT) | (self.kind == OUTPUT)
        last = len(self.schedule) - 1
        return np.where(whole, 0, self.start), np.where(whole, last, self.counted_end)

    @cached_property
    def is_counted(self) -> npt.NDArray[np.bool_]:
        """Buffers that add to live bytes: all but constants and those inside another."""
        counted: npt.NDArray[np.bool_] = (self.kind != CONSTANT) & (self.home < 0)
        return counted

    def timeline(self, space: int | None = None) -> Ints:
        """Live bytes at each program point; ``space`` restricts to one memory space."""
        n = len(self.schedule)
        start, end = self.reserved
        chosen = self.is_counted & (end >= start)
        if space is not None:
            chosen &= self.space == space
        delta = np.zeros(n + 1, np.int64)
        np.add.at(delta, start[chosen], self.size[chosen])
        np.add.at(delta, end[chosen] + 1, -self.size[chosen])
        return np.cumsum(delta)[:n]

    def live_at(self, point: int) -> Ints:
        """Buffers that hold memory at a program point, largest first."""
        start, end = self.reserved
        chosen = self.is_counted & (start <= point) & (end >= point)
        rows = np.flatnonzero(chosen & (self.size > 0))
        return rows[np.lexsort((rows, -self.size[rows]))]


def flatten(module: Module, calls: Calls) -> Ints:
    """Executed instructions in order, called computations before their caller."""
    out: list[int] = []
    if module.entry is None:
        return np.zeros(0, np.int64)
    callees: dict[int, list[int]] = {}
    for below in calls.below:
        for e in below:
            if e.role >= Role.BODY:
                callees.setdefault(e.caller, []).append(e.callee)
    seen = {module.entry.index}
    stack = [iter(module.entry.instructions)]
    waiting: list[list[Instruction]] = [[]]
    while stack:
        i = next(stack[-1], None)
        if i is None:
            stack.pop()
            out.extend(w.index for w in waiting.pop())
            continue
        inner = [c for c in callees.get(i.index, ()) if c not in seen]
        if not inner:
            out.append(i.index)
            continue
        seen.update(inner)
        # the caller comes after the last of its computations
        for position, c in enumerate(reversed(inner)):
            stack.append(iter(module.computations[c].instructions))
            waiting.append([i] if position == 0 else [])
    return np.array(out, np.int64)


def simulate(module: Module, calls: Calls | None = None) -> Liveness:
    """Live ranges of every buffer of the executed computations."""
    calls = calls if calls is not None else call_graph(module)
    values = Values(module, calls)
    schedule = flatten(module, calls)
    point = np.full(len(module.instructions), -1, np.int64)
    point[schedule] = np.arange(len(schedule))
    roots = values.groups()
    distinct, buffer_of = np.unique(roots, return_inverse=True) if len(roots) else (roots, roots)
    count = len(distinct)
    origin = np.array(values.origin, np.int64)
    defines = np.frombuffer(bytes(values.defines), np.uint8).astype(bool)
    at = point[origin] if len(origin) else origin
    start = np.full(count, np.iinfo(np.int64).max)
    end = np.full(count, -1, np.int64)
    reached = at >= 0
    np.minimum.at(start, buffer_of[reached], at[reached])
    # a value is in use where it stands, and where anything that is more than plumbing reads it
    np.maximum.at(end, buffer_of[reached & defines], at[reached & defines])
    _uses(module, values, calls, point, buffer_of, end)
    first = np.full(count, len(origin), np.int64)
    candidates = np.flatnonzero(defines & reached)
    np.minimum.at(first, buffer_of[candidates], candidates)
    first = np.where(first == len(origin), distinct, first)
    by_id: dict[int, tuple[int, int]] = {}
    size = np.zeros(count, np.int64)
    space = np.zeros(count, np.int64)
    per_node = np.empty((len(origin), 2), np.int64)
    for v, shape in enumerate(values.shapes):
        found = by_id.get(id(shape))
        if found is None:
            found = by_id[id(shape)] = (storage_bytes(shape), memory_space(shape))
        per_node[v] = found
    if len(origin):
        np.maximum.at(size, buffer_of, per_node[:, 0])
        space = per_node[first, 1]
    defined_by = origin[first] if count else origin
    kind = np.full(count, TEMP, np.int64)
    opcodes = [module.instructions[n].opcode for n in defined_by.tolist()]
    kind[[o == "constant" for o in opcodes]] = CONSTANT
    last = len(schedule) - 1
    entry = module.entry
    if entry is not None and count:
        if entry.root is not None:
            held = buffer_of[list(values.nodes(entry.root))]
            end[held] = last
            kind[held] = OUTPUT
        for p in entry.parameters:
            held = buffer_of[list(values.nodes(p))]
            start[held], kind[held] = 0, ARGUMENT
    start = np.where(start > last, 0, start)
    end = np.maximum(end, start)
    home = np.full(count, -1, np.int64)
    for parameter, result in values.donations():
        a, b = int(buffer_of[parameter]), int(buffer_of[result])
        if a != b and kind[b] == OUTPUT:
            home[b] = a
    definitions: list[list[int]] = [[] for _ in range(count)]
    for v in candidates.tolist():
        definitions[int(buffer_of[v])].append(int(origin[v]))
    live = Liveness(
        module=module,
        values=values,
        schedule=schedule,
        buffer_of=buffer_of,
        defined_by=defined_by,
        leaf=first - np.array(values.first, np.int64)[defined_by] if count else first,
        size=size,
        space=space,
        start=start,
        end=end,
        kind=kind,
        shared=np.full(count, -1, np.int64),
        home=home,
        definitions=tuple(tuple(dict.fromkeys(d)) for d in definitions),
    )
    return reuse(live)


def _uses(
    module: Module, values: Values, calls: Calls, point: Ints, buffer_of: Ints, end: Ints
) -> None:
    """Extends ``end`` to the last use of each buffer."""
    users: list[int] = []
    nodes: list[int] = []
    first = values.first
    for c in module.computations:
        if not calls.executed[c.index]:
            continue
        for i in c.instructions:
            if i.opcode in _TRANSPARENT:
                continue
            for o in i.operands:
                span = values.nodes(o) if o.shape.is_tuple else (first[o.index],)
                for v in span:
                    users.append(i.index)
                    nodes.append(v)
        if c.root is not None:
            # what a computation returns lives until it returns, plumbing or not
            for v in values.nodes(c.root):
                users.append(c.instructions[-1].index)
                nodes.append(v)
    if nodes:
        when = point[np.array(users, np.int64)]
        np.maximum.at(end, buffer_of[np.array(nodes, np.int64)], when)
