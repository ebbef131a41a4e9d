"""Memory as a plain text table, as ``print(cap.memory)`` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lines.frames import own_line
from ..base.lines.lines import said
from ..comms.partitions import whose
from ..text.units import grid, printed, short, size

if TYPE_CHECKING:
    from .memory import Memory


def memory_table(memory: Memory, rows: int = 12) -> str:
    """Text with peaks, categories and the largest values live at the peak."""
    at = memory.peak_instruction
    lines = [
        f"memory of {memory.module.name}, {whose(memory.module, memory.target)}",
        f"  peak of {memory.space_name(0)} {size(memory.peak_bytes)} ({memory.peak_bytes:,} B,"
        f" {memory.peak_source})",
    ]
    if memory.peak_source != "simulated":
        lines.append(f"  simulated {size(memory.simulated_bytes)} ({memory.simulated_bytes:,} B)")
    if memory.xla_peak_bytes is not None and memory.peak_bytes != memory.xla_peak_bytes:
        note = memory.xla_peak_note
        lines.append(f"  XLA's peak_memory_in_bytes {memory.xla_peak_bytes:,} B{note}")
    for s in memory.spaces[1:]:
        lines.append(f"  {s.name} {size(s.peak_bytes)} ({s.peak_bytes:,} B, {s.source})")
    if at is not None:
        lines.append(f"  highest at %{at.name} ({memory.peak_point + 1} of {len(memory.schedule)})")
    lines.append("  " + ", ".join(f"{c} {size(b)}" for c, b in memory.by_category.items()))
    if memory.residuals:
        total = sum(r.bytes for r in memory.residuals)
        lines.append(f"  stored between loops for backward: {size(total)}")
    body = [
        (
            short(v.name),
            size(v.bytes),
            v.category,
            v.shape.dense_text,
            f"{v.start}–{v.end}",
            said(own_line(v.frames), v.inferred),
        )
        for _, v in zip(range(rows), memory, strict=False)
    ]
    lines += grid(("live at the peak", "bytes", "category", "shape", "live", "line"), body)
    if len(memory) > rows:
        lines.append(f"… and {len(memory) - rows} more")
    return printed(lines)
