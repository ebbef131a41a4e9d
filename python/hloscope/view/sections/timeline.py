"""The modelled step as events on lanes."""

from __future__ import annotations

from ...analysis.cost.cost import estimated
from ..builder import Builder
from ..context import Context


def add(builder: Builder, context: Context) -> None:
    """Writes ``timeline.*``; nothing where no time is modelled."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    cost = estimated(module, context.target)
    found = cost.timeline
    if found is None or not len(found) or cost.hardware is None:
        return
    builder.column("timeline.computation", found.computation)
    builder.column("timeline.instruction", found.instruction)
    builder.column("timeline.lane", found.lane)
    builder.column("timeline.start", found.start)
    builder.column("timeline.seconds", found.duration)
    builder.column("timeline.inside", found.inside)
    builder.column("timeline.times", found.times)
    context.extras["timeline"] = {
        "lanes": list(found.lanes),
        "seconds": found.seconds,
        "entry": module.entry.index,
        "hardware": cost.hardware.label,
    }
