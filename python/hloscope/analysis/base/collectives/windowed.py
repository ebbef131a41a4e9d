"""Collective matmuls: a dot whose all-gather or reduce-scatter became a ring of permutes.

The partitioner writes a "windowed dot" as a loop of permutes around small dots; XLA:TPU runs
it in both directions, unrolls short ones, and leaves a last permute after the loop:

    permute(zeros) ─ dot+add ─ permute ─ dot+add ─ permute ─ add           one direction
    permute(zeros) ─ dot+add ─ permute ─ dot+add ─┘                        the other

All permutes of one dot have the same op_name (…/dot_general) and frame, were inserted, and
are connected by data; that is how they are joined. Two layers that share a permute of zeros stay
two: a permute passes its membership to its first successor of each ring only. A permute that
feeds the loop, where both directions start, belongs to the loop.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container

from ....hlo import Instruction, Module, opcodes, walk
from ....hlo.collective_kinds import MATMUL, is_collective, kind_of
from .find import Found, by_computation
from .halo import is_closed

Signature = tuple[str, int, str, int]  # op_name and where in the source

WINDOWED = re.compile(r"windowed_dot_general_body")
_DOT = re.compile(r"(?:^|/)(?:dot_general|conv_general_dilated|dot|ragged_dot\w*)(?:\[.*)?$", re.S)
_REACH = 12  # instructions between two permutes of one ring, at most


def join_windowed(module: Module, found: list[Found]) -> list[Found]:
    """``found`` with the permutes of each collective matmul put together as one."""
    out = [f for f in found if not _may_join(f)]
    loops = _windowed_loops(module)
    groups = by_computation([f for f in found if _may_join(f)])
    merged: dict[int, list[Found]] = {}  # windowed while (index) → permutes of its body
    for body, loop in loops.items():
        if body in groups:
            merged[loop.index] = groups.pop(body)
    by_index = {loop.index: loop for loop in loops.values()}
    for computation, members in groups.items():
        here = [i for i in merged if by_index[i].computation.index == computation]
        out += _join_flat(members, {i: by_index[i] for i in here}, merged)
    for index in list(merged):
        loop, inside = by_index[index], merged[index]
        if inside:
            out.append(_whole(loop, loop, inside))
    return sorted(out, key=lambda f: f.op.index)


def _may_join(f: Found) -> bool:
    if not kind_of(f.kind).is_pairwise:
        return False
    name = f.op.op_name or f.anchor.op_name
    inserted = "is_spmd_generated" in f.op.attribute_text
    in_loop = bool(WINDOWED.search(f.anchor.computation.name))
    if in_loop:
        return True
    # Rings close: an open chain of pairs is something else.
    return bool(_DOT.search(name)) and (inserted or "shard_map" not in name) and is_closed(f.op)


def _windowed_loops(module: Module) -> dict[int, Instruction]:
    """Body computation index → the while, for loops the partitioner named as windowed dots."""
    names = {c.name: c.index for c in module.computations if WINDOWED.search(c.name)}
    out: dict[int, Instruction] = {}
    if names:
        for i in module.instructions:
            if i.opcode == "while" and (body := dict(i.called).get("body")) and body.name in names:
                out[body.index] = i
    return out


def signature(i: Instruction) -> Signature:
    """The op of the program that an instruction comes from."""
    m = i.metadata
    return (m.op_name, m.stack_frame_id, m.source_file, m.source_line)


def _join_flat(
    members: list[Found], loops: dict[int, Instruction], merged: dict[int, list[Found]]
) -> list[Found]:
    """Joins permutes of one computation to the loop they follow, or into rings of their own."""
    node = {f.op.index: f for f in members}
    owner = {m: f.op.index for f in members for m in f.members}
    sign = {f.op.index: signature(f.op) for f in members}
    root = {k: k for k in node} | {k: k for k in loops}

    def top(k: int) -> int:
        while root[k] != k:
            k = root[k]
        return k

    followed: set[tuple[int, str]] = set()
    for f in sorted(members, key=lambda f: f.op.index):
        me = f.op.index
        pairs = f.op.attribute("source_target_pairs") or ""
        for before in _before(f.op, owner, loops):
            if before in loops:
                if signature(loops[before]) == sign[me]:
                    root[top(me)] = top(before)
            elif sign[before] == sign[me] and (before, pairs) not in followed:
                followed.add((before, pairs))
                root[top(me)] = top(before)
        if top(me) == me:
            loop = _fed(f, loops)
            if loop is not None and signature(loops[loop]) == sign[me]:
                root[me] = top(loop)
    _join_by_user(members, sign, root, top)

    rings: dict[int, list[Found]] = defaultdict(list)
    for k, f in node.items():
        rings[top(k)].append(f)
    out: list[Found] = []
    for k, ring in rings.items():
        if k in loops:
            merged[k] = merged[k] + ring
        elif len(ring) > 1:
            ring.sort(key=lambda f: f.op.index)
            out.append(_whole(ring[0].op, ring[0].anchor, ring))
        else:
            out += ring
    return out


def _join_by_user(
    members: list[Found],
    sign: dict[int, Signature],
    root: dict[int, int],
    top: Callable[[int], int],
) -> None:
    """Joins both directions of a ring, which end in the same add."""
    ends: dict[tuple[int, object], list[int]] = defaultdict(list)
    starts = {}
    for f in members:
        last = max(f.members)
        starts[f.op.index] = f
        done = next((u for u in f.op.users if u.index == last), f.op)
        for user in done.users:
            ends[(user.index, sign[f.op.index])].append(f.op.index)
    for found in ends.values():
        tops = {top(k) for k in found}
        if len(found) == 2 and len(tops) == 2:
            one, other = found
            pairs = {starts[k].op.attribute("source_target_pairs") for k in (one, other)}
            if len(pairs) == 2:  # opposite directions
                root[top(other)] = top(one)


def _before(op: Instruction, owner: dict[int, int], loops: dict[int, Instruction]) -> list[int]:
    """The nearest permutes or windowed loops that ``op``'s operands are computed from."""
    out: set[int] = set()
    passes = _between(op, owner, loops)
    for operand in op.operands:
        for at, *_ in walk.sources(operand, passes, reach=_REACH):
            if at.index in loops:
                out.add(at.index)
            elif owner.get(at.index, op.index) != op.index:
                out.add(owner[at.index])
    return sorted(out)


def _between(
    op: Instruction, owner: Container[int], loops: Container[int]
) -> Callable[[Instruction], bool]:
    """Whether an instruction is between permutes of one ring: it has their name, or none."""

    def passes(i: Instruction) -> bool:
        if i.index in loops or i.index in owner or is_collective(i.opcode):
            return False
        fused = i.computation is not op.computation  # where only the fusion's name counts
        return i.opcode not in opcodes.CONTROL and (fused or i.op_name in ("", op.op_name))

    return passes


def _fed(f: Found, loops: dict[int, Instruction]) -> int | None:
    """The windowed loop that the result of ``f`` goes into."""
    passes = _between(f.op, (), loops)
    for m in f.members:
        for use in walk.uses(f.op.module.instructions[m], passes, reach=_REACH + 1):
            if use.instruction.index in loops:
                return use.instruction.index
    return None


def _whole(op: Instruction, anchor: Instruction, parts: list[Found]) -> Found:
    members = {op.index}.union(*(p.members for p in parts))
    return Found(MATMUL, op, anchor, members, parts)
