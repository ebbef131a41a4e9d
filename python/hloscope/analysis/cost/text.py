"""Cost as a plain text table, as ``print(cap.cost())`` shows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..base.lines.lines import lines as line_table
from ..comms.partitions import whose
from ..text.units import duration, grid, printed, quantity, short

if TYPE_CHECKING:
    from .cost import Cost


def cost_table(cost: Cost, rows: int = 12) -> str:
    """Totals, XLA's own beside ours, and the most expensive instructions."""
    lines = [f"cost of {cost.module.name}, {whose(cost.module, cost.target)}, one execution"]
    lines.append(
        f"  {quantity(cost.total_flops, 'FLOP')} ({quantity(cost.total_matmul_flops, 'FLOP')} in"
        f" matmuls and convolutions), {quantity(cost.total_transcendentals)} transcendentals,"
        f" {quantity(cost.total_bytes, 'B')} accessed"
    )
    declared = cost.total_matrix_flops - cost.total_matmul_flops
    if declared > 0:
        lines.append(
            f"  {quantity(declared, 'FLOP')} declared by the authors of kernels, timed as matmuls"
        )
    if cost.ranges:
        units = {"flops": "FLOP", "bytes_accessed": "B", "seconds": "s"}
        said = {"bytes_accessed": "bytes accessed", "flops": "FLOPs", "seconds": "modelled"}
        each = (
            f"{said.get(k, k)} {quantity(a, units.get(k, ''))} – {quantity(b, units.get(k, ''))}"
            for k, (a, b) in cost.ranges.items()
        )
        lines.append(f"  depending on which branches of conditionals run: {', '.join(each)}")
    for x in cost.xla:
        if x.xla is not None:
            unit = {"flops": "FLOP", "bytes accessed": "B"}.get(x.quantity, "")
            parts = [
                f"{quantity(v, unit)} {w}"
                for v, w in ((x.loops, "loops"), (x.custom_calls, "custom calls"))
                if v
            ]
            if x.other and abs(x.other) > 1e-6 * max(abs(x.xla), 1):
                parts.append(f"{quantity(x.other, unit)} other")
            because = f" (ours adds {', '.join(parts)})" if parts else " (the same)"
            lines.append(f"  XLA's own {x.quantity}: {quantity(x.xla, unit)}{because}")
    if cost.total_estimated_cycles is not None:
        lines.append(f"  XLA's estimated cycles: {cost.total_estimated_cycles:,.0f}")
    if cost.module.entry is None:
        lines.append("  cut off before ENTRY: these figures are for one run of what is there")
    elif cost.roofline is not None:
        lines += [f"  {t}" for t in cost.roofline.text()]
    if cost.unknown_trip_counts:
        lines.append(
            "  counted once, trip count unknown: "
            + ", ".join(cost.unknown_trip_counts)
            + "; set it with cap.cost(trips={name: count})"
        )
    if cost.unknown_flops:
        names = ", ".join(i.name for i in cost.unknown_flops[:5])
        lines.append(f"  FLOPs unknown for {len(cost.unknown_flops)}: {names}")
    known = line_table(cost.module)
    body = [
        (
            short(r.instruction.name),
            f"{r.runs:g}",
            quantity(r.flops, "FLOP"),
            quantity(r.bytes_accessed, "B"),
            "" if math.isnan(r.intensity) else quantity(r.intensity),
            "" if r.step_seconds is None else duration(r.step_seconds),
            "" if r.seconds is None else duration(r.seconds),
            r.bound,
            known.text(r.instruction),
        )
        for _, r in zip(range(rows), cost, strict=False)
    ]
    head = "instruction runs FLOPs bytes FLOP/B".split()
    lines += grid((*head, "in step", "alone", "bound", "line"), body)
    if len(cost) > rows:
        lines.append(f"… and {len(cost) - rows} more")
    return printed(lines)
