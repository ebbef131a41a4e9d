"""Unnecessary communication: done twice, or of what every device could compute itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...hlo import Instruction, opcodes, walk
from ...hlo.collective_kinds import kind_of
from ...hlo.walk import Position
from ..base.operands import ONE_ARRAY
from ..comms.collective import Collective
from ..text.units import size
from . import limits
from .collective_facts import moved, moves_constants, over, sent, times
from .collective_purposes import For, is_only_stacked, multiplies_weights, purpose
from .copy_reasons import loop_of
from .facts import Facts
from .finding import Finding, names


def _same_groups(a: Collective, b: Collective) -> bool:
    if a.groups is None or b.groups is None:
        return False
    return a.groups is b.groups or a.groups.rows() == b.groups.rows()


def gathered_twice(facts: Facts) -> Iterator[Finding]:
    """One value gathered again over the same axes in the same phase and computation."""
    seen: dict[tuple[object, ...], list[Collective]] = defaultdict(list)
    for row in facts.collectives:
        if not kind_of(row.kind).gathers or row.moves is None or row.phase == "rematerialised":
            continue
        if row.moves.kind not in ("argument", "value") or len(row.parts) != 1:
            continue
        source = row.instruction.operands[0] if row.instruction.operands else None
        if source is None:
            continue
        key = (
            row.moves.instruction.index, row.instruction.computation.index,
            row.instruction.shape.elements, row.executions, slice_of(source),
        )  # fmt: skip
        seen[key].append(row)
    for rows in seen.values():
        rows = [row for row in rows if _same_groups(row, rows[0])]
        if len(rows) < 2:
            continue
        again = rows[1:]
        wire = sent(again)
        seconds = facts.waited(m for row in again for m in row.members)
        yield Finding(
            "gathered-twice",
            f"{moved(rows[0])} is gathered {len(rows)} times {over(rows[0])}",
            f"the same shards are gathered as {_shapes(rows)}{_phases(rows)}:"
            f" {names([row.instruction for row in rows])}",
            "gather it once: constrain the value to be replicated right where it is first used,"
            " and use that result again",
            facts.wire_share(wire, seconds),
            seconds=seconds,
            bytes=wire,
            bytes_of="wire",
            instructions=tuple(row.instruction for row in rows),
            **facts.at(again[0].anchor),
        )


def _shapes(rows: list[Collective]) -> str:
    return " and ".join(dict.fromkeys(row.parts[0].shape for row in rows))


def _phases(rows: list[Collective]) -> str:
    found = [p for p in dict.fromkeys(row.phase for row in rows) if p]
    return f", {' and '.join(found)}" if found else ""


_PARTS = opcodes.SLICES | {"get-tuple-element"}


def slice_of(value: Instruction) -> str:
    """Which part of its source a value is, as text; the same text is the same part."""
    parts = []
    for at, *_ in walk.path(value, ONE_ARRAY):
        if (at.opcode in _PARTS and not at.opcode.endswith("-done")) or _slices(at):
            named = at.attribute("slice") if at.opcode.startswith("slice") else None
            parts.append(named or at.name)
    return "/".join(parts)


def _slices(i: Instruction) -> bool:
    inside = i.called_computations[0].instructions if i.opcode == "fusion" else ()
    return any(x.opcode in opcodes.SLICES for x in inside)


def _is_trifle(facts: Facts, wire_bytes: float | None) -> bool:
    """Whether it is under a hundredth of what is sent, such as a gradient's norm or a loss.

    True for what sends nothing, False for what is unknown.
    """
    if wire_bytes is None:
        return False
    return (
        not wire_bytes
        or wire_bytes < limits.TRIFLING_WIRE_SHARE * facts.collectives.total.wire_bytes
    )


def of_constant(facts: Facts) -> Iterator[Finding]:
    """Collectives whose operands are constants: every device could compute the result itself."""
    for row in facts.collectives:
        operands = row.instruction.operands
        if not moves_constants(row):
            continue
        wire = row.total_wire_bytes
        if _is_trifle(facts, wire):
            continue
        seconds = facts.waited(row.members)
        yield Finding(
            "collective-of-constant",
            f"{row.kind} of a constant {over(row)}: every device already knows the result",
            f"%{row.name} moves {size(row.payload_bytes)}{times(row)}, and its operand"
            f" %{operands[0].name} is the same constant everywhere",
            "constrain the constant's sharding where it is made, so that each device makes its own"
            " part",
            max(limits.WORTH_SAYING, facts.wire_share(wire, seconds)),
            seconds=seconds,
            bytes=wire,
            bytes_of="wire",
            instructions=(row.instruction,),
            **facts.at(row.anchor),
        )


def reduced_twice(facts: Facts) -> Iterator[Finding]:
    """Sums of two all-reduces over the same devices: adding first halves the transfer. Sums of what
    is summed already: the second is for nothing."""
    rows = [row for row in facts.collectives if kind_of(row.kind).reduces_whole and _is_sum(row)]
    yield from _summed_again(facts, rows)
    # Values that are one reduced array (or a part of a combined one) and nothing else.
    marks: dict[int, tuple[Collective, Instruction]] = {}
    for row in rows:
        for value in _parts_of(row):
            _spread(facts, value, (row, value), marks)
    found: dict[int, tuple[Instruction, tuple[Collective, Instruction]]] = {}
    adds: dict[frozenset[int], list[Instruction]] = {}  # XLA does some in each fusion that reads it
    todo = list(marks)
    for index in todo:
        for user in facts.module.instructions[index].users:
            if user.opcode != "add" or len(user.operands) != 2:
                continue
            a, b = (marks.get(o.index) for o in user.operands)
            if a is None or b is None or a[1] is b[1] or not _same_groups(a[0], b[0]):
                continue
            same = adds.setdefault(frozenset((a[1].index, b[1].index)), [])
            if user in same:
                continue
            same.append(user)
            # A sum of reduced values is one, too: of three added up two could be saved.
            less = min((a, b), key=lambda x: (x[1].index in found, x[1].shape.byte_size))
            if user is same[0]:
                found[user.index] = user, less
            todo += _spread(facts, user, (less[0], same[0]), marks)
    _only_added(found, adds, marks)
    # A sum that another addition takes is a part of its sum.
    into = {marks[o.index][1].index: n for n, (user, _) in found.items() for o in user.operands}
    counts = Counter(_last(index, into) for index in found)
    alike: dict[tuple[object, ...], list[_Twice]] = defaultdict(list)
    for user, (row, value) in found.values():
        part = value.shape.byte_size
        payload = sum(p.bytes for p in row.parts) or 1
        whole = row.total_wire_bytes
        wire = None if whole is None else int(whole * part / payload)
        if _is_trifle(facts, wire):
            continue
        seconds = facts.waited(row.members)
        seconds = None if seconds is None else seconds * part / payload
        other = next(o for o in (marks[x.index] for x in user.operands) if o[1] is not value)
        key = row.axes_or_groups, value.shape.dense_text, row.executions
        whole_sum = _last(user.index, into)
        times = counts[whole_sum] + 1
        alike[key].append(_Twice(user, (whole_sum, times), row, value, *other, wire, seconds))
    for first, into_, row in _added_to_again(rows):
        value = first.instruction
        key = first.axes_or_groups, value.shape.dense_text, first.executions
        wire, seconds = first.total_wire_bytes, facts.waited(first.members)
        if not _is_trifle(facts, wire):
            twice_ = _Twice(into_, (into_.index, 2), first, value, row, into_, wire, seconds)
            alike[key].append(twice_)
    for twice in alike.values():
        yield _told_twice(facts, twice)


def _added_to_again(
    rows: list[Collective],
) -> Iterator[tuple[Collective, Instruction, Collective]]:
    """Sums that a scatter adds to, on one device of each group, before all are summed again, as
    XLA:TPU makes of an addition of two gradients, one of them a lookup's: (sum, scatter, sum)."""
    sums = {m: row for row in rows for m in row.members}
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | {"select", "scatter"}
    for row in rows:
        for value in row.instruction.operands:
            way = [p.instruction for p in walk.back(value, through, inside_fusions=True)]
            scatter = next((i for i in way if i.opcode == "scatter"), None)
            first = next((sums[i.index] for i in way if sums.get(i.index, row) is not row), None)
            if scatter is None or first is None or not _same_groups(first, row):
                continue
            given = first.instruction
            is_it = given.shape.is_array and given.shape.elements == value.shape.elements
            if is_it and {u.opcode for u in _used(given, opcodes.SAME_NUMBERS)} == {"select"}:
                yield first, scatter, row


def _used(value: Instruction, through: frozenset[str]) -> set[Instruction]:
    uses = walk.uses(value, through | opcodes.FUSIONS, inside_fusions=True)
    return {u.instruction for u in uses}


def _summed_again(facts: Facts, rows: list[Collective]) -> Iterator[Finding]:
    """Arrays that an earlier sum over the same devices has made the same on each of them."""
    sums = {row.instruction.index: row for row in rows}
    sums |= {m: row for row in rows for m in row.members}
    again: list[tuple[Collective, Instruction, Collective]] = []
    for row in rows:
        for value in row.instruction.operands:
            ends = [
                p.instruction
                for p in walk.sources(value, _MADE_ALIKE, inside_fusions=True)
                if p.instruction.opcode not in opcodes.LITERALS
            ]
            made_by = [sums[end.index] for end in ends if end.index in sums]
            if ends and len(made_by) == len(ends) and all(_same_groups(x, row) for x in made_by):
                again.append((row, value, made_by[0]))
    for axes in dict.fromkeys(row.axes_or_groups for row, _, _ in again):
        alike = [x for x in again if x[0].axes_or_groups == axes]
        wire, seconds = 0, 0.0
        for row, value, _ in alike:
            part = value.shape.byte_size / (sum(p.bytes for p in row.parts) or 1)
            wire += int((row.total_wire_bytes or 0) * part)
            seconds += (facts.waited(row.members) or 0.0) * part
        if _is_trifle(facts, wire):
            continue
        row, value, first = alike[0]
        one = len(alike) == 1
        yield Finding(
            "reduced-twice",
            f"{'An array that is' if one else f'{len(alike):,} arrays that are'} summed over the"
            f" devices already {'is' if one else 'are'} summed {over(row)} again:"
            f" {size(sum(x[1].shape.byte_size * x[0].counted for x in alike))} could be saved",
            f"%{row.name} sums %{value.name}, which is made of the result of %{first.name} and"
            " nothing else: every device has the same already",
            "leave out the second sum or mean",
            max(limits.WORTH_SAYING, facts.wire_share(wire, seconds)),
            seconds=seconds or None,
            bytes=wire,
            bytes_of="wire",
            instructions=tuple(
                dict.fromkeys(i for x in alike for i in (x[0].instruction, x[2].instruction))
            ),
            **facts.at(row.anchor),
        )


# What makes of equal values on all devices equal ones again.
_MADE_ALIKE = (
    opcodes.ELEMENTWISE | opcodes.REPEATED | opcodes.REDUCTIONS | opcodes.FUSIONS
    | {"get-tuple-element"}
)  # fmt: skip


def _last(index: int, into: dict[int, int]) -> int:
    """The addition in which a sum of several ends."""
    while index in into:
        index = into[index]
    return index


class _Twice(NamedTuple):
    """An addition of two reduced values, with wire bytes and seconds of the smaller one."""

    user: Instruction
    whole: tuple[int, int]  # the sum that it is a part of, and of how many reduced values that is
    row: Collective
    value: Instruction
    other: Collective
    by: Instruction  # what it is added to, which ``other`` makes
    wire: int | None
    seconds: float | None


def _told_twice(facts: Facts, twice: list[_Twice]) -> Finding:
    user, _, row, value, other, *_ = twice[0]
    saved = sum(x.value.shape.byte_size * x.row.counted for x in twice)
    rows = list(dict.fromkeys(x.row for x in twice))
    whole = sum(r.total_payload_bytes or 0 for r in rows)
    wires = [x.wire for x in twice if x.wire is not None]
    wire = sum(wires) if wires else None
    known = [x.seconds for x in twice if x.seconds is not None]
    seconds = sum(known) if known else None
    sums = {x.whole for x in twice}
    least, most = (f(times for _, times in sums) for f in (min, max))
    often = (
        "twice" if most == 2 else f"{most} times" if least == most else f"{least} to {most} times"
    )
    given = _sent_as(row, value)
    purposes = {purpose(facts, r).what for r in (row, other)}
    projected = given is not None and multiplies_weights(facts, given)
    projected |= purposes <= {For.ACTIVATIONS, For.PRODUCTS}
    looked_up = all(
        _is_scattered(r, v) for x in twice for r, v in ((x.row, x.value), (x.other, x.by))
    )
    weights = not projected and row.phase == "backward"
    what = "sum" if row.phase == "forward" else "gradient"
    subject = f"{len(sums):,} {what}s are" if len(sums) > 1 else f"A {what} is"
    such, some = "", "two" if most == 2 else "several"  # where they come from, if that is clear
    if projected:
        such = f" (such as what {some} projections of one value send back)"
    elif looked_up:
        such = f" (such as what {some} lookups in one table send back)"
    elif weights:
        such = (
            f" (such as {'the two' if most == 2 else 'several'} uses of one array of weights, in"
            f" {some} loops or as tied embedding)"
        )
    added = "two values that are each all-reduced"
    if user.opcode == "scatter":
        added = "on one device to what is already all-reduced, and the result is all-reduced again"
    where = f"in %{row.name} and in %{other.name}" if row is not other else f"both in %{row.name}"
    evidence = dict.fromkeys(
        i for x in twice for i in (x.row.instruction, x.other.instruction, x.user)
    )
    return Finding(
        "reduced-twice",
        f"{subject} reduced {often} {over(row)}: {size(saved)} of {size(whole)} of"
        f" {names([r.instruction for r in rows])} could be saved",
        f"%{user.name} adds {added}: {value.shape.dense_text} {where}{such}",
        f"add the partial {what}s before they are reduced: "
        + (
            "multiply by the projections' weights put side by side (one matmul, one sum)"
            if projected
            else "look up all indices at once, in one array, and take the results apart"
            if looked_up
            else "reduce their sum by hand in jax.shard_map"
        ),
        max(limits.WORTH_SAYING, facts.wire_share(wire, seconds)),
        seconds=seconds,
        bytes=wire,
        bytes_of="wire",
        instructions=tuple(evidence),
        **facts.at(user),
    )


def _sent_as(row: Collective, value: Instruction) -> Instruction | None:
    """The operand of a combined reduce that a value is the sum of."""
    operands = row.instruction.operands
    at = next((p for p in walk.path(value, opcodes.SAME_NUMBERS | {"slice"}) if p.element), None)
    number = at.element[0] if at is not None else 0
    return operands[number] if number < len(operands) else None


def _is_scattered(row: Collective, value: Instruction) -> bool:
    """Whether a sum, or the last part of a sum of several, is of what a scatter adds up."""
    given = _sent_as(row, value)
    if given is None or value.opcode == "add":
        return given is not None
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | {"add"}
    ends = (p.instruction for p in walk.sources(given, through, inside_fusions=True))
    return all(i.opcode == "scatter" for i in ends)


def _is_sum(row: Collective) -> bool:
    called = [c for role, c in row.instruction.called if role == "to_apply"]
    if not called:
        called = [c for i in row.instruction.called_computations for c in _applied(i.instructions)]
    return bool(called) and called[0].root is not None and called[0].root.opcode == "add"


def _applied(instructions: Iterable[Instruction]) -> list:  # type: ignore[type-arg]
    return [c for i in instructions for role, c in i.called if role == "to_apply"]


def _parts_of(row: Collective) -> Iterator[Instruction]:
    """The arrays of a reduce as its users take them out: elements, or slices of a flat one."""
    start: Instruction = row.instruction
    for user in start.users:
        if user.opcode.endswith("-done"):
            start = user
            break
    taken = [u for u in start.users if u.opcode in ("get-tuple-element", "slice")]
    if not taken:
        yield start
        return
    for u in taken:
        slices = [x for x in u.users if x.opcode == "slice"]
        yield from slices if len(slices) > 1 else [u]


def _spread(
    facts: Facts,
    value: Instruction,
    mark: tuple[Collective, Instruction],
    marks: dict[int, tuple[Collective, Instruction]],
) -> list[int]:
    """Marks what is ``value`` and nothing else, also inside the fusions that use it.

    What a loop stacks of every trip's value is it, too, after the loop.
    """
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    if loop_of(value) is not None and is_only_stacked(Position(value)):
        through |= opcodes.UPDATES | opcodes.BUNDLES | opcodes.LOOPS
    held = walk.forward(
        value,
        through,
        inside_fusions=True,
        where=lambda p: p.instruction.shape.is_tuple or p.instruction.index not in marks,
    )
    made = []
    for at, *_ in held:
        if at.shape.is_array:
            marks[at.index] = mark
            made.append(at.index)
    return made


def _only_added(
    found: dict[int, tuple[Instruction, tuple[Collective, Instruction]]],
    adds: dict[frozenset[int], list[Instruction]],
    marks: dict[int, tuple[Collective, Instruction]],
) -> None:
    """Leaves additions of values of which nothing else is made: those have to be reduced anyway."""
    copies = {same[0].index: same for same in adds.values()}
    for same in adds.values():
        values = [marks[o.index][1] for o in same[0].operands]
        for v in values:
            every = [_used(copy, opcodes.SAME_NUMBERS) for copy in copies.get(v.index, [v])]
            used = set[Instruction]().union(*every)
            # a loop may stack it first, which is one use
            if (len(used) > 1 and used - set(same)) or (v.index in copies and v.index not in found):
                found.pop(same[0].index, None)
