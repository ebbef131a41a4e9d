"""The headline: step time, MFU, what bounds it, memory used of what there is."""

from __future__ import annotations

from ..cost.moves import moves
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
    if r is not None and seconds:
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
    largest, largest_bytes = next(iter(memory.by_category.items()), ("", 0))
    return Headline(
        hardware=chip.label if chip is not None else None,
        seconds=seconds,
        seconds_are="modelled" if seconds else "unknown",
        is_least=bool(seconds and r is not None and r.unknown_transfers),
        is_optimised=facts.is_optimised,
        mfu=mfu(facts, seconds),
        bound_by=bound,
        bound_share=bound_share,
        peak_bytes=memory.peak_bytes,
        memory_bytes=chip.memory_bytes if chip is not None else None,
        largest=largest,
        largest_bytes=largest_bytes,
    )


def mfu(facts: Facts, seconds: float | None) -> float | None:
    """FLOPs for the matrix unit over what the chip could do in ``seconds``; None without a chip.

    Those that kernels' authors declare are included: attention, grouped matmuls.
    """
    cost = facts.cost
    if cost.hardware is None or not seconds:
        return None
    peak = max(cost.hardware.matmul.get("bf16", 0.0), cost.hardware.matmul.get("f16", 0.0))
    return cost.total_matrix_flops / (peak * seconds) if peak else None
