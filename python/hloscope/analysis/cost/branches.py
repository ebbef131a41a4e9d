"""Least and most of figures over the branches of conditionals, only one of which runs.

``Cost`` counts the branch of each conditional with most work. The actual figure of a step is
between those of the branches with least and with most; a conditional in a loop may take another
branch each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..base.table import table
from .runs import Role, count_runs

if TYPE_CHECKING:
    from .cost import Cost

Floats = npt.NDArray[np.float64]


def branch_ranges(cost: Cost) -> Mapping[str, tuple[float, float]]:
    """(least, most) of "flops", "bytes_accessed", "transcendentals" and, with a chip, "seconds".

    Only figures that differ: {} for a program without conditionals, or with equal branches.
    """
    calls = cost.execution.calls
    t = table(cost.module)
    owner = t.computation
    if not any(e.role is Role.BRANCH and calls.executed[owner[e.caller]] for e in calls.edges):
        return {}
    unit = cost.is_unit
    found: dict[str, tuple[float, float]] = {}

    def runs(own: Floats, least: bool) -> Floats:
        counted = count_runs(cost.module, calls, own, counts=cost.execution.trips, least=least)
        return np.asarray(counted.runs[owner])

    for name, column in (
        ("flops", cost.flops),
        ("bytes_accessed", cost.bytes),
        ("transcendentals", cost.transcendentals),
    ):
        own = np.where(unit, np.nan_to_num(column), 0.0)
        found[name] = (float((own * runs(own, True)).sum()), float((own * runs(own, False)).sum()))
    if cost.roofline is not None:
        own = np.where(unit, np.nan_to_num(cost.roofline.seconds), 0.0)
        sides = []
        for least in (True, False):
            counted = count_runs(cost.module, calls, own, counts=cost.execution.trips, least=least)
            other = replace(cost, runs=counted.runs[owner], execution=counted, roofline=None)
            roofline = other.on(cost.roofline.hardware).roofline
            sides.append(roofline.total_seconds if roofline is not None else 0.0)
        found["seconds"] = (min(sides), max(sides))
    return {k: v for k, v in found.items() if v[0] < v[1] * (1 - 1e-12)}


def wire_runs(cost: Cost) -> Floats:
    """Runs of each instruction if each conditional takes the branch that sends most."""
    calls = cost.execution.calls
    if not any(e.role is Role.BRANCH for e in calls.edges):
        return cost.runs
    sent = np.zeros(len(cost.runs))
    for t in cost.transfers:
        sent[t.start] += np.nan_to_num(t.wire_bytes)
    counted = count_runs(cost.module, calls, sent, counts=cost.execution.trips)
    return np.asarray(counted.runs[table(cost.module).computation])
