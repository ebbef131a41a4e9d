"""A trace event by event, where one was taken."""

from __future__ import annotations

import numpy as np

from ..builder import Builder
from ..context import Context

MOST_EVENTS = 200_000
MOST_RUNS = 10_000


def add(builder: Builder, context: Context) -> None:
    """Writes ``trace.*``; nothing without a trace. Of over 200,000 events, only the longest."""
    measured = context.given.measured
    if measured is None or not len(measured.events):
        return
    events = measured.events
    lanes = events.lanes
    seconds = np.concatenate([x.seconds for x in lanes])
    kept = np.ones(len(seconds), bool)
    if len(seconds) > MOST_EVENTS:
        kept[np.argsort(-seconds, kind="stable")[MOST_EVENTS:]] = False
    lane = np.repeat(np.arange(len(lanes)), [len(x) for x in lanes])
    builder.column("trace_lane.device", [x.device_name for x in lanes])
    builder.column("trace_lane.name", [x.name for x in lanes])
    builder.column("trace_lane.beside", [x.beside for x in lanes])
    builder.column("trace_lane.events", [len(x) for x in lanes])
    builder.column("trace.lane", lane[kept])
    builder.column("trace.start", np.concatenate([x.start for x in lanes])[kept])
    builder.column("trace.end", np.concatenate([x.end for x in lanes])[kept])
    builder.column("trace.seconds", seconds[kept])
    builder.column("trace.instruction", np.concatenate([x.instruction for x in lanes])[kept])
    text_ids = builder.strings.ids(events.texts)
    builder.text_ids("trace.text", text_ids[np.concatenate([x.text for x in lanes])[kept]])
    runs = events.runs[:MOST_RUNS]
    names = {x.device: x.device_name for x in lanes}
    builder.column("trace_run.device", [names.get(d, str(d)) for d, _, _ in runs])
    builder.column("trace_run.start", [start for _, start, _ in runs])
    builder.column("trace_run.seconds", [took for _, _, took in runs])
    left = dict(events.left_out)
    context.extras["trace"] = {
        "events": len(seconds),
        "shortest": float(seconds[kept].min()) if not kept.all() else None,
        "elsewhere": [{"where": where, "events": count} for where, count in left.items()],
        "runs": len(events.runs),
    }
