"""Least and most of figures over the branches of conditionals, only one of which runs.

``Counts`` count the branch of each conditional with most work. The actual figure of a step is
between those of the branches with least and with most; a conditional in a loop may take another
branch each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..base.table import table
from .assumptions import ROUNDING_SHARE
from .counts import Counts
from .roofline.roofline import Roofline, model
from .runs import Role, Runs, count_runs

Floats = npt.NDArray[np.float64]


def branch_ranges(counts: Counts, roofline: Roofline | None) -> Mapping[str, tuple[float, float]]:
    """(least, most) of "flops", "bytes_accessed", "transcendentals" and, with a chip, "seconds".

    Only figures that differ: {} for a program without conditionals, or with equal branches.
    """
    calls = counts.execution.calls
    t = table(counts.module)
    owner = t.computation
    if not any(e.role is Role.BRANCH and calls.executed[owner[e.caller]] for e in calls.edges):
        return {}
    unit = counts.is_unit

    def runs(own: Floats, least: bool) -> Runs:
        trips = counts.execution.trips
        return count_runs(counts.module, calls, own, trip_counts=trips, least=least)

    def total(own: Floats, least: bool) -> float:
        return float((own * runs(own, least).runs[owner]).sum())

    found: dict[str, tuple[float, float]] = {}
    for name, column in (
        ("flops", counts.flops),
        ("bytes_accessed", counts.bytes),
        ("transcendentals", counts.transcendentals),
    ):
        own = np.where(unit, np.nan_to_num(column), 0.0)
        found[name] = total(own, True), total(own, False)
    if roofline is not None:
        own = np.where(unit, np.nan_to_num(roofline.seconds), 0.0)
        sides = []
        for least in (True, False):
            taken = runs(own, least)
            other = replace(counts, runs=taken.runs[owner], execution=taken)
            sides.append(model(other, roofline.hardware).total_seconds)
        found["seconds"] = (min(sides), max(sides))
    return {k: v for k, v in found.items() if v[0] < v[1] * (1 - ROUNDING_SHARE)}


def wire_runs(counts: Counts) -> Floats:
    """Runs of each instruction if each conditional takes the branch that sends most."""
    calls = counts.execution.calls
    if not any(e.role is Role.BRANCH for e in calls.edges):
        return counts.runs
    sent = np.zeros(len(counts.runs))
    for t in counts.transfers:
        sent[t.start] += np.nan_to_num(t.wire_bytes)
    counted = count_runs(counts.module, calls, sent, trip_counts=counts.execution.trips)
    return np.asarray(counted.runs[table(counts.module).computation])
