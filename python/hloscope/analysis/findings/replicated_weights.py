"""Weights that every device holds whole beside others of one argument that are cut.

params  w_in  f32[24,2048,1024]   P(None, None, 'model')
        w_mod f32[24,2048,12288]  replicated: left out of the specs, and most of the peak
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ..comms.arrays import ShardedArray
from ..comms.sharding import shardings
from ..memory.memory import LiveValue
from ..text.units import size
from . import limits
from .facts import Facts
from .finding import Finding, percent

_AS_THE_REST = (
    "shard them as the rest of that argument, along a dimension that no loop over layers goes"
    " along; what uses them then works on parts, or gathers them"
)


def replicated_weights(facts: Facts) -> Iterator[Finding]:
    """Arrays that were left out of the specs by which the rest of their argument is cut."""
    chip, peak, n = facts.cost.hardware, facts.memory.peak_bytes, len(facts.target.devices)
    if chip is None or n < 2 or peak < limits.ROOMY_SHARE * chip.memory_bytes:
        return
    held = {
        v.instruction.index: v
        for v in facts.memory.live_at_peak
        if v.kind == "argument" and v.category != "optimiser state"
    }
    trees: dict[str, list[ShardedArray]] = defaultdict(list)
    for a in shardings(facts.module, facts.target):
        if a.role == "parameter" and a.instruction is not None and a.sharding.is_known:
            trees[re.split(r"[\[.]", a.name, maxsplit=1)[0]].append(a)
    for tree, arrays in trees.items():
        cut = [a for a in arrays if a.replicas < n and len(a.global_shape) > 1]
        k = n // min((a.replicas for a in cut), default=n)
        whole = [
            (held[a.instruction.index], a)
            for a in arrays
            if a.replicas >= n
            and a.instruction is not None
            and a.instruction.index in held
            and len(a.global_shape) > 1
            and any(d % k == 0 for d in a.global_shape)
        ]
        total = sum(v.bytes for v, _ in whole)
        # arrays are held throughout, so that each byte counts at every point
        gain = int(total * (1 - 1 / k))
        if len(cut) < 2 or not whole or gain < limits.REPLICATED_SHARE * peak:
            continue
        whole.sort(key=lambda row: -row[0].bytes)
        yield _finding(facts, tree, [v for v, _ in whole], cut, gain)


def _finding(
    facts: Facts, tree: str, whole: list[LiveValue], cut: list[ShardedArray], gain: int
) -> Finding:
    peak = facts.memory.peak_bytes
    most = max(cut, key=lambda a: a.global_bytes)
    total = sum(v.bytes for v in whole)
    them = ", ".join(f"`{v.name}`" for v in whole[:3])
    more = f" and {len(whole) - 3:,} more" if len(whole) > 3 else ""
    return Finding(
        "replicated-weights",
        f"{size(total)} of `{tree}` is whole on all {len(facts.target.devices):,} devices,"
        f" {percent(total / peak)} of the peak, though the rest of it is sharded",
        f"{them}{more} {'are' if len(whole) > 1 else 'is'} replicated, where `{most.name}` is given"
        f" as {most.text}",
        _AS_THE_REST,
        facts.peak_share(gain),
        None,
        gain,
        "peak memory",
        tuple(v.instruction for v in whole),
        None,
    )
