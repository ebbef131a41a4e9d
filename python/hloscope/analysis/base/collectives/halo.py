"""Halo exchanges: the edges of a tile that a windowed op needs from its neighbours.

An image cut over a mesh axis is convolved tile by tile; each device first gets the rows next
to its own from the devices before and after it. The partitioner writes one permute per
direction and sharded dimension, and the convolution after them:

    slice ─ permute {0,1},{1,2},{2,3} ─┐
    tile ──────────────────────────────┼─ concatenate ─ pad, select ─ convolution
    slice ─ permute {1,0},{2,1},{3,2} ─┘

The permutes that the same windowed op needs are one exchange. Their pairs are open chains: the
ends have no neighbour. A closed ring, or tiles that swap places, are something else.
"""

from __future__ import annotations

from collections import defaultdict

from ....hlo import Instruction, Module, opcodes, walk
from ....hlo.collective_kinds import HALO, kind_of
from ....hlo.shardings.devices import parse_pairs
from ..labels.families import is_matmul
from ..table import table
from .find import Found

_WINDOWED = ("convolution", "reduce-window", "select-and-scatter")
_ENDS = opcodes.CONTROL | {"tuple"}


def join_halos(module: Module, found: list[Found]) -> list[Found]:
    """``found`` with the permutes of each halo exchange put together as one."""
    chains = [f for f in found if is_chain(f)]
    if not chains:
        return found
    inside = _computations_with_windows(module)
    own = {m for f in chains for m in f.members}
    exchanges: dict[int, list[Found]] = defaultdict(list)
    for f in chains:
        op = _needed_by(f, inside, own)
        if op is not None:
            exchanges[op.index].append(f)
    joined = {id(f) for parts in exchanges.values() for f in parts}
    out = [f for f in found if id(f) not in joined]
    for parts in exchanges.values():
        members = set[int]().union(*(p.members for p in parts))
        out.append(Found(HALO, parts[0].op, parts[0].anchor, members, parts))
    return sorted(out, key=lambda f: f.op.index)


def is_chain(f: Found) -> bool:
    """A permute that the partitioner inserted, whose pairs do not lead back to their start."""
    if not kind_of(f.kind).is_pairwise:
        return False
    if not any("is_spmd_generated" in i.attribute_text for i in (f.op, f.anchor)):
        name = (f.op.op_name or f.anchor.op_name).rpartition("/")[2]
        if not name or name.partition("[")[0] in ("ppermute", "pshuffle"):
            return False
    return not is_closed(f.op)


def is_closed(op: Instruction) -> bool:
    """Whether all devices that send also receive: a ring, or tiles that swap places."""
    pairs = parse_pairs(op.attribute("source_target_pairs") or "")
    return set(pairs[:, 0].tolist()) == set(pairs[:, 1].tolist())


def _computations_with_windows(module: Module) -> frozenset[int]:
    """Computations that contain a windowed op: what a fusion around one calls."""
    t = table(module)
    rows = [i for i in t.where(*_WINDOWED).tolist() if not is_matmul(t.instructions[i])]
    return frozenset(t.computation[rows].tolist())


def _needed_by(f: Found, inside: frozenset[int], own: set[int]) -> Instruction | None:
    """The nearest windowed op that uses the result of ``f`` and has the same op name."""
    name = f.op.op_name or f.anchor.op_name

    def is_between(i: Instruction) -> bool:
        fused = i.computation is not f.anchor.computation  # where only the fusion's name counts
        same = fused or i.op_name in ("", name) or i.index in own
        return same and i.opcode not in _ENDS and not _is_windowed(i, inside)

    for use in walk.uses(f.anchor, is_between):
        user = use.instruction
        if _is_windowed(user, inside) and (user.op_name in ("", name) or not name):
            return user
    return None


def _is_windowed(i: Instruction, inside: frozenset[int]) -> bool:
    if i.opcode in _WINDOWED:  # XLA:TPU calls a dot a convolution: it has no edges
        return not is_matmul(i)
    if i.opcode == "custom-call":  # a library's convolution
        return "conv" in (i.custom_call_target or "").lower()
    return i.opcode == "fusion" and any(c.index in inside for c in i.called_computations)
