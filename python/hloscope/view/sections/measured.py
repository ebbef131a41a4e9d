"""Measured time per instruction, where a profile was taken."""

from __future__ import annotations

import numpy as np

from ..builder import Builder
from ..context import Context

MOST_ROWS = 2_000


def add(builder: Builder, context: Context) -> None:
    """Writes ``measured.*``; nothing without a profile."""
    found = context.given.measured
    if found is None or not found.devices:
        return
    seen = found.counts.sum(axis=0) > 0
    builder.column("measured.mean", found.mean)
    builder.column("measured.step", np.where(seen, found.step_seconds.mean(axis=0), np.nan))
    builder.column("measured.most", np.where(seen, found.seconds.max(axis=0), np.nan))
    builder.column("measured.slowest", np.array(found.devices)[found.seconds.argmax(axis=0)])
    rows = np.array([r.instruction.index for r, _ in zip(found, range(MOST_ROWS), strict=False)])
    builder.column("measured.rows", rows)
    builder.column("measured.seconds", found.seconds[:, rows].T.ravel())
    builder.column("measured.self", found.self_seconds[:, rows].mean(axis=0))
    builder.column("measured.flight", found.flight_mean[rows])
    names = [found.device_names.get(d, str(d)) for d in found.devices]
    context.extras["measured"] = {
        "devices": list(found.devices),
        "steps": found.steps,
        "coverage": found.coverage,
        "totalSeconds": found.total_seconds,
        "deviceSeconds": found.device_seconds.tolist(),
        "flightSeconds": found.flight_seconds,
        "notes": list(found.remarks()),
        # "host-1 TPU:3"; for one host the numbers are enough
        "names": names if any(" " in n for n in names) else None,
    }
