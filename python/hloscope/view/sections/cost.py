"""Cost columns and the chips to model time on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from ...analysis.comms.partitions import shapes
from ...analysis.cost.chip import for_target, likely_chips
from ...analysis.cost.copies import copies
from ...analysis.cost.cost import Cost, estimated
from ...analysis.cost.roofline.executed import slice_of
from ...analysis.cost.roofline.roofline import reach
from ...analysis.memory.summary import costs, step_in_words
from ...hardware import Hardware, choose, load
from ...hlo.collective_kinds import is_collective
from ..builder import Builder
from ..context import Context

if TYPE_CHECKING:
    from ..header import Chip, Totals


def add(builder: Builder, context: Context) -> None:
    """Writes ``cost.*`` and ``transfer.*``; nothing for a module that is not HLO."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    cost = estimated(module, context.target)
    dtypes = sorted(set(cost.matmul_dtype) - {""})
    position = {d: k for k, d in enumerate(dtypes)} | {"": 0}
    b = builder
    b.column("cost.flops", cost.flops)
    b.column("cost.matmul_flops", cost.matrix_flops)
    b.column("cost.transcendentals", cost.transcendentals)
    b.column("cost.bytes", cost.bytes)
    b.column("cost.main_bytes", cost.main_bytes)
    b.column("cost.runs", cost.runs)
    collective = context.table.by_opcode(is_collective, bool)
    moved = copies(module)
    kind = np.where(moved.is_copy, 3, 1 + collective)
    b.column("cost.unit", np.where(cost.is_unit, kind, 0))
    if moved.from_host.any() or moved.to_host.any():
        b.column("cost.from_host", moved.from_host)
        b.column("cost.to_host", moved.to_host)
    b.column("cost.dtype", np.array([position[d] for d in cost.matmul_dtype], np.int64))
    loops = cost.execution.loop[context.table.computation]
    if cost.execution.unknown:
        b.column("cost.loop", loops)
        conditions = cost.execution.condition[context.table.computation]
        b.column("cost.condition", conditions)
    if cost.estimated_cycles:
        cycles = np.full(len(module.instructions), np.nan)
        cycles[list(cost.estimated_cycles)] = list(cost.estimated_cycles.values())
        b.column("cost.cycles", cycles)
    chips = {name: for_target(h, context.target) for name, h in load().items()}
    sides = sorted({h.matrix_side for h in chips.values()} - {0})
    filled = np.array([cost.filled_flops(side) for side in sides]).reshape(len(sides), -1)
    rows = np.flatnonzero((filled != np.nan_to_num(cost.matrix_flops)).any(axis=0) & cost.is_unit)
    if len(rows):
        b.column("filled.instruction", rows)
        b.column("filled.flops", filled[:, rows].T.ravel())
    transfers = cost.transfers
    reaches = sorted({reach(h) for h in chips.values()})
    if transfers:
        for name in ("start", "done"):
            b.column(f"transfer.{name}", [getattr(t, name) for t in transfers])
        b.column("transfer.far", [int(t.is_far) for t in transfers])
        b.column("transfer.bytes", [t.wire_bytes for t in transfers])
        starts = [t.start for t in transfers]
        runs = cost.wire_runs[starts]
        if (runs != cost.runs[starts]).any():
            b.column("transfer.runs", runs)
        levels = [t.levels[k] for t in transfers for k in reaches]
        for name in ("switch", "torus", "far"):
            for which, part in enumerate(("steps", "bytes")):
                values = [getattr(x, name)[which] for x in levels]
                b.column(f"transfer.{name}_{part}", values)
    if cost.roofline is not None:
        b.column("cost.seconds", cost.roofline.seconds)
        b.column("cost.step", cost.roofline.step_seconds)
        if transfers:
            runs = cost.runs[[t.start for t in transfers]]
            b.column("transfer.seconds", cost.roofline.transfer_seconds * runs)
            b.column("transfer.waited", cost.roofline.waited_seconds)
        b.column("cost.bound", cost.roofline.bound_by)
    own = choose(context.target.device_kind, context.target.platform)
    context.extras["cost"] = {
        "dtypes": dtypes,
        "reaches": len(reaches),
        "sides": len(sides),
        "hardware": [_chip(h, dtypes, reaches, sides) for h in chips.values()],
        "chosen": cost.hardware.id if cost.hardware is not None else None,
        "own": own.id if own is not None else None,
        "likely": list(likely_chips(module, context.target)),
        "step": step_in_words(
            {**costs(module, context.target), "shapes": shapes(module, context.target)}
        ),
        "totals": _totals(cost),
        "torusIsKnown": all(t.torus_is_known for t in transfers),
        "assumedSlice": "×".join(map(str, slice_of(module, context.target))),
        "unknownLoops": [
            {"instruction": i.index, "parent": p}
            for i, p in zip(cost.execution.unknown, cost.execution.unknown_parent, strict=True)
        ],
        "ranges": {k: list(v) for k, v in cost.ranges.items()},
        "branchesLeftOut": list(cost.execution.branches_left_out),
        "xla": [
            {
                "quantity": x.quantity,
                "xla": x.xla,
                "ours": x.ours,
                "loops": x.loops,
                "customCalls": x.custom_calls,
                "other": None if x.other is None else x.other + x.branches,
            }
            for x in cost.xla
            if x.xla is not None
        ],
    }


def _totals(cost: Cost) -> Totals:
    r = cost.roofline
    return {
        "flops": cost.total_flops,
        "bytes": cost.total_bytes,
        "compute": 0.0 if r is None else r.compute_seconds,
        "memory": 0.0 if r is None else r.memory_seconds,
        "collective": 0.0 if r is None else r.collective_seconds,
        "exposed": 0.0 if r is None else r.exposed_seconds,
        "copies": 0.0 if r is None else r.copy_wait_seconds,
        "least": 0.0 if r is None else r.least_seconds,
        "total": 0.0 if r is None else r.total_seconds,
        "unknown": 0 if r is None else sum(bool(r.runs[i.index] > 0) for i in r.unmodelled),
    }


def _chip(h: Hardware, dtypes: list[str], reaches: list[int], sides: list[int]) -> Chip:
    return {
        "id": h.id,
        "label": h.label,
        "memoryBytes": h.memory_bytes,
        "memoryBandwidth": h.memory_bandwidth,
        "hostBandwidth": h.host_bandwidth or h.memory_bandwidth,
        "matmul": [h.matmul_rate(d) for d in dtypes],
        "peak": max(h.matmul.values()),
        "vector": h.vector,
        "clock": h.clock,
        "reach": reaches.index(reach(h)),
        "side": sides.index(h.matrix_side) if h.matrix_side else None,
        "links": [
            {
                "name": x.name,
                "kind": cast(Literal["torus", "switch"], x.kind),
                "bytesPerSecond": x.bytes_per_second,
                "latency": x.latency,
                "group": x.group,
            }
            for x in h.links
        ],
        "source": list(h.source),
    }
