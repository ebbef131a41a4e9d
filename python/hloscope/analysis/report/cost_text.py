"""Cost and memory as plain text tables: what ``print(cap.cost())`` shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..text.units import duration, grid, quantity, short, size

if TYPE_CHECKING:
    from ..cost.cost import Cost
    from ..memory.memory import Memory


def _whose(figures: Cost | Memory) -> str:
    from .summary import shapes

    local = shapes(figures.module, figures.target) == "local"
    return "one device" if local else "in global shapes, before partitioning"


def cost_table(cost: Cost, rows: int = 12) -> str:
    """Totals, XLA's own beside ours, and the dearest instructions."""
    lines = [f"cost of {cost.module.name}, {_whose(cost)}, one execution"]
    lines.append(
        f"  {quantity(cost.total_flops, 'FLOP')} ({quantity(cost.total_matmul_flops, 'FLOP')} in"
        f" matmuls and convolutions), {quantity(cost.total_transcendentals)} transcendentals,"
        f" {quantity(cost.total_bytes, 'B')} accessed"
    )
    for x in cost.xla:
        if x.xla is not None:
            parts = [
                f"{quantity(v)} {w}"
                for v, w in ((x.loops, "loops"), (x.custom_calls, "custom calls"))
                if v
            ]
            if x.other and abs(x.other) > 1e-6 * max(abs(x.xla), 1):
                parts.append(f"{quantity(x.other)} other")
            because = f" (ours adds {', '.join(parts)})" if parts else " (the same)"
            lines.append(f"  XLA's own {x.quantity}: {quantity(x.xla)}{because}")
    if cost.total_estimated_cycles is not None:
        lines.append(f"  XLA's estimated cycles: {cost.total_estimated_cycles:,.0f}")
    if cost.roofline is not None:
        lines += [f"  {t}" for t in cost.roofline.text()]
    if cost.unknown_trip_counts:
        lines.append(
            "  counted once, trip count unknown: "
            + ", ".join(cost.unknown_trip_counts)
            + "; set it with cap.cost(trips={name: count})"
        )
    if cost.unknown_flops:
        names = ", ".join(i.name for i in cost.unknown_flops[:5])
        lines.append(f"  FLOPs unknown of {len(cost.unknown_flops)}: {names}")
    body = [
        (
            short(r.instruction.name),
            f"{r.runs:g}",
            quantity(r.flops),
            quantity(r.bytes_accessed, "B"),
            "" if math.isnan(r.intensity) else f"{r.intensity:.3g}",
            "" if r.seconds is None else duration(r.seconds),
            r.bound,
        )
        for _, r in zip(range(rows), cost, strict=False)
    ]
    lines.append(
        grid(("instruction", "runs", "FLOPs", "bytes", "FLOP/B", "modelled", "bound"), body)
    )
    if len(cost) > rows:
        lines.append(f"… and {len(cost) - rows} more")
    return "\n".join(lines)


def memory_table(memory: Memory, rows: int = 12) -> str:
    """Peaks, categories and the largest values live at the peak."""
    at = memory.peak_instruction
    lines = [
        f"memory of {memory.module.name}, {_whose(memory)}",
        f"  peak {size(memory.peak_bytes)} ({memory.peak_bytes:,} B, {memory.peak_source})",
    ]
    if memory.peak_source != "simulated":
        lines.append(f"  simulated {size(memory.simulated_bytes)} ({memory.simulated_bytes:,} B)")
    if memory.xla_peak_bytes is not None and memory.peak_bytes != memory.xla_peak_bytes:
        note = ", without temporaries" if memory.target.platform == "cpu" else ""
        lines.append(f"  XLA's peak_memory_in_bytes {memory.xla_peak_bytes:,} B{note}")
    if at is not None:
        lines.append(f"  highest at %{at.name} ({memory.peak_point + 1} of {len(memory.schedule)})")
    lines.append("  " + ", ".join(f"{c} {size(b)}" for c, b in memory.by_category.items()))
    if memory.residuals:
        total = sum(r.bytes for r in memory.residuals)
        lines.append(f"  stored between loops for backward: {size(total)}")
    body = [
        (short(v.name), size(v.bytes), v.category, v.shape.dense_text, f"{v.start}–{v.end}")
        for _, v in zip(range(rows), memory, strict=False)
    ]
    lines.append(grid(("live at the peak", "bytes", "category", "shape", "live"), body))
    if len(memory) > rows:
        lines.append(f"… and {len(memory) - rows} more")
    return "\n".join(lines)
