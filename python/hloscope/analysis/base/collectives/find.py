"""Which instructions of a module are one logical collective.

This is hard because compilers print one transfer many times:

    all-reduce-start … all-reduce-done                         one; so with async-start and
                                                               what it calls
    XLA:TPU   fusion { all-gather channel 5 } AsyncCollectiveStart
              fusion %async_collective_fusion { all-gather channel 5, dot … }
              fusion { all-gather channel 5 } AsyncCollectiveDone     one: the channel says so,
                                                 also of steps in the bodies of loops in between
              fusion %all-reduce-scatter { all-reduce, dynamic-slice }      a reduce-scatter
    while %windowed_dot_general_body_rs { 4 collective-permutes }     one collective matmul
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field

from ....hlo import Instruction, Module, Shape
from ....hlo.collective_kinds import KINDS, kind_of, split
from ....hlo.shardings.devices import groups_text
from ..table import table

_CHAIN = re.compile(r'\bchain_id="(\d+)"')


@dataclass
class Found:
    """One logical collective being put together. ``anchor`` is what runs it: itself, or the
    outermost fusion or async-start around it; ``kind`` may differ from the opcode."""

    kind: str
    op: Instruction
    anchor: Instruction
    members: set[int] = field(default_factory=set)
    transfers: list[Found] = field(default_factory=list)  # of a collective matmul

    def add(self, other: Found) -> None:
        """Takes in another print of the same transfer; the one that runs first represents it, as
        the order of computations in the text means nothing."""
        self.members |= other.members
        if other.anchor.index < self.anchor.index:
            self.op, self.anchor = other.op, other.anchor


def anchors(module: Module) -> dict[int, Instruction]:
    """Computation index → the fusion or async-start that runs it, from outside all fusions."""
    t = table(module)
    direct: dict[int, Instruction] = {}
    rows = t.called.rows.tolist()
    for row, callee, role in zip(rows, t.called.values.tolist(), t.called_roles, strict=True):
        caller = t.instructions[row]
        if caller.opcode == "fusion" or (caller.opcode.endswith("-start") and role == "calls"):
            direct.setdefault(callee, caller)
    out: dict[int, Instruction] = {}
    for callee, caller in direct.items():
        at, steps = caller, 0
        while at.computation.index in direct and steps < 64:
            at, steps = direct[at.computation.index], steps + 1
        out[callee] = at
    return out


def find(module: Module, only: str = "") -> list[Found]:
    """Logical collectives in order of their first instruction, collective matmuls not joined."""
    outside = anchors(module)
    t = table(module)
    wanted = {o for o in t.opcodes if split(o) and o.startswith(only)}
    singles: list[Found] = []
    joined: dict[tuple[object, ...], Found] = {}
    for index in t.where(*wanted).tolist():
        op = t.instructions[index]
        kind, suffix = split(op.opcode) or ("", "")
        if suffix in ("-update", "-done"):
            continue
        anchor = outside.get(op.computation.index, op)
        found = Found(_meant(kind, op, anchor), op, anchor, {op.index, anchor.index})
        if suffix == "-start":
            _add_ends(found, op)
        elif anchor.opcode == "async-start":
            _add_ends(found, anchor)
        elif anchor is not op:
            channel = op.attribute("channel_id")
            chain = _CHAIN.search(op.attribute_text)  # user-written ones share channel 1
            which = (channel, chain and chain[1], op.shape.dense_text, op.op_name)
            key = (anchor.computation.index, found.kind, groups_text(op), *which)
            if channel is not None and key in joined:
                joined[key].add(found)
                continue
            joined[key] = found
        singles.append(found)
    elsewhere = _begun_elsewhere(joined)
    return sorted((f for f in singles if id(f) not in elsewhere), key=lambda f: f.op.index)


def _begun_elsewhere(joined: dict[tuple[object, ...], Found]) -> set[int]:
    """Puts prints in the bodies of loops to the transfer that is under way meanwhile.

    XLA:TPU hides a transfer behind loops too: it begins before them, has a step in their bodies,
    and is done after them. The bodies then have no start of it.
    """
    begun: dict[tuple[object, ...], list[Found]] = defaultdict(list)
    others: list[tuple[tuple[object, ...], Found]] = []
    for (_, *which), found in joined.items():
        if any(map(_starts, _prints(found))):
            begun[tuple(which)].append(found)
        else:
            others.append((tuple(which), found))
    gone = set()
    for key, found in others:
        if len(begun[key]) == 1:
            begun[key][0].members |= found.members
            gone.add(id(found))
    return gone


def _prints(found: Found) -> list[Instruction]:
    instructions = found.op.module.instructions
    return [i for n in found.members if split((i := instructions[n]).opcode)]


def _starts(op: Instruction) -> bool:
    return any(i.custom_call_target == "AsyncCollectiveStart" for i in op.computation.instructions)


def _meant(kind: str, op: Instruction, anchor: Instruction) -> str:
    """An all-reduce fused with the slice of its own shard is a reduce-scatter (XLA:TPU)."""
    if kind_of(kind).reduces_whole and anchor is not op:
        root = op.computation.root
        if root is not None and op.computation.name.startswith("all-reduce-scatter"):
            return "reduce-scatter"
    return kind


def _add_ends(found: Found, start: Instruction) -> None:
    """The -update and -done instructions after a -start."""
    waiting = [start]
    while waiting:
        for user in waiting.pop().users:
            if user.opcode.endswith(("-update", "-done")) and user.index not in found.members:
                found.members.add(user.index)
                waiting.append(user)


def payload(found: Found) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Bytes of one execution (the larger of operand and result) and its arrays with bytes."""
    op, kind = found.op, found.kind
    side = KINDS[kind].payload
    operands = op.operands[:1] if side == "first operand" else op.operands
    if kind_of(kind).is_pairwise and len(operands) == 4 and op.attribute("slice_sizes"):
        return _sliced(op)
    arrays = [s for o in operands for s in o.shape.leaves() if s.is_array]
    results = [s for s in _result(op).leaves() if s.is_array]
    if side == "result" or not arrays:
        arrays = results if len(results) >= len(arrays) or not arrays else arrays
    parts = tuple((s.dense_text, s.byte_size) for s in arrays)
    return sum(n for _, n in parts), parts


def _result(op: Instruction) -> Shape:
    """The shape of the result; for -start forms taken out of (operands, results, context…)."""
    if not op.opcode.endswith("-start") or not op.shape.is_tuple:
        return op.shape
    kind = split(op.opcode)
    if kind is not None and KINDS[kind[0]].start_is_value:
        return op.shape
    parts = op.shape.tuple_shapes
    return parts[1] if len(parts) > 1 else op.shape


_SIZES = re.compile(r"\{([\d,]+)\}")


def _sliced(op: Instruction) -> tuple[int, tuple[tuple[str, int], ...]]:
    """An in-place permute moves slices: their sizes are in ``slice_sizes={{2,8},{2,8}}``."""
    source = op.operands[0].shape
    leaf = next(iter(source.leaves()), source)
    element = leaf.byte_size // leaf.elements if leaf.elements else 0
    parts = []
    for sizes in _SIZES.findall(op.attribute("slice_sizes") or ""):
        count = math.prod(int(n) for n in sizes.split(",") if n and len(n) < 20)
        parts.append((f"{leaf.element_type}[{sizes}]", min(count * element, source.byte_size)))
    return sum(n for _, n in parts), tuple(parts)


def by_computation(found: list[Found]) -> dict[int, list[Found]]:
    """Collectives by the computation whose schedule runs them."""
    out: dict[int, list[Found]] = defaultdict(list)
    for f in found:
        out[f.anchor.computation.index].append(f)
    return out
