"""Least and most of figures over the branches of conditionals, only one of which runs.

Totals count the branch of each conditional that takes most time on the chip, or does most work if
none is known. The actual figure of a step is between those of the branches with least and with
most; a conditional in a loop may take another branch each time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ...hardware import Hardware
from ..base.table import table
from .assumptions import ROUNDING_SHARE
from .counts import Counts
from .roofline.roofline import Roofline, model
from .runs import Role, Runs, branches_by_work, count_runs

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
        taken = branches_by_work(counts.module, calls, own, trips, least=least)
        return count_runs(counts.module, calls, taken, trips)

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
        own = np.where(unit, np.nan_to_num(roofline.seconds) + roofline.least, 0.0)
        sides = []
        for least in (True, False):
            sides.append(model(counts.running(runs(own, least)), roofline.hardware).total_seconds)
        found["seconds"] = (min(sides), max(sides))
    return {k: v for k, v in found.items() if v[0] < v[1] * (1 - ROUNDING_SHARE)}


def slowest_branches(counts: Counts, hardware: Hardware) -> Counts:
    """The counts if each conditional takes the branch that takes most time on ``hardware``."""
    calls = counts.execution.calls
    if not any(e.role is Role.BRANCH for e in calls.edges):
        return counts
    found = model(counts, hardware)
    seconds = np.where(counts.is_unit, np.nan_to_num(found.seconds) + found.least, 0.0)
    trips = counts.execution.trips
    taken = branches_by_work(counts.module, calls, seconds, trips)
    return counts.running(count_runs(counts.module, calls, taken, trips))


def wire_runs(counts: Counts) -> Floats:
    """Runs of each instruction if each conditional takes the branch that sends most."""
    calls, trips = counts.execution.calls, counts.execution.trips
    if not any(e.role is Role.BRANCH for e in calls.edges):
        return counts.runs
    sent = np.zeros(len(counts.runs))
    for t in counts.transfers:
        sent[t.start] += np.nan_to_num(t.wire_bytes)
    taken = branches_by_work(counts.module, calls, sent, trips)
    return counts.running(count_runs(counts.module, calls, taken, trips)).runs
