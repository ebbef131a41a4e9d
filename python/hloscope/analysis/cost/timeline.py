"""The modelled step as a timeline: when each instruction runs, and what runs in parallel.

The model is the roofline's (``roofline.py``): instructions run one after another, transfers in
parallel, and a done waits for its transfer. A loop is one event with its iterations inside:

    compute    ├─ fusion ─┤├─ while ×12: ├─ body ─┤├─ body ─┤ … ┤├─ waits ─┤
    over data        ├──────── all-gather ────────┤

Times are relative to the computation of the event, so that a loop's body appears only once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...hlo import Module
from ...hlo.collective_kinds import is_collective
from ..base.table import table
from ..comms.collectives import collectives
from .counts import Counts
from .roofline.roofline import BOUNDS, Roofline
from .runs import Edge, Role

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COMPUTE, WAITING = 0, 1  # lanes; the others are for transfers
# Copies to VMEM and the host for which there is no room; placed at the end, as no time is modelled.
COPIES = "copies left over"


@dataclass(frozen=True, eq=False)
class Timeline:
    """Events of a step in modelled seconds, one row each, grouped by computation in schedule order.

    ``start`` is relative to the event's computation. ``inside`` is the computation that the event
    runs ``times`` times in succession, -1 for an operation. ``lanes`` names what events occupy:
    "compute", "waiting" (for a transfer), then the mesh axes that transfers go over, and
    "copies left over" if there are any.
    """

    module: Module
    seconds: float  # of one step
    lanes: tuple[str, ...]
    computation: Ints
    instruction: Ints
    lane: npt.NDArray[np.int8]
    start: Floats
    duration: Floats
    inside: Ints
    times: Floats

    def __len__(self) -> int:
        return len(self.start)

    def total(self, lane: str) -> float:
        """Seconds that a lane is occupied in one step, times trip counts."""
        runs = self._runs()
        of = self.lanes.index(lane)
        rows = (self.lane == of) & (self.inside < 0)
        return float((self.duration[rows] * runs[self.computation[rows]]).sum())

    def _runs(self) -> Floats:
        runs = np.zeros(len(self.module.computations))
        if self.module.entry is not None:
            runs[self.module.entry.index] = 1
        # Callees' events come before their callers'.
        for n in range(len(self) - 1, -1, -1):
            if self.inside[n] >= 0:
                runs[self.inside[n]] += runs[self.computation[n]] * self.times[n]
        return runs


def timeline(counts: Counts, roofline: Roofline) -> Timeline:
    """The timeline of a modelled program."""
    module = counts.module
    t = table(module)
    calls = counts.execution.calls
    left_out = set(counts.execution.branches_left_out)
    alone = t.by_opcode(is_collective, bool)
    aside = roofline.bound_by == BOUNDS.index(
        "copy"
    )  # in parallel to the rest, where that leaves room
    busy = np.where(alone | aside, 0.0, np.nan_to_num(roofline.seconds) + roofline.least)
    starting: dict[int, list[int]] = {}
    for k, x in enumerate(roofline.transfers):
        starting.setdefault(x.start, []).append(k)
    below: dict[int, list[Edge]] = {}
    for e in calls.edges:
        if e.role >= Role.BODY and e.callee not in left_out:
            below.setdefault(e.caller, []).append(e)
    rows = collectives(module, counts.target)
    lanes = ["compute", "waiting"]
    events: list[tuple[int, int, int, float, float, int, float]] = []
    length = np.zeros(len(module.computations))
    for c in calls.order:
        if not calls.executed[c]:
            continue
        clock = 0.0
        free = [0.0, 0.0]  # the near wire and the far one
        for i in module.computations[c].instructions:
            n = i.index
            for k in starting.get(n, ()):
                x = roofline.transfers[k]
                begin = max(clock, free[x.is_far])
                took = float(roofline.transfer_seconds[k])
                free[x.is_far] = begin + took
                row = rows.by_instruction.get(n)
                over = f"over {row.axes_or_groups}" if row is not None else "between slices"
                if over not in lanes:
                    lanes.append(over)
                if took > 0:
                    events.append((c, n, lanes.index(over), begin, took, -1, 1.0))
            if busy[n] > 0:
                events.append((c, n, COMPUTE, clock, float(busy[n]), -1, 1.0))
                clock += float(busy[n])
            for e in below.get(n, ()):
                times = 1.0
                if e.role in (Role.BODY, Role.CONDITION):
                    known = counts.execution.trips.get(n)
                    times = 1.0 if known is None else float(known + (e.role is Role.CONDITION))
                took = float(length[e.callee]) * times
                if took > 0:
                    events.append((c, n, COMPUTE, clock, took, e.callee, times))
                    clock += took
            if roofline.exposed[n] > 0:
                events.append((c, n, WAITING, clock, float(roofline.exposed[n]), -1, 1.0))
                clock += float(roofline.exposed[n])
        length[c] = clock
    last = module.entry.root if module.entry is not None else None
    if roofline.copy_wait_seconds > 0 and last is not None:
        c = last.computation.index
        lanes.append(COPIES)
        left = float(roofline.copy_wait_seconds)
        events.append((c, last.index, len(lanes) - 1, float(length[c]), left, -1, 1.0))
        length[c] += left
    columns = list(zip(*events, strict=True)) if events else [()] * 7
    entry = module.entry
    return Timeline(
        module,
        float(length[entry.index]) if entry is not None else 0.0,
        tuple(lanes),
        np.array(columns[0], np.int64),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.int8),
        np.array(columns[3], np.float64),
        np.array(columns[4], np.float64),
        np.array(columns[5], np.int64),
        np.array(columns[6], np.float64),
    )
