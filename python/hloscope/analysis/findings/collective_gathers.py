"""Gathers for one operation that XLA does not compute in parts.

    x, sharded ─▶ all-gather ─▶ (copies, pads) ─▶ top-k, sort, cumsum, FFT, a library's call

What such an operation goes along has to be whole on a device; a dimension beside it does not, but
for some operations the partitioner has no rule, and gathers that one as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ...hlo import Instruction, opcodes, walk
from ...hlo.collective_kinds import kind_of
from ...hlo.texts.places import short_line
from ..base.labels.families import FAMILIES, families
from ..comms.collective import Collective
from ..text.units import size
from ..why.cards import reasons
from . import limits
from .collective_facts import moved, over, sent
from .collective_purposes import For, is_of_weights, purpose, results_of
from .facts import Facts
from .finding import Finding
from .whole_operations import (
    OTHER_DIMENSION,
    WHOLE,
    dimensions_of,
    has_other_dimension,
    ints,
    is_solved_with,
    name_of,
)

# A constraint of the person, or a name in the program, is the cause before any operation is.
_BY_NEED = (For.ARGUMENT, For.RESHARDED, For.INSERTED, For.UNKNOWN)
_WAY = opcodes.MOVES | opcodes.FUSIONS | opcodes.BUNDLES


class Whole(NamedTuple):
    """What a gather is for: ``along`` is whether it goes along what is gathered, None: unknown."""

    operation: Instruction
    along: bool | None


def whole_for(facts: Facts, row: Collective) -> Whole | None:
    """The one operation that needs what is gathered whole; None if there is another use."""
    if row.inserted is False or not kind_of(row.kind).gathers or row.is_combined:
        return None
    given = row.instruction.operands[0] if row.instruction.operands else None
    if given is None or is_of_weights(facts, given):
        return None
    users: dict[Instruction, None] = {}
    for result in results_of(row):
        for use in walk.uses(result, _WAY, inside_fusions=True, reach=limits.CAUSE_REACH):
            users[use.instruction] = None
    found = list(users)
    if len(found) != 1 or found[0].opcode not in WHOLE:
        return None
    (i,) = found
    made = walk.source(given, _WAY, inside_fusions=True).instruction
    if made is not i and (made.opcode == i.opcode or (i.op_name and made.op_name == i.op_name)):
        return None  # each device has done its part, and these are the results
    if i.opcode == "custom-call":
        family = FAMILIES[int(families(facts.module)[i.index])].id
        if family not in ("custom_call", "linear_algebra"):
            return None  # a callback runs on one device, which is said elsewhere
    if purpose(facts, row).what not in _BY_NEED:
        return None
    return Whole(i, _is_along(i, row))


def _is_along(i: Instruction, row: Collective) -> bool | None:
    gathered = set(ints(row.instruction.attribute("dimensions")))
    shape = i.operands[0].shape if i.operands else None
    if shape is None or not shape.is_array or not gathered:
        return None
    rank = len(shape.dimensions)
    if rank != len(row.instruction.operands[0].shape.dimensions):
        return None  # reshaped in between
    dims = dimensions_of(i, rank)
    return None if dims is None else bool(gathered & dims)


def gathered_for_one(facts: Facts) -> Iterator[Finding]:
    """Arrays that every device gathers whole for an operation that is not computed in parts."""
    groups: dict[tuple[object, ...], list[tuple[Collective, Whole]]] = defaultdict(list)
    for row in facts.collectives:
        whole = whole_for(facts, row)
        if whole is not None:
            frame, _ = facts.line(whole.operation)
            groups[frame, name_of(whole.operation), whole.along].append((row, whole))
    for (_, name, along), found in groups.items():
        rows = [row for row, _ in found]
        rows.sort(key=lambda r: -r.payload_bytes)
        seconds = None
        if not facts.no_wire:
            seconds = facts.waited(m for row in rows for m in row.members)
        wire = sent(rows)
        share = facts.wire_share(wire, seconds)
        first = rows[0]
        whole = next(w for row, w in found if row is first)
        why, advice = _words(facts, whole, str(name), first)
        yield Finding(
            "gathered-for-one",
            f"Every device gathers all of {moved(first)} ({size(first.payload_bytes)}) for"
            f" {name}{', along the dimension that is sharded' if along else ''}",
            f"%{first.name} {over(first)} makes it whole for %{whole.operation.name}: {why}",
            advice,
            share,
            seconds=seconds,
            bytes=wire,
            bytes_of="wire",
            instructions=(*(row.instruction for row in rows), whole.operation),
            **facts.at(whole.operation),
        )


def _words(facts: Facts, whole: Whole, name: str, row: Collective) -> tuple[str, str]:
    """Why it is whole, and what to do about it where that is known to help."""
    i, along = whole
    dims = ", ".join(map(str, ints(row.instruction.attribute("dimensions"))))
    card = reasons(facts.module, facts.target)[row.index]
    if along is None and card is not None and card.opcode == "reshape":
        at = f" at {short_line(card.line)}" if card.line else ""
        return f"the reshape before it{at} has {card.had}, and makes its result as a whole", ""
    if along is None:
        return "XLA has no rule to compute it in parts over devices", ""
    if not along:
        return (
            f"it goes along other dimensions than dimension {dims}, which is sharded, but XLA has"
            " no rule to keep that",
            "run it in jax.shard_map, where each device does its own part",
        )
    why = f"it goes along dimension {dims}, which is sharded, and is not computed in parts"
    if i.opcode == "fft" and has_other_dimension(i):
        return why, OTHER_DIMENSION
    if opcodes.is_top_k(i.opcode, i.custom_call_target):
        return why, (
            "in jax.shard_map take the k largest of each device's part, gather only those, and take"
            " the k largest of them"
        )
    if i.opcode == "reduce-window" and name == "cumsum":
        return why, (
            "in jax.shard_map take the cumsum of each device's part, gather only the parts' sums,"
            " and add those of the parts before"
        )
    if is_solved_with(i):
        return why, (
            "solve by products alone, which are computed in parts: jax.scipy.sparse.linalg.cg with"
            " lambda v: a @ v"
        )
    return why, ""
