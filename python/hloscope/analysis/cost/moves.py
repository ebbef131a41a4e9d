"""Transfers that run in parallel to computation: to fast memory, to and from the host, collectives.

    %s = copy-start(%w)         start  ┐
    %f = fusion(…)                     │ work between
    %d = copy-done(%s)                 ┘
    %g = fusion(%d, …)                   the user

One move may be cut into slices: ``slice-start`` ×4, ``slice-done`` ×4 and the ``ConcatBitcast``
that joins them. A move is hidden if the work between start and done covers its seconds; what it
does not cover is exposed **at most**: a copy may also have started earlier, in the previous run.
Moves of one kind share a path and queue for it in schedule order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ...hlo import Instruction, Module, Target
from ..base.memory_spaces import HOST, main_spaces, memory_space, platform
from ..base.memory_tiling import storage_bytes
from ..base.table import per_target, table
from .copies import copy_ends, done_of, is_asynchronous
from .cost import Cost, estimated

CONCAT = "ConcatBitcast"


@dataclass(frozen=True)
class Move:
    """Instruction indices; ``seconds`` and ``exposed`` are modelled for one run, NaN if unknown."""

    starts: tuple[int, ...]
    end: int  # what the users read: a done, or the op that joins the slices
    source: int
    kind: str  # "prefetch", "write-back", "to host", "from host", "copy", or a collective
    bytes: float
    seconds: float
    exposed: float


@per_target
def moves(module: Module, target: Target) -> tuple[Move, ...]:
    """The asynchronous moves of a scheduled module, in schedule order."""
    t = table(module)
    by_end: dict[int, list[tuple[Instruction, Instruction]]] = defaultdict(list)
    for k in np.flatnonzero(t.by_opcode(is_asynchronous, bool)).tolist():
        start = module.instructions[k]
        done = done_of(start)
        if done is None:
            continue
        users = done.users
        joined = len(users) == 1 and users[0].custom_call_target == CONCAT
        by_end[(users[0] if joined else done).index].append((start, done))
    cost = estimated(module, target)
    if not by_end and not cost.transfers:
        return ()
    clock = _clock(cost)
    free: dict[tuple[int, str], float] = {}
    out = []
    main = main_spaces(platform(module, target))
    for end, pairs in sorted(by_end.items(), key=lambda x: x[1][0][0].index):
        kind, size = _kind(pairs[0][0], main), sum(_bytes(s) for s, _ in pairs)
        seconds = exposed = float("nan")
        if clock is not None and cost.roofline is not None:
            each = [float(cost.roofline.seconds[s.index]) for s, _ in pairs]
            way = (pairs[0][0].computation.index, kind)
            late = 0.0
            for (s, d), took in zip(pairs, each, strict=True):
                begin = max(clock[s.index], free.get(way, 0.0))
                free[way] = begin + took
                late = max(late, begin + took - clock[d.index])
            seconds, exposed = sum(each), max(0.0, late)
        starts = tuple(s.index for s, _ in pairs)
        source = pairs[0][0].operands[0].index
        out.append(Move(starts, end, source, kind, size, seconds, exposed))
    return tuple(sorted([*out, *_collectives(cost)], key=lambda m: m.starts))


def _collectives(cost: Cost) -> list[Move]:
    module, r, unknown = cost.module, cost.roofline, float("nan")
    out = []
    for k, x in enumerate(cost.transfers):
        start = module.instructions[x.start]
        if x.start == x.done or not start.operands or x.collective < 0:
            continue
        out.append(
            Move(
                (x.start,), x.done, x.start, start.opcode.removesuffix("-start"), x.wire_bytes,
                unknown if r is None else float(r.transfer_seconds[k]),
                unknown if r is None else float(r.exposed[x.done]),
            )
        )  # fmt: skip
    return out


def _bytes(start: Instruction) -> float:
    ends = copy_ends(start)
    return float(min(map(storage_bytes, ends))) if ends else float("nan")


def _kind(start: Instruction, main: tuple[int, ...]) -> str:
    ends = copy_ends(start)
    if ends is None:
        return "copy"
    source, target = memory_space(ends[0]), memory_space(ends[1])
    if (source == HOST) != (target == HOST):
        return "from host" if source == HOST else "to host"
    if source in main and target not in main:
        return "prefetch"
    return "write-back" if target in main and source not in main else "copy"


def _clock(cost: Cost) -> list[float] | None:
    """When each instruction is reached in its computation, in the modelled timeline."""
    line = cost.timeline
    if line is None:
        return None
    ends: dict[int, float] = {}
    for n, lane, start, took in zip(
        line.instruction.tolist(), line.lane.tolist(), line.start.tolist(), line.duration.tolist(),
        strict=True,
    ):  # fmt: skip
        if lane <= 1:  # compute, waiting
            ends[n] = max(ends.get(n, 0.0), start + took)
    out = [0.0] * len(cost.module.instructions)
    for c in cost.module.computations:
        now = 0.0
        for i in c.instructions:
            out[i.index] = now
            now = max(now, ends.get(i.index, 0.0))
    return out
