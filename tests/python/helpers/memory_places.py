"""Memory in use at once by XLA's buffer assignment, to compare the simulation with."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hloscope.analysis.memory.liveness.values import TEMP, leaf_span


def heaps(assignment: Any) -> list[Any]:
    """Allocations of temporaries: not of arguments, outputs or constants."""
    return [
        a
        for a in assignment.allocations
        if not (a.is_thread_local or a.is_constant)
        if not (a.is_entry_computation_parameter or a.maybe_live_out)
    ]


def simulated_heap(memory: Any, space: int | None = None) -> int:
    """Highest simulated sum of temporaries on the heap, in bytes; of one memory space or all."""
    live = memory.liveness
    line = np.zeros(len(live.schedule) + 1, np.int64)
    for b, first, last in live.reserved.tolist():
        if live.kind[b] == TEMP and space in (None, int(live.space[b])):
            line[first] += live.size[b]
            line[last + 1] -= live.size[b]
    return int(line.cumsum().max(initial=0))


def placed_heap(memory: Any) -> int:
    """Highest sum of *places* in use: XLA's offsets over the simulated live ranges.

    Two buffers at one offset at one time count once, as in memory. Tables of tuples, padding to
    64 bytes and holes between places are not included.
    """
    live, assignment = memory.liveness, memory.module.buffer_assignment
    buffers = {b.id: b for b in assignment.buffers}
    named = {i.name: i for i in memory.module.instructions}
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for b, first, last in live.ranges.tolist():
        ranges[b].append((first, last))
    total = np.zeros(len(live.schedule), np.int64)
    for allocation in heaps(assignment):
        places: dict[int, Any] = {}
        for x in allocation.assigned:
            logical = buffers[x.buffer_id]
            i = named.get(logical.instruction)
            if i is None or live.values.first[i.index] < 0:
                continue
            if i.shape.is_tuple and not logical.shape_index:
                continue  # a table of a tuple
            node = live.values.first[i.index] + leaf_span(i.shape, logical.shape_index)[0]
            line = places.setdefault(x.offset, np.zeros(len(total), np.int64))
            for first, last in ranges[int(live.buffer_of[node])]:
                np.maximum(line[first : last + 1], x.size, out=line[first : last + 1])
        total += sum(places.values(), start=np.zeros_like(total))
    return int(total.max(initial=0))


def kept_bytes(assignment: Any) -> int:
    """Bytes of arguments, outputs and constants, which are allocated throughout."""
    return sum(
        a.size
        for a in assignment.allocations
        if a.is_entry_computation_parameter or a.maybe_live_out or a.is_constant
        if not a.is_thread_local
    )


def traced_peaks(assignment: Any) -> dict[int, tuple[int, int]]:
    """Memory space → (XLA's peak of the heap trace, the same with each place counted once)."""
    size = {b.id: b.size for b in assignment.buffers}
    place = {x.buffer_id: (a.index, x.offset) for a in assignment.allocations for x in a.assigned}
    space = {a.index: a.memory_space for a in assignment.allocations}
    out: dict[int, tuple[int, int]] = {}
    for trace in assignment.traces:
        live: set[int] = set()
        peak = once = 0
        for event in trace.events:
            (live.add if event.kind == "ALLOC" else live.discard)(event.buffer_id)
            peak = max(peak, sum(size[b] for b in live))
            largest: dict[tuple[int, int], int] = {}
            for b in live:
                largest[place[b]] = max(size[b], largest.get(place[b], 0))
            once = max(once, sum(largest.values()))
        out[space[trace.allocation_index]] = (peak, once)
    return out
