"""Communication of more than is used: gathered or summed whole, then sliced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...hlo import Instruction, opcodes, walk
from ...hlo.collective_kinds import kind_of
from ...hlo.texts.places import short_line
from ..comms.collective import Collective
from ..why.cards import reasons
from .collective_facts import moved, over
from .collective_purposes import (
    MASKED,
    by_device,
    is_joined,
    is_scatter_of_program,
    is_written_into,
)
from .facts import Facts
from .finding import Finding, names

if TYPE_CHECKING:
    from ..why.provenance_origins import AxisOrigin


def gathered_then_sliced(facts: Facts) -> Iterator[Finding]:
    """Arrays gathered whole although every use takes a slice: the sharding goes back and forth."""
    for row in facts.collectives:
        uses = cut_again(row)
        if not uses:
            continue
        wire = row.total_wire_bytes
        seconds = facts.waited(row.members)
        yield Finding(
            "gathered-then-sliced",
            f"{moved(row)} is gathered {over(row)}, and each device then keeps only a slice",
            f"%{row.name} makes {row.parts[0].shape}, and all its users cut it again"
            f" ({names(uses)}){_asked_by(facts, row)}",
            "the sharding changes back and forth: constrain the value between the two to the"
            " sharding of its user, so that shards move directly"
            if _is_asked_whole(facts, row)
            else MASKED
            if _is_written_into(facts, row)
            else "",
            facts.wire_share(wire, seconds),
            seconds=seconds,
            bytes=wire,
            bytes_of="wire",
            instructions=(row.instruction, *uses[:4]),
            **facts.at(row.anchor),
        )


def _is_asked_whole(facts: Facts, row: Collective) -> bool:
    """Whether a constraint of the person's asks for the whole: XLA's own detours cannot be left
    out by constraining."""
    return bool(_constraints(facts, row))


def _is_written_into(facts: Facts, row: Collective) -> bool:
    card = reasons(facts.module, facts.target)[row.index]
    return card is not None and is_written_into(card)


def _asked_by(facts: Facts, row: Collective) -> str:
    """``; the constraint at model.py:9 asks for the whole``, where that is known."""
    lines = {short_line(o.line) for o in _constraints(facts, row) if o.of == "result" and o.line}
    return f"; the constraint at {lines.pop()} asks for the whole" if len(lines) == 1 else ""


def _constraints(facts: Facts, row: Collective) -> list[AxisOrigin]:
    """The constraints that a collective exists for, if they ask for a replicated array."""
    card = reasons(facts.module, facts.target)[row.index]
    if card is None or not card.needs.endswith("replicated"):
        return []
    return [o for o in card.origins if o.kind == "constraint"]


def cut_again(row: Collective) -> list[Instruction]:
    """The users of an all-gather if each takes only its device's slice of it, else none."""
    if not kind_of(row.kind).gathers or len(row.parts) != 1:
        return []
    whole = row.instruction.shape.elements
    uses = []
    for u in _real_users(row.instruction):
        if u.shape.elements * 2 > whole > 0 or not _is_device_slice(u, row.instruction):
            return []
        uses.append(u)
    return uses


def reduced_then_sliced(facts: Facts) -> Iterator[Finding]:
    """All-reduces of which each device keeps its own slice: half of the wire bytes are wasted."""
    if facts.target.platform == "cpu":
        return  # XLA:CPU has no pass that makes reduce-scatters, unlike other platforms
    for row in facts.collectives:
        if not kind_of(row.kind).reduces_whole or len(row.parts) != 1 or row.group_size < 2:
            continue
        # A gather that XLA wrote as a sum, or a reduce-scatter that the program asks for.
        if is_joined(row) or is_scatter_of_program(facts, row):
            continue
        uses = list(_real_users(row.instruction))
        if not uses or not all(_is_device_slice(u, row.instruction) for u in uses):
            continue
        wire = None if row.total_wire_bytes is None else row.total_wire_bytes // 2
        whole = facts.waited(row.members)
        yield Finding(
            "reduced-then-sliced",
            f"%{row.name} reduces all of {row.parts[0].shape} {over(row)}, and each device"
            " keeps a slice: a reduce-scatter would send half",
            f"its users cut it by device: {names(uses)}",
            "",
            facts.wire_share(wire, None if whole is None else whole / 2),
            seconds=None if whole is None else whole / 2,
            bytes=wire,
            bytes_of="wire",
            instructions=(row.instruction, *uses[:4]),
            **facts.at(row.anchor),
        )


def _is_same(i: Instruction) -> bool:
    """Whether it hands on all of its operand; a tuple keeps it, which counts as a use."""
    return i.opcode != "tuple" and (
        i.opcode in opcodes.SAME_NUMBERS | opcodes.BUNDLES | opcodes.FUSIONS
        or i.opcode.endswith("-done")
    )


def _real_users(value: Instruction) -> Iterator[Instruction]:
    """Users behind copies, casts and done halves; a tuple or a root counts as a use."""
    roots = (p.instruction for p in walk.forward(value, _is_same) if p.instruction.is_root)
    yield from dict.fromkeys([*roots, *(u.instruction for u in walk.uses(value, _is_same))])


def _is_device_slice(u: Instruction, value: Instruction) -> bool:
    """A dynamic-slice at an offset that comes from the device's own number, and no other use."""
    if u.opcode == "dynamic-slice":
        return any(by_device(o) for o in u.operands[1:])
    if u.opcode != "fusion" or not u.called_computations:
        return False
    inside = u.called_computations[0]
    if inside.root is not None:
        root = walk.source(inside.root, opcodes.SAME_NUMBERS).instruction
        if root.opcode == "dynamic-slice":
            return any(by_device(o) for o in root.operands[1:])
    # Sliced first, then computed on: only slices read the whole.
    given = {p.instruction for p in walk.forward(value, _is_same)}
    numbers = [n for n, o in enumerate(u.operands) if o in given]
    uses = [
        x for n in numbers if n < len(inside.parameters) for x in _real_users(inside.parameters[n])
    ]
    return bool(uses) and all(
        x.opcode == "dynamic-slice" and any(by_device(o) for o in x.operands[1:]) for x in uses
    )
