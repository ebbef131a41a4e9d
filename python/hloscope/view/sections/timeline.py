"""The modelled step as events on lanes; js/view.ts says what each column holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.cost.cost import estimated

if TYPE_CHECKING:
    from ..builder import Builder
    from ..core import Context


def add(builder: Builder, context: Context) -> None:
    """Writes ``timeline.*``; nothing where no time is modelled."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    cost = estimated(module, context.target)
    found = cost.timeline
    if found is None or not len(found) or cost.hardware is None:
        return
    builder.column("timeline.computation", "u32", found.computation)
    builder.column("timeline.instruction", "u32", found.instruction)
    builder.column("timeline.lane", "u8", found.lane)
    builder.column("timeline.start", "f64", found.start)
    builder.column("timeline.seconds", "f64", found.duration)
    builder.column("timeline.inside", "i32", found.inside)
    builder.column("timeline.times", "f64", found.times)
    context.extras["timeline"] = {
        "lanes": list(found.lanes),
        "seconds": found.seconds,
        "entry": module.entry.index,
        "hardware": cost.hardware.label,
    }
