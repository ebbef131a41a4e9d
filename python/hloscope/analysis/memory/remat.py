"""What recomputing the largest values live at the peak would cost, and what it would save.

A value that is made early and used late can be recomputed just before its late use. That costs
its own work again, and that of all its inputs that are no longer live then; the search goes back
until it reaches values that are still live:

    x ──▶ h = x @ w ──▶ a = tanh(h)  ── … peak … ──▶ backward uses a
    x and w live then:   recompute h and a: one matmul, no collective, saves bytes of a

Typical candidates are gathered arrays: they cost wire bytes instead of FLOPs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...hlo import Instruction, opcodes
from ..cost.cost import Cost
from .limits import RECOMPUTE_DEPTH, RECOMPUTE_INSTRUCTIONS
from .liveness.values import TEMP
from .memory import LiveValue, Memory

_NOT_AGAIN = (
    opcodes.RANDOM
    | opcodes.with_halves("infeed", "outfeed", "send", "recv")
    | opcodes.LOOPS
    | opcodes.BRANCHES
    | {"call", "parameter"}
)
# pure custom calls: library matmuls and convolutions, and XLA's own
_PURE_CALL = re.compile(
    r"__(?:cublas|cudnn|onednn)\$|(?:TopK|Cholesky|LuDecomposition|Qr|Eigh|TriangularSolve)$"
)
_FREE = opcodes.BUNDLES | opcodes.LITERALS | opcodes.DEVICE_IDS | {"bitcast"}


@dataclass(frozen=True, slots=True)
class Recompute:
    """One value: ``saved_bytes`` at the peak against the cost of recomputing it.

    ``flops``, ``bytes_accessed`` and ``wire_bytes`` are for one more execution of
    ``instructions``; ``seconds`` is modelled, None without a chip. If it cannot be recomputed,
    ``reason`` says why and the costs are 0.
    """

    value: LiveValue
    saved_bytes: int
    flops: float
    bytes_accessed: float
    wire_bytes: float
    seconds: float | None
    instructions: tuple[Instruction, ...]
    reason: str = ""


def what_if(memory: Memory, cost: Cost, count: int = 20) -> tuple[Recompute, ...]:
    """Cost and saving of recomputing the ``count`` largest temporaries live at the peak."""
    live = memory.liveness
    held = live.live_at(memory.peak_point, memory.main_spaces)
    rows = [b for b in held.tolist() if live.kind[b] == TEMP]
    return tuple(_recompute(memory, cost, b) for b in rows[:count])


def _recompute(memory: Memory, cost: Cost, buffer: int) -> Recompute:
    live = memory.liveness
    value = memory.value(buffer)
    size = int(live.size[buffer])
    if live.has_several[buffer]:
        return _refused(value, size, "a loop carries it: change what the loop stores")
    last = _use_after(memory, buffer)
    if last is None:
        return _refused(value, size, "it is needed at the peak itself")
    chain: dict[int, Instruction] = {}
    reason = _chain(memory, value.instruction, last, chain, 0)
    if reason:
        return _refused(value, size, reason)
    picked = sorted(chain)
    wire = sum(t.wire_bytes for t in cost.transfers if t.start in chain)
    r = cost.roofline
    return Recompute(
        value,
        size,
        float(np.nansum(cost.flops[picked])),
        float(np.nansum(cost.bytes[picked])),
        float(wire),
        None if r is None else float(np.nansum(r.seconds[picked])),
        tuple(chain[n] for n in picked),
    )


def _refused(value: LiveValue, size: int, reason: str) -> Recompute:
    return Recompute(value, size, 0.0, 0.0, 0.0, None, (), reason)


def _use_after(memory: Memory, buffer: int) -> int | None:
    """The point of the last use; None unless it is live across the peak and not used there."""
    live = memory.liveness
    peak = memory.peak_point
    if int(live.start[buffer]) >= peak or int(live.end[buffer]) <= peak:
        return None
    at_peak = memory.module.instructions[int(live.schedule[peak])]
    first = live.values.first
    for o in at_peak.operands:
        if first[o.index] >= 0 and any(
            int(live.buffer_of[v]) == buffer for v in live.values.nodes(o)
        ):
            return None
    return int(live.end[buffer])


def _may_run_again(i: Instruction) -> bool:
    if i.opcode == "custom-call":
        return bool(_PURE_CALL.match(i.custom_call_target or ""))
    return i.opcode not in _NOT_AGAIN


def _chain(
    memory: Memory, i: Instruction, when: int, chain: dict[int, Instruction], depth: int
) -> str:
    """Add what must run again to have ``i`` at point ``when``; return a reason if impossible."""
    if i.index in chain:
        return ""
    if not _may_run_again(i):
        return f"it depends on {i.opcode} %{i.name}, which must not run twice"
    if depth > RECOMPUTE_DEPTH or len(chain) > RECOMPUTE_INSTRUCTIONS:
        return "recomputing it would reach too far back"
    live = memory.liveness
    if i.opcode not in _FREE:
        chain[i.index] = i
    for o in i.operands:
        nodes = live.values.nodes(o)
        if not len(nodes):
            return "its operands are not in the schedule"
        held = all(
            live.kind[b] != TEMP or int(live.end[b]) >= when
            for b in (int(live.buffer_of[v]) for v in nodes)
        )
        if not held:
            reason = _chain(memory, o, when, chain, depth + 1)
            if reason:
                return reason
    return ""
