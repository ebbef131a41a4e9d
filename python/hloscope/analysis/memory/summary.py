"""What cost and memory add to ``hloscope summary --json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...hlo import Module, Target
from ..cost.cost import estimated
from ..text.units import duration, marked, spanned
from .memory import analysed


def costs(module: Module, target: Target) -> dict[str, Any]:
    """FLOPs, bytes, modelled seconds; {} for a module that is not HLO or has no ENTRY.

    ``hardware`` and ``modelled_seconds`` are None if the chip is not known.
    """
    if module.dialect != "hlo" or module.entry is None:
        return {}
    found = estimated(module, target).totals()
    keys = ("flops", "bytes_accessed", "trip_counts_unknown", "estimated_cycles")
    out = {k: found[k] for k in keys}
    if zero := found["trip_counts_may_be_zero"]:
        out["trip_counts_may_be_zero"] = zero
    out |= {k: v for k, v in found.items() if k.endswith(("_least", "_most"))}
    out["hardware"] = found.get("hardware")
    out["modelled_seconds"] = found.get("modelled_seconds")
    return out


def step_in_words(s: Mapping[str, Any]) -> str | None:
    """The modelled step of a summary: "≥ 46.9 ms", "1 ms – 2 ms", "5 ms (1 trip)", "unknown".

    None where no chip is known, and before partitioning: no single chip runs a program for many.
    """
    seconds = s.get("modelled_seconds")
    if seconds is None or s["shapes"] != "local":
        return None
    one_trip = bool(s.get("trip_counts_may_be_zero"))
    is_least = not one_trip and bool(s["trip_counts_unknown"] or seconds.get("total_is_least"))
    low, most = seconds.get("total_least", seconds["total"]), seconds["total"]
    if most is None:
        return "unknown"
    total = spanned(low, low if is_least else most, duration)
    return marked(total, is_least=is_least, is_one_trip=one_trip)


def peaks(module: Module, target: Target) -> dict[str, Any]:
    """Peak of live bytes in one device's main memory, the source of the figure, and the peak of
    each memory by name: HBM, VMEM, host, …"""
    if module.dialect != "hlo" or module.entry is None:
        return {}
    memory = analysed(module, target)
    return {
        "peak_live_bytes": memory.peak_bytes,
        "peak_source": memory.peak_source,
        "peak_by_memory": {s.name: s.peak_bytes for s in memory.spaces},
    }
