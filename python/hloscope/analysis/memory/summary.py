"""What cost and memory add to ``hloscope summary --json``."""

from __future__ import annotations

from typing import Any

from ...hlo import Module, Target
from ..cost.cost import estimated
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
    out |= {k: v for k, v in found.items() if k.endswith(("_least", "_most"))}
    out["hardware"] = found.get("hardware")
    out["modelled_seconds"] = found.get("modelled_seconds")
    return out


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
