"""Live bytes over the schedule and the buffers behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...analysis.cost.cost import estimated
from ...analysis.memory.categories import CATEGORIES
from ...analysis.memory.liveness.liveness import KINDS
from ...analysis.memory.memory import Memory, analysed
from ...analysis.memory.remat import what_if
from ..builder import Builder
from ..context import Context

if TYPE_CHECKING:
    from ..header import AuditTotal, Loop

LISTED = 200  # at most this many rows of each audit are in the page


def add(builder: Builder, context: Context) -> None:
    """Writes ``memory.*`` and ``buffer.*``; nothing for a module that is not HLO."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    memory = analysed(module, context.target)
    cost = estimated(module, context.target)
    live = memory.liveness
    rows = np.flatnonzero((live.size > 0) & ((live.kind < 3) | live.is_loaded))
    row_of = np.full(len(live.size) + 1, -1, np.int64)
    row_of[rows] = np.arange(len(rows))
    b = builder
    b.column("memory.schedule", live.schedule)
    b.column("memory.live", memory.timeline)
    b.column("buffer.instruction", live.defined_by[rows])
    b.column("buffer.leaf", live.leaf[rows])
    b.column("buffer.bytes", live.size[rows])
    elsewhere = ~np.isin(live.space[rows], memory.main_spaces)
    b.column("buffer.space", np.where(elsewhere, live.space[rows], 0))
    b.column("buffer.kind", live.kind[rows])
    b.column("buffer.category", memory.category[rows])
    b.column("buffer.start", live.start[rows])
    b.column("buffer.end", live.end[rows])
    b.column("buffer.freed", live.counted_end[rows])
    b.column("buffer.home", row_of[live.home[rows]])
    b.column("buffer.frame", memory.frames[rows] - 1)
    gaps = live.gaps[np.isin(live.gaps[:, 0], rows)]
    if len(gaps):
        b.column("gap.buffer", row_of[gaps[:, 0]])
        b.column("gap.start", gaps[:, 1])
        b.column("gap.end", gaps[:, 2])
    values = [memory.value(int(r)) for r in rows] if len(rows) <= 20_000 else None
    if values is not None:
        b.column("buffer.name", [v.name for v in values])
        b.column("buffer.scope", [v.scope for v in values])
        b.column("buffer.padding", [v.padding_bytes for v in values])
        if memory.assigned_bytes is not None:
            b.column("buffer.allocation", [_or(v.allocation) for v in values])
            b.column("buffer.offset", [_or(v.offset) for v in values])
    context.extras["memory"] = {
        "kinds": list(KINDS),
        "categories": list(CATEGORIES),
        "peakBytes": memory.peak_bytes,
        "peakSource": memory.peak_source,
        "simulatedBytes": memory.simulated_bytes,
        "assignedBytes": memory.assigned_bytes,
        "xlaPeakBytes": memory.xla_peak_bytes,
        "xlaPeakNote": memory.xla_peak_note,
        "tableBytes": memory.table_bytes,
        "peakPoint": memory.peak_point,
        "platform": context.target.platform,
        "spaces": [
            {"space": s.number, "name": s.name, "peak": s.peak_bytes, "source": s.source}
            for s in memory.spaces
        ],
        "donations": [
            {
                "argument": d.argument,
                "parameter": d.parameter,
                "bytes": d.bytes,
                "outcome": d.outcome,
                "output": d.output_name,
                "why": d.why,
            }
            for d in memory.donations[:LISTED]
        ],
        "copies": [
            {
                "instruction": c.instruction.index,
                "argument": c.argument,
                "bytes": c.bytes,
                "changes": c.changes,
            }
            for c in memory.parameter_copies[:LISTED]
        ],
        "totals": _totals(memory),
        "loops": _loops(memory),
        "residuals": [
            {
                "instruction": r.stored.index if r.stored is not None else -1,
                "writer": r.writer.instruction.index,
                "readers": [x.instruction.index for x in r.readers],
                "shape": r.shape.dense_text,
                "slice": r.slice_shape.dense_text if r.slice_shape is not None else "",
                "bytes": r.bytes,
            }
            for r in memory.residuals[:LISTED]
        ],
        "remat": [
            {
                "instruction": r.value.instruction.index,
                "bytes": r.saved_bytes,
                "flops": r.flops,
                "bytesAccessed": r.bytes_accessed,
                "wireBytes": r.wire_bytes,
                "instructions": [i.index for i in r.instructions],
                "reason": r.reason,
            }
            for r in what_if(memory, cost)
        ],
    }


def _totals(memory: Memory) -> list[AuditTotal]:
    """Of each audit as a whole: the page has its first ``LISTED`` rows."""
    sums: dict[tuple[str, str], list[int]] = {}
    rows = [("donations", d.outcome, d.bytes) for d in memory.donations]
    rows += [("copies", "", c.bytes) for c in memory.parameter_copies]
    rows += [("residuals", "", r.bytes) for r in memory.residuals]
    rows += [("loops", "", loop.carried_bytes) for loop in memory.loops]
    for audit, outcome, size in rows:
        found = sums.setdefault((audit, outcome), [0, 0])
        found[0] += 1
        found[1] += size
    return [
        {"audit": audit, "outcome": outcome, "count": count, "bytes": size}
        for (audit, outcome), (count, size) in sums.items()
    ]


def _or(value: int | None) -> int:
    return -1 if value is None else value


def _loops(memory: Memory) -> list[Loop]:
    return [
        {
            "instruction": loop.instruction.index,
            "trips": loop.trips,
            "phase": loop.phase,
            "bytes": loop.carried_bytes,
            "count": len(loop.carries),
            "carries": [
                {
                    "index": c.index,
                    "shape": c.shape.dense_text,
                    "bytes": c.bytes,
                    "role": c.role,
                    "stored": c.stored.index if c.stored is not None else -1,
                }
                for c in loop.carries[:40]
            ],
        }
        for loop in memory.loops[:LISTED]
    ]
