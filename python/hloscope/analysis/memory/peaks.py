"""The peak of each memory, the device's main memory first; memories are never summed.

    HBM    arguments + outputs + temporaries - aliases, as XLA allocates them
    VMEM   the most that the program holds in it at once
    host   arguments, outputs and temporaries placed there

If XLA gives no figure, it is simulated. On TPU, temporaries in HBM are on one heap, in places that
start at multiples of 16 KiB: in order of the schedule, each takes the first place that is free as
long as it lives. Above them is a place for the table of every tuple, which a loop shares with its
operand and body root and a conditional with its branches; a tuple in a tuple has a table of its
own. A heap for scalars of the scalar core only is not allocated. Observed in buffer assignments of
libtpu 0.0.51, where the result is ``temp_size_in_bytes`` but for a place or two
(``test_memory_accuracy.py``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from ...hlo import Module, Shape, Target
from ...hlo.opcodes import BRANCHES, LITERALS, LOOPS
from ..base.memory_spaces import HOST, MAIN, main_spaces, space_name
from ..base.table import per_module, table
from ..cost.runs import Role, call_graph
from ..flops.elementwise import ELEMENTWISE
from ..text.results import Row
from .limits import HEAP_PLACE_BYTES
from .liveness.liveness import Liveness
from .liveness.values import TEMP

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# ops of the scalar core, whose scalar results need no place in HBM
_SCALAR = ELEMENTWISE | LITERALS | {"copy", "while", "parameter"}
_PARTS = ("argument", "output", "temp")


@dataclass(frozen=True, slots=True, repr=False)
class MemorySpace(Row):
    """A memory, the most bytes that the program holds in it, and the source of that figure.

    ``number`` is the layout's ``S(n)``, ``name`` what it is on this platform: "HBM", "VMEM",
    "SMEM", "host", "device memory".
    """

    number: int
    name: str
    peak_bytes: int
    source: str


def allocated(target: Target, prefix: str = "") -> int | None:
    """Arguments + outputs + temporaries - aliases of XLA's ``memory_analysis``; None if not given.

    With the prefix "host_", those in host memory.
    """
    stats = target.memory_stats
    if not any(f"{prefix}{part}_size_in_bytes" in stats for part in _PARTS):
        return None
    held = sum(stats.get(f"{prefix}{part}_size_in_bytes", 0) for part in _PARTS)
    return held - stats.get(f"{prefix}alias_size_in_bytes", 0)


def assigned(module: Module, spaces: tuple[int, ...]) -> int | None:
    """Sum of XLA's allocations in some memories, without thread-local ones and constants."""
    assignment = module.buffer_assignment
    if assignment is None or not assignment.allocations:
        return None
    return sum(
        a.size
        for a in assignment.allocations
        if not a.is_thread_local and not a.is_constant and a.memory_space in spaces
    )


def peaks_beside_main(live: Liveness, target: Target, platform: str) -> tuple[MemorySpace, ...]:
    """Peaks of every memory that the program uses beside the device's main memory."""
    used = set(live.space[live.size > 0].tolist()) - set(main_spaces(platform))
    out = []
    for space in sorted(used):
        best, source = assigned(live.module, (space,)), "XLA's buffer assignment"
        if space == HOST and (given := allocated(target, "host_")):
            best, source = given, "XLA's memory_analysis"
        if not best:
            best, source = int(live.timeline(space).max(initial=0)), "simulated"
        out.append(MemorySpace(space, space_name(space, platform), best, source))
    return tuple(out)


def heap_padding(live: Liveness, timeline: Ints) -> int:
    """Bytes that TPU's heap in HBM takes beyond the values at the peak of ``timeline``.

    Below 0 if these include scalars that are never in HBM.
    """
    on_heap = (live.space == MAIN) & (live.kind == TEMP) & (live.size > 0)
    held = (live.space == MAIN) & (live.kind != TEMP)
    taken = int(live.size[held & live.is_counted].sum())
    if any(_needs_place(live, int(b)) for b in np.flatnonzero(on_heap)):
        taken += _placed(live, on_heap & live.is_counted)
        taken += HEAP_PLACE_BYTES * _tuple_tables(live.module)
    return taken - int(timeline.max(initial=0))


def _placed(live: Liveness, on_heap: Bools) -> int:
    """Height of the heap if each buffer, in order of the schedule, takes the first place that is
    free as long as it lives."""
    until: dict[int, int] = {}  # by the first of the buffers that take one place after another
    first: dict[int, int] = {}
    order = np.flatnonzero(on_heap)
    order = order[np.argsort(live.start[order], kind="stable")]
    start, ends, sizes = live.start.tolist(), live.end.tolist(), live.size.tolist()
    for b, shared in zip(order.tolist(), live.shared[order].tolist(), strict=True):
        at = first[b] = first.get(shared, b)
        until[at] = max(until.get(at, 0), ends[b])
    busy: list[tuple[int, int]] = []  # (begin, end) of places in use, in order
    ending: list[tuple[int, int, int]] = []  # (last point, begin, end), a heap
    height = 0
    for b in order.tolist():
        if first[b] != b:
            continue
        while ending and ending[0][0] < start[b]:
            _, begin, end = heappop(ending)
            del busy[bisect_left(busy, (begin, end))]
        size = -(-sizes[b] // HEAP_PLACE_BYTES) * HEAP_PLACE_BYTES
        at = 0
        for begin, end in busy:
            if begin - at >= size:
                break
            at = end
        insort(busy, (at, at + size))
        heappush(ending, (until[b], at, at + size))
        height = max(height, at + size)
    return height


def _needs_place(live: Liveness, buffer: int) -> bool:
    i = live.module.instructions[int(live.defined_by[buffer])]
    return i.opcode not in _SCALAR or i.shape.elements > 1


@per_module
def _tuple_tables(module: Module) -> int:
    """Number of places for tuple tables: one per tuple, shared within a loop or conditional."""
    t, calls = table(module), call_graph(module)
    inside = 0  # tables of tuples in tuples
    parent: dict[int, int] = {}

    def find(n: int) -> int:
        while parent.setdefault(n, n) != n:
            n = parent[n]
        return n

    tuples = np.array([s.is_tuple for s in t.shapes], bool)[t.shape] & calls.executed[t.computation]
    for n in np.flatnonzero(tuples).tolist():
        i = module.instructions[n]
        passed_on = i.opcode in ("parameter", "get-tuple-element")
        result = i.computation.is_entry and i is i.computation.root
        if not passed_on and not result:
            find(n)
            if i.opcode not in LOOPS | BRANCHES | {"async-update"}:
                inside += _tuples_inside(i.shape)
    for e in calls.edges:
        caller, root = module.instructions[e.caller], module.computations[e.callee].root
        if e.role in (Role.BODY, Role.BRANCH) and e.caller in parent:
            if root is not None and root.index in parent:
                parent[find(root.index)] = find(e.caller)
            if e.role is Role.BODY and caller.operands and caller.operands[0].index in parent:
                parent[find(caller.operands[0].index)] = find(e.caller)
    return len({find(n) for n in list(parent)}) + inside


def _tuples_inside(shape: Shape) -> int:
    return sum(s.is_tuple + _tuples_inside(s) for s in shape.tuple_shapes)
