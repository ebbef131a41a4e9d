"""Live bytes over the schedule, simulated from scheduled HLO alone.

    program points   0 ─────────────────────────────────────────▶ n     (called bodies inline)
    arguments        ███████████████████████████████████████████        held by the caller
    outputs          ███████████████████████████████████████████        reserved when it starts
    constants        ███████████████████████████████████████████        loaded with the program
    temp %dot.3            ├──────────┤                                 definition .. last use
    temp %tanh.4                      ├────────┤                        may reuse %dot.3's place

    temp loop carry        ├───┤     ├───┤                              free from a step's last use
                                                                        to the next step's value

The order is the printed one, which in a scheduled module is the schedule; bodies of loops,
branches and calls come before their caller, as in XLA's ``HloLiveRange``. Values that must
share a buffer are one (``values.py``). A temporary may take the place of an operand
that dies where it is made (elementwise, same shape: ``CanShareOperandBufferWithUser``), and
may be in an output's buffer before that is written, as in ``BufferAssignment``; XLA:TPU places none
there.

Offsets are simulated for TPU only (``peaks.py``): on other platforms heap fragmentation is extra.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....hlo import Instruction, Module
from ....hlo.columns import each_once
from ....hlo.parts import Alias
from ...base.memory_spaces import memory_space
from ...base.memory_tiling import storage_bytes
from ...base.table import table
from ...cost.assumptions import IMMEDIATE_ELEMENTS
from ...cost.runs import CallGraph, Role, call_graph
from .homes import homes
from .liveness import Liveness
from .sharing import Sharing, shared_places
from .values import ARGUMENT, CONSTANT, OUTPUT, SAME_BUFFER, TEMP, Values

Ints = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).max


def flatten(module: Module, calls: CallGraph) -> Ints:
    """Executed instructions in order, called computations before their caller."""
    out: list[int] = []
    if module.entry is None:
        return np.zeros(0, np.int64)
    callees: dict[int, list[int]] = {}
    for below in calls.below:
        for e in below:
            if e.role >= Role.BODY:
                callees.setdefault(_runs_at(module.instructions[e.caller]), []).append(e.callee)
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
        # the caller comes after the last computation that it calls
        for position, c in enumerate(reversed(inner)):
            stack.append(iter(module.computations[c].instructions))
            waiting.append([i] if position == 0 else [])
    return np.array(out, np.int64)


def _runs_at(caller: Instruction) -> int:
    """Where what an instruction calls runs: at the update that gives its operands, if one does."""
    if caller.opcode == "async-start" and not caller.operands:
        for user in caller.users:
            if user.opcode == "async-update" and len(user.operands) > 1:
                return user.index
    return caller.index


def simulate(module: Module) -> Liveness:
    """Live ranges of every buffer of the executed computations."""
    calls = call_graph(module)
    values = Values(module, calls, module.input_output_alias)
    schedule = flatten(module, calls)
    point = np.full(len(module.instructions), -1, np.int64)
    point[schedule] = np.arange(len(schedule))
    value_roots, roots = values.groups()
    distinct, buffer_of = np.unique(roots, return_inverse=True) if len(roots) else (roots, roots)
    kept, value_of = np.unique(value_roots, return_inverse=True) if len(roots) else (roots, roots)
    count = len(distinct)
    origin = values.origin
    defines = np.frombuffer(bytes(values.defines), np.uint8).astype(bool)
    at = point[origin] if len(origin) else origin
    reached = at >= 0
    begin = np.full(len(kept), _NEVER)
    np.minimum.at(begin, value_of[reached], at[reached])
    # a value is in use where it is defined, and where anything other than plumbing reads it
    until = begin.copy()
    np.maximum.at(until, value_of[reached & defines], at[reached & defines])
    _uses(module, values, calls, point, value_of, until)
    begin = np.where(begin == _NEVER, 0, begin)
    first = np.full(count, len(origin), np.int64)
    candidates = np.flatnonzero(defines & reached)
    np.minimum.at(first, buffer_of[candidates], candidates)
    first = np.where(first == len(origin), distinct, first)
    size = np.zeros(count, np.int64)
    sizes = np.array([storage_bytes(s) for s in values.leaf_shapes], np.int64)
    spaces = np.array([memory_space(s) for s in values.leaf_shapes], np.int64)
    np.maximum.at(size, buffer_of, sizes[values.shape])
    space = spaces[values.shape[first]]
    defined_by = origin[first] if count else origin
    constant = table(module).by_opcode("constant".__eq__, bool)
    kind = np.where(constant[defined_by], CONSTANT, TEMP)
    last = len(schedule) - 1
    # constants are there as long as the program is loaded
    for node in first[kind == CONSTANT].tolist():
        if values.shapes[node].elements > IMMEDIATE_ELEMENTS:
            begin[value_of[node]], until[value_of[node]] = 0, last
    entry = module.entry
    if entry is not None and count:
        if entry.root is not None:
            held = list(values.nodes(entry.root))
            until[value_of[held]] = last
            kind[buffer_of[held]] = OUTPUT
        for p in entry.parameters:
            held = list(values.nodes(p))
            begin[value_of[held]], kind[buffer_of[held]] = 0, ARGUMENT
    ranges = _ranges(buffer_of[kept], begin, np.where(until == _NEVER, 0, until))
    start, end = np.full(count, last), np.zeros(count, np.int64)
    np.minimum.at(start, ranges[:, 0], ranges[:, 1])
    np.maximum.at(end, ranges[:, 0], ranges[:, 2])
    definitions = each_once(buffer_of[candidates] * len(point) + origin[candidates])
    has_several = np.bincount(buffer_of[candidates], minlength=count) > 1
    has_several[buffer_of[np.flatnonzero(np.frombuffer(bytes(values.merges), np.uint8))]] = True
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
        ranges=ranges,
        kind=kind,
        shared=np.full(count, -1, np.int64),
        home=np.full(count, -1, np.int64),
        definitions=np.bincount(definitions // max(1, len(point)), minlength=count),
        has_several=has_several,
    )
    return _with_places(live, (), ())


class CopiedFirst(NamedTuple):
    """An argument that is donated, and copied before it is read: buffers, and the point of it.

    The argument's own memory is that of the output, and free in between.
    """

    argument: int
    output: int
    point: int


def with_donated(
    live: Liveness,
    donated: Sequence[Alias],
    copies: Sequence[CopiedFirst] = (),
    returned: Collection[int] = (),
) -> Liveness:
    """The simulation as if these arguments were donated too: what lies in their memory then.

    ``returned``: buffers of outputs that are their arguments, of which no copy is needed then.
    """
    values = copy(live.values)
    values.aliases = (*values.aliases, *donated)
    live = replace(live, values=values)
    return _with_places(_with_copies(live, copies) if copies else live, donated, returned)


def _with_copies(live: Liveness, copies: Sequence[CopiedFirst]) -> Liveness:
    """The argument's buffer stands for its copy, a temporary, and the output's for the memory,
    which is the argument's: as old as that, among places of which XLA takes the last made."""
    arguments, outputs, points = np.array(copies, np.int64).T
    made, leaf = live.defined_by.copy(), live.leaf.copy()
    made[outputs], leaf[outputs] = made[arguments], leaf[arguments]
    kind, start, end = live.kind.copy(), live.start.copy(), live.end.copy()
    kind[arguments], start[arguments] = TEMP, points
    end[arguments] = np.maximum(end[arguments], points)
    others = live.ranges[~np.isin(live.ranges[:, 0], arguments)]
    given = np.stack([outputs, np.zeros_like(points), points], axis=1)
    read = np.stack([arguments, points, end[arguments]], axis=1)
    rows = np.vstack([given, read, others])
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    return replace(live, kind=kind, start=start, end=end, ranges=rows, defined_by=made, leaf=leaf)


def _with_places(live: Liveness, donated: Sequence[Alias], returned: Collection[int]) -> Liveness:
    """With the places of outputs and temporaries, in arguments that are donated and in others."""
    values, kind = live.values, live.kind.copy()
    home = np.full(len(kind), -1, np.int64)
    taken = set(values.donations(donated))
    for parameter, result in values.donations():
        a, b = int(live.buffer_of[parameter]), int(live.buffer_of[result])
        if a != b and kind[b] == OUTPUT:
            is_new = (parameter, result) in taken and b not in returned
            if is_new and live.start[b] < live.end[a]:
                kind[b] = TEMP  # XLA copies it into the argument, which is read until then
            else:
                home[b] = a
    live = replace(live, kind=kind, home=home, shared=np.full(len(kind), -1, np.int64))
    sharing = Sharing(live)
    if not _is_tiled(values):
        live = replace(live, home=homes(live, sharing))
    return replace(live, shared=shared_places(live, sharing))


def _is_tiled(values: Values) -> bool:
    """Whether layouts have tiles, as on TPU, where no temporary is placed into an output."""
    return any(s.layout is not None and s.layout.tiles for s in values.leaf_shapes)


def _ranges(buffer: Ints, start: Ints, end: Ints) -> Ints:
    """Rows (buffer, first point, last point) without overlaps, sorted by buffer and point."""
    order = np.lexsort((start, buffer))
    rows = np.stack([buffer, start, end], axis=1)[order]
    several = np.flatnonzero(np.bincount(buffer)[rows[:, 0]] > 1) if len(rows) else order
    drop = np.zeros(len(rows), bool)
    for at, after in zip(several[:-1].tolist(), several[1:].tolist(), strict=True):
        b, _, until = rows[at].tolist()
        if rows[after, 0] == b and rows[after, 1] <= until + 1:
            rows[after, 1:] = rows[at, 1], max(until, int(rows[after, 2]))
            drop[at] = True
    return rows[~drop]


def _uses(
    module: Module, values: Values, calls: CallGraph, point: Ints, value_of: Ints, end: Ints
) -> None:
    """Extend ``end`` to the last use of each value."""
    users, nodes = values.read(SAME_BUFFER | {"while"})
    np.maximum.at(end, value_of[nodes], point[users])
    for c in module.computations:
        if calls.executed[c.index] and c.root is not None:
            # what a computation returns lives until it returns, plumbing or not
            span = values.nodes(c.root)
            at = point[c.instructions[-1].index]
            for v in value_of[span.start : span.stop]:
                end[v] = max(end[v], at)
