"""Work that several devices do alike: FLOPs per device times devices, against the program's own.

    the program before partitioning     2 · 64 · 512 · 1024 · 4096 FLOP on train.py:31
    what each of 8 devices runs           2 · 32 · 512 · 1024 · 4096 FLOP on train.py:31

Lines are compared, as the compiler keeps them. What is written for one device alone
(``shard_map``) has no figure for all: its lines are left out, and so are operations whose FLOPs
are unknown.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ...hlo import Instruction, Mesh, Module, StackFrame, Target, opcodes, walk
from ...hlo.opcodes import Effect
from ...hlo.shardings.sharding_text import parse_sharding
from ...hlo.shardings.specs import spec_of
from ..base.lines.frames import own_line
from ..base.table import per_target
from ..cost.cost import Cost, estimate, estimated
from . import limits
from .whole_operations import dimensions_of, ints

# Arithmetic that no rewriting of elementwise work changes.
_HEAVY = opcodes.PRODUCTS | opcodes.that(Effect.MIXES) | {"custom-call"}
Place = tuple[str, int]


@dataclass(frozen=True)
class Redundant:
    """One line whose work is done ``times`` over. FLOPs are per device and step."""

    frame: StackFrame
    flops: float
    extra: float  # the part that would be left out if every device did its own share
    times: float
    instructions: tuple[Instruction, ...]  # the heaviest first
    source: Instruction  # the heaviest, in the program before partitioning
    devices: int
    # Why: what is no longer sharded, in the program before partitioning; so many devices, where
    # nothing shards its operands over the others; operands that are sharded, which the partitioner
    # has no rule to use.
    lost_at: Instruction | None
    sharded_over: int = 0
    has_no_rule: bool = False
    is_along: bool = False  # what is sharded of them is what it goes along
    # Axes over which a product's operands are cut along what it contracts, no axis in both.
    crossed: tuple[str, ...] = ()


def redundant(module: Module, target: Target) -> tuple[Redundant, ...]:
    """Lines whose work several devices do alike, most of it first; () without the program
    before partitioning, as in a dump."""
    return _redundant(module, target)


@per_target
def _redundant(module: Module, target: Target) -> tuple[Redundant, ...]:
    devices = module.num_partitions
    read = target.before_partitioning
    before = read() if read is not None and devices > 1 else None
    if before is None or before.entry is None or module.entry is None:
        return ()
    own = _by_line(estimate(before, Target()))
    held = _by_line(estimated(module, target))
    manual = {_place(i) for i in before.instructions if _is_manual(i)}
    total = sum(flops for flops, _ in held.values())
    out = []
    for place, (flops, rows) in held.items():
        whole, sources = own.get(place, (0.0, ()))
        if not whole or place in manual:
            continue
        times = flops * devices / whole
        extra = flops - whole / devices
        if times < limits.REDUNDANT_TIMES or extra < limits.REDUNDANT_SHARE * total:
            continue
        frame = own_line(rows[0].frames)
        assert frame is not None
        first = sources[0]
        parts = max((_count(o) for o in first.operands), default=1)
        # Of other operations than products: more parts than are made use of.
        if first.opcode not in opcodes.PRODUCTS and parts * times > devices * 1.01:
            along = _is_along_shards(first)
            out.append(
                Redundant(frame, flops, extra, times, rows, first, devices, None, 0, True, along)
            )
            continue
        lost = next((at for i in sources if (at := _lost(i, devices)) is not None), None)
        tiles = max((_count(o) for i in sources for o in i.operands), default=1)
        over = tiles if lost is None and tiles * times <= devices * 1.01 else 0
        crossed = _crossed(first, target.mesh) if lost is None and not over else ()
        found = Redundant(frame, flops, extra, times, rows, first, devices, lost, over)
        out.append(replace(found, crossed=crossed))
    return tuple(sorted(out, key=lambda r: -r.extra))


def _by_line(cost: Cost) -> dict[Place, tuple[float, tuple[Instruction, ...]]]:
    """FLOPs of heavy operations by line, all executions, and the operations."""
    runs = cost.execution.runs
    found: dict[Place, list[tuple[float, Instruction]]] = defaultdict(list)
    for n in np.flatnonzero(np.nan_to_num(cost.work.flops) > 0).tolist():
        i = cost.module.instructions[n]
        place = _place(i) if i.opcode in _HEAVY else None
        if place is not None:
            each = float(cost.work.flops[n]) * float(runs[i.computation.index])
            found[place].append((each, i))
    out = {}
    for place, rows in found.items():
        rows.sort(key=lambda row: -row[0])
        out[place] = sum(f for f, _ in rows), tuple(i for f, i in rows if f)
    return {k: v for k, v in out.items() if v[0]}


def _place(i: Instruction) -> Place | None:
    frame = own_line(i.frames)
    return None if frame is None else (frame.file, frame.line)


def _is_manual(i: Instruction) -> bool:
    return i.opcode in _HEAVY and "manual" in (i.sharding_text or "")


@lru_cache(maxsize=10_000)
def _tiles(text: str) -> int:
    return parse_sharding(text).num_tiles


def _count(i: Instruction) -> int:
    return _tiles(i.sharding_text or "") if i.shape.is_array else 1


def _crossed(product: Instruction, mesh: Mesh | None) -> tuple[str, ...]:
    """The axes that cut each operand along a dimension that a product contracts, where they have
    none in common: no device then has parts that meet. () otherwise."""
    if product.opcode != "dot" or mesh is None:
        return ()
    cut: list[list[str]] = []
    for o, side in zip(product.operands, ("lhs", "rhs"), strict=True):
        spec = spec_of(parse_sharding(o.sharding_text or ""), len(o.shape.dimensions), mesh)
        if spec is None:
            return ()
        cut.append(
            [a for d in ints(product.attribute(f"{side}_contracting_dims")) for a in spec[d]]
        )
    return tuple(map("+".join, cut)) if all(cut) and not set(cut[0]) & set(cut[1]) else ()


def _is_along_shards(i: Instruction) -> bool:
    """Whether a dimension that an operation goes along is sharded, where they are known."""
    given = i.operands[0]
    tiles = parse_sharding(given.sharding_text or "").tiles
    along = dimensions_of(i, len(given.shape.dimensions)) or ()
    return any(tiles[d] > 1 for d in along if d < len(tiles))


def _lost(product: Instruction, devices: int) -> Instruction | None:
    """The nearest move before a product that has a less sharded result than its operand."""
    for p in walk.back(product, opcodes.ANYTHING - opcodes.CONTROL, reach=limits.REDUNDANT_REACH):
        i = p.instruction
        if i is product or i.opcode not in opcodes.MOVES or not i.operands:
            continue
        given = max(_count(o) for o in i.operands)
        if i.sharding_text is not None and given > _count(i) and given > 1:
            return i
    for o in product.operands:  # a loop hands it in: what it was before the loop
        end = walk.source(o, opcodes.PART_OF_ONE | opcodes.LOOPS | opcodes.CALLS)
        i = end.instruction
        if i.opcode in opcodes.MOVES and i.operands:
            given = max(_count(x) for x in i.operands)
            if given > _count(i) and given > 1:
                return i
    return None
