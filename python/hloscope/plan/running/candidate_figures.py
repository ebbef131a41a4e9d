"""Figures of one compiled candidate, as plain data that travels between processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...api.capture import Capture
from ...hlo.collective_kinds import kind_of

# name → words for it, and its unit
COSTS = {
    "time": ("modelled step time", "s"),
    "wire": ("bytes on the wire", "B"),
    "memory": ("peak memory", "B"),
    "log": ("0.001·Σ m·n·k + Σ elements sent", ""),
    "custom": ("the given function", ""),
}


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """Figures per device and execution. None and NaN are unknown.

    ``seconds`` is modelled on ``hardware``; ``peak_bytes`` is what ``peak_source`` says;
    ``collectives`` are (kind, axes, how many, wire bytes of all their executions).
    """

    seconds: float | None
    hardware: str
    wire_bytes: float | None
    peak_bytes: float
    peak_source: str
    flops: float
    matmul_flops: float
    argument_bytes: float | None  # XLA's own, as temp_bytes and output_bytes
    temp_bytes: float | None
    output_bytes: float | None
    log_cost: float
    collectives: tuple[tuple[str, str, int, float | None], ...]
    useless: tuple[str, ...]  # collectives that move nothing but a constant
    notes: tuple[str, ...] = ()
    custom: float | None = None
    bytes_accessed: float | None = None  # per device and step
    instructions: int | None = None

    def cost(self, name: str) -> float:
        """The cost of that name; infinite if it is unknown, so that it never wins."""
        value = {
            "time": self.seconds,
            "wire": self.wire_bytes,
            "memory": self.peak_bytes,
            "log": self.log_cost,
            "custom": self.custom,
        }[name]
        return math.inf if value is None or math.isnan(value) else float(value)


def figures(
    cap: Capture, hardware: str | None = None, custom: Callable[[Capture], float] | None = None
) -> CandidateFigures:
    """The figures that a search ranks by. ``custom`` is the user's own cost of a capture."""
    cost = cap.cost(hardware)
    memory = cap.memory
    stats = cap.target.memory_stats
    found = cap.collectives
    kinds: dict[tuple[str, str], tuple[int, float | None]] = {}
    notes = []
    for c in found:
        key = (c.kind, str(c.axes if c.axes is not None else "devices"))
        times = c.counted
        count, sent = kinds.get(key, (0, 0.0))
        one = c.total_wire_bytes
        kinds[key] = (count + times, None if sent is None or one is None else sent + one)
    unknown = [c.name for c in found if c.wire_bytes is None]
    if unknown:
        notes.append(f"no wire bytes are known of {', '.join(unknown[:3])}")
    if cost.unknown_trip_counts:
        notes.append(f"loops counted once: {', '.join(cost.unknown_trip_counts[:3])}")
    if cost.unknown_flops:
        notes.append(f"FLOPs unknown for {len(cost.unknown_flops)} instructions")
    roofline = cost.roofline
    made = CandidateFigures(
        seconds=None if roofline is None or roofline.unknown_transfers else roofline.known_seconds,
        hardware="" if roofline is None else roofline.hardware.id,
        wire_bytes=None if unknown else float(found.total.wire_bytes),
        peak_bytes=float(memory.peak_bytes),
        peak_source=memory.peak_source,
        flops=cost.total_flops,
        matmul_flops=cost.total_matmul_flops,
        argument_bytes=_stat(stats, "argument_size_in_bytes"),
        temp_bytes=_stat(stats, "temp_size_in_bytes"),
        output_bytes=_stat(stats, "output_size_in_bytes"),
        log_cost=log_cost(cap),
        collectives=tuple((k, a, n, b) for (k, a), (n, b) in sorted(kinds.items())),
        useless=tuple(c.name for c in found if c.moves is not None and c.moves.kind == "constant"),
        notes=tuple(notes),
        bytes_accessed=cost.total_bytes,
        instructions=len(cap.module.instructions),
    )
    return made if custom is None else replace(made, custom=float(custom(cap)))


def log_cost(cap: Capture) -> float:
    """The cost that an xmap search of 2021 printed: gemms by m·n·k, collectives by elements.

    0.001 · Σ m·n·k of matmuls + Σ 2·elements of all-reduces + Σ devices·elements of
    all-gathers (what one device contributes) + Σ elements of all-to-alls, all executions counted; a
    collective-permute makes it infinite. Kinds that it did not know count 0.
    """
    cost = 0.001 * cap.cost().total_matmul_flops / 2
    for c in cap.collectives:
        times = c.counted
        given = sum(leaf.elements for o in c.instruction.operands for leaf in o.shape.leaves())
        if kind_of(c.kind).is_pairwise:
            return math.inf
        factor = {"all-reduce": 2, "all-gather": c.group_size, "all-to-all": 1}.get(c.kind, 0)
        cost += times * factor * given
    return cost


def _stat(stats: Any, name: str) -> float | None:
    value = stats.get(name)
    return None if value is None else float(value)


def to_plain(f: CandidateFigures) -> dict[str, Any]:
    """Plain data for JSON; ``from_plain`` reads it back."""
    return asdict(f)


def from_plain(found: dict[str, Any]) -> CandidateFigures:
    """Figures from the plain data that ``to_plain`` made, after JSON."""
    known = dict(found)
    known["collectives"] = tuple(tuple(c) for c in known["collectives"])
    for name in ("useless", "notes"):
        known[name] = tuple(known[name])
    return CandidateFigures(**known)
