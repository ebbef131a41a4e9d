"""The headline: step time, MFU, what bounds it, memory used of what there is."""

from __future__ import annotations

import numpy as np

from ..base.phases.phases import REMATERIALISED, phases
from ..cost.moves import moves
from .costliest import costliest
from .facts import Facts
from .finding import Headline


def headline(facts: Facts) -> Headline:
    """Modelled time; a measured step replaces it where a trace was joined (``with_step``)."""
    cost, r = facts.cost, facts.cost.roofline
    memory = facts.memory
    chip = cost.hardware
    bound, bound_share = "", 0.0
    seconds = facts.total_seconds
    if not facts.is_optimised:
        seconds = None  # nothing is fused yet: modelled time would mean nothing
    unknown = 0 if r is None else sum(bool(r.runs[i.index] > 0) for i in r.unmodelled)
    if r is not None and seconds and not unknown:  # else what is unknown may take longest
        # Copies that are not hidden: into VMEM at the rate of memory, or over the host's link.
        hosted = any(m.kind in ("from host", "to host") for m in moves(facts.module, facts.target))
        copies = r.copy_wait_seconds
        parts = {
            "compute": r.compute_seconds,
            "memory": r.memory_seconds + (0.0 if hosted else copies),
            "communication": r.exposed_seconds,
            "copies to and from the host": copies if hosted else 0.0,
        }
        bound = max(parts, key=lambda k: parts[k])
        bound_share = parts[bound] / seconds
    least = cost.ranges.get("seconds", (None,))[0] if seconds else None
    once = cost.may_not_run
    largest, largest_bytes = next(iter(memory.by_category.items()), ("", 0))
    again = facts.redundant_share
    return Headline(
        hardware=chip.label if chip is not None else None,
        seconds=seconds,
        seconds_are="modelled" if seconds else "unknown",
        is_least=bool(seconds and not once and r is not None)
        and bool(cost.unknown_trip_counts or (r is not None and r.is_least)),
        is_one_trip=bool(seconds and once),
        is_optimised=facts.is_optimised,
        mfu=mfu(facts, least or seconds),
        mfu_without_recomputed=_without_recomputed(facts, least or seconds),
        bound_by=bound,
        bound_share=bound_share,
        peak_bytes=memory.peak_bytes,
        memory_bytes=chip.memory_bytes if chip is not None else None,
        largest=largest,
        largest_bytes=largest_bytes,
        unknown=unknown,
        redundant=again,
        at_most=tuple(n for n in cost.most_trips if n is not None)
        if None not in cost.most_trips
        else (),
        costliest=costliest(facts),
        seconds_least=least,
    )


def mfu(facts: Facts, seconds: float | None) -> float | None:
    """FLOPs for the matrix unit over what the chip could do in ``seconds``, or None.

    Those that kernels' authors declare are included: attention, grouped matmuls. Types that are
    slower than bf16 count at its rate, as is usual; faster ones at their own, and those without a
    known rate at the chip's fastest, so that the figure never exceeds 1. None without a chip, and
    where FLOPs are unknown: neither FLOPs nor time are then a bound. One trip of a loop says
    nothing of the share that all trips have.
    """
    cost = facts.cost
    chip = cost.hardware
    if chip is None or not seconds or cost.unknown_trip_counts or facts.unknown_products:
        return None
    usual = max(chip.matmul.get("bf16", 0.0), chip.matmul.get("f16", 0.0))
    if not usual:
        return None
    fastest = max(chip.matmul.values())
    rates = {d: max(usual, chip.matmul_rate(d) or fastest) for d in set(cost.matmul_dtype)}
    work = np.where(cost.is_unit, np.nan_to_num(cost.matrix_flops) * cost.runs, 0.0)
    ideal = sum(float(work[n]) / rates[cost.matmul_dtype[n]] for n in np.flatnonzero(work).tolist())
    return ideal * (1 - facts.redundant_share) / seconds


def _without_recomputed(facts: Facts, seconds: float | None) -> float | None:
    """``mfu`` without the FLOPs that the backward pass does again; None where there are none."""
    cost = facts.cost
    whole = mfu(facts, seconds)
    if not whole:
        return None
    flops = np.nan_to_num(cost.work.matrix_flops) * cost.execution.runs[facts.table.computation]
    again = float(flops[phases(facts.module) == REMATERIALISED].sum())
    return whole * (1 - again / cost.total_matrix_flops) if again else None
