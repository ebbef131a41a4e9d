"""What recomputing the largest values live at the peak would cost, against what it would save.

A value that is made early and used late can be made again just before its late use. That
costs its own work once more, and that of everything it is made from that is no longer there
then; the search goes back until it reaches what is still live:

    x ──▶ h = x @ w ──▶ a = tanh(h)  ── … peak … ──▶ backward uses a
    x and w live then:   recompute h and a: one matmul, no collective, saves bytes of a

Gathered arrays are the usual find: they cost wire bytes instead of FLOPs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...hlo import Instruction
from ..cost.cost import Cost
from .liveness_values import TEMP
from .memory import LiveValue, Memory

_NOT_AGAIN = frozenset(
    "rng rng-bit-generator rng-get-and-update-state infeed outfeed send recv send-done recv-done "
    "while conditional call parameter".split()
)
# custom calls that only compute: libraries' matmuls and convolutions, and XLA's own
_PURE_CALL = re.compile(
    r"__(?:cublas|cudnn|onednn)\$|(?:TopK|Cholesky|LuDecomposition|Qr|Eigh|TriangularSolve)$"
)
_FREE = frozenset("tuple get-tuple-element bitcast constant iota partition-id replica-id".split())


@dataclass(frozen=True, slots=True)
class Recompute:
    """One value: ``saved_bytes`` at the peak against what making it again costs.

    ``flops``, ``bytes_accessed`` and ``wire_bytes`` are of one more execution of
    ``instructions``; ``seconds`` is modelled, None without a chip. ``reason`` is not empty
    when it cannot be made again, and says why; the figures are 0 then.
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
    """The ``count`` largest temporaries live at the peak, largest first."""
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
    """The point of the first use after the peak, or None when the peak itself uses it."""
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
    """Adds what must run again for ``i`` to be there at point ``when``; a reason if it cannot."""
    if i.index in chain:
        return ""
    if not _may_run_again(i):
        return f"it depends on {i.opcode} %{i.name}, which must not run twice"
    if depth > 24 or len(chain) > 64:
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
