"""Memory traffic that only moves or converts existing values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from ...hlo import Instruction, Shape, opcodes, walk
from ...hlo.collective_kinds import is_collective
from ...hlo.opcodes import async_half
from ...hlo.texts.places import short_line
from ...hlo.walk import Position
from ..base.memory_spaces import memory_space
from ..base.memory_tiling import padding_bytes
from ..base.operands import source_of
from ..text.units import duration, size
from . import limits
from .copy_reasons import CopyReason, loop_of, moves, reason_of, updated, updates
from .facts import Facts
from .finding import Finding, names, percent

_ORDER = frozenset({"copy", "transpose"})
# Moves, and the masks and offsets that go with them.
_MOVING = opcodes.MOVES | opcodes.BUNDLES | {"compare", "select", "add"}
_ONLY_MOVED = opcodes.SAME_NUMBERS | opcodes.BUNDLES | {"parameter"}


def _reorders(i: Instruction) -> bool:
    """Whether it is a copy or transpose, alone or as all that a fusion does."""
    if not i.shape.is_array or sum(d > 1 for d in i.shape.dimensions) < 2:
        return False  # a scalar or a vector has one order only
    if i.opcode in _ORDER:
        return bool(i.operands) and not _same_order(i)
    called = i.called_computations if i.opcode == "fusion" else ()
    if not called:
        return False
    inside = called[0].instructions
    return all(x.opcode in _ONLY_MOVED for x in inside) and any(
        x.opcode in _ORDER and not _same_order(x) for x in inside
    )


def is_moved_whole(i: Instruction) -> bool:
    """Whether it does nothing but write an array again, in any order: a copy or a transpose."""
    return bool(i.opcode == "copy" and i.operands) or _reorders(i)


def _same_order(i: Instruction) -> bool:
    """Whether it is a copy to the same layout: between memory spaces, or a duplicate."""
    if i.opcode != "copy" or not i.operands:
        return False
    a, b = _order(i.operands[0].shape), _order(i.shape)
    return a is not None and a == b


def _order(shape: Shape) -> tuple[int, ...] | None:
    """The dimensions of a layout, minor first, but for those of one element; None if unknown."""
    if sum(d > 1 for d in shape.dimensions) < 2:
        return tuple(d for d, n in enumerate(shape.dimensions) if n > 1)
    if shape.layout is None:
        return None
    return tuple(d for d in shape.layout.minor_to_major if shape.dimensions[d] > 1)


def served(i: Instruction) -> Instruction | None:
    """The first real work that uses a value, after further moves."""
    found = walk.uses(i, lambda u: u.opcode in _MOVING or async_half(u.opcode) is not None)
    return next((use.instruction for use in found), None)


_IN_ORDER = (
    "store the array in the order its user wants (swap the dimensions where it is made, or in the"
    " einsum's subscripts), so that no operand has to be turned"
)

_RETURNED = (
    "let XLA choose the order of the results: out_shardings=Format(Layout.AUTO) of"
    " jax.experimental.layout, where the next step takes them so"
)


def copies_and_transposes(facts: Facts) -> Iterator[Finding]:
    """Values reordered repeatedly, for one operand of one line."""
    if facts.made_for_cpu and not facts.on_host:
        return
    t = facts.table
    groups: dict[tuple[object, ...], list[Instruction]] = defaultdict(list)
    for n in t.where("copy", "transpose", "fusion").tolist():
        if facts.runs[n] == 0 or facts.moved[n] == 0:
            continue
        i = t.instructions[n]
        if _reorders(i):
            groups[_what(facts, i), i.shape.byte_size].append(i)
    for rows in groups.values():
        rows.sort(key=lambda i: -float(facts.moved[i.index]))
        moved = float(sum(facts.moved[i.index] for i in rows))
        seconds = None
        if facts.seconds is not None:
            seconds = float(sum(facts.seconds[i.index] for i in rows))
        share = facts.time_share(seconds, moved)
        first = rows[0]
        runs = sum(facts.runs[i.index] for i in rows)
        if share < _least(facts, runs):
            continue
        # What is converted once has to be written anyway, in any order.
        if runs == 1 and _types(first, ""):
            continue
        for_what = served(first)
        returned = all(_is_returned(facts, i) for i in rows)
        argument = _argument(facts, first)
        of = f" of `{argument}`" if argument else ""
        layout = _layouts(first)
        s = "" if len(rows) > 1 else "s"
        word = "transposes or layout copies" if runs > 1 else "layout copy"
        yield Finding(
            "layout-copies",
            f"{runs:,.0f} {word} of {first.shape.dense_text}{of} take{'' if runs > 1 else 's'}"
            f" {percent(share)} of the {'modelled step' if seconds is not None else 'bytes moved'}",
            f"{names(rows)} write{s} the same values in another order{layout}{_types(first, s)}"
            + (", in which the step returns them" if returned else "")
            + (_for_kernel(first) or (f", for {_said(facts, for_what)}" if for_what else ""))
            + _lines(facts, rows),
            _IN_ORDER
            if argument and _could_be_given(facts, rows)
            else _RETURNED
            if returned and not any(_is_given_too(facts, i) for i in rows)
            else "",
            share,
            seconds=seconds,
            bytes=facts.traffic(rows),
            bytes_of="memory traffic",
            instructions=tuple(rows),
            **facts.at(first),
        )


def _is_returned(facts: Facts, i: Instruction) -> bool:
    """Whether nothing but the step's result wants a value so, in memory that no argument gives."""
    root = i.computation.root
    if not i.computation.is_entry or root is None:
        return False
    same = opcodes.SAME_ORDER | opcodes.BUNDLES
    if any(walk.uses(i, same)) or all(p.instruction is not root for p in walk.forward(i, same)):
        return False
    live = facts.memory.liveness
    return all(live.home[live.buffer_of[v]] < 0 for v in live.values.nodes(i))


def _is_given_too(facts: Facts, i: Instruction) -> bool:
    """Whether the step takes an array like this result: the next step's, which fixes its order."""
    entry = facts.module.entry
    given = (s for p in (entry.parameters if entry is not None else ()) for s in p.shape.leaves())
    return any(s.dense_text == i.shape.dense_text for s in given)


def _argument(facts: Facts, i: Instruction) -> str:
    """The argument that is reordered: ``cache`` of ``cache[3][0]``; "" for a value made here."""
    at = i.operands[0] if i.operands else None
    seen: set[Instruction] = set()
    while at is not None and at not in seen:
        seen.add(at)
        source = source_of(at, facts.target)
        if source.kind == "argument":
            return source.name.partition("[")[0]
        at = updated(source.instruction)
    return ""


def _could_be_given(facts: Facts, rows: list[Instruction]) -> bool:
    """Whether arguments could be given in the order that is wanted.

    A TPU chooses the order in which an argument is stored so that tiles pad it least, whatever the
    order of its dimensions (tried: f32[102912,64] as f32[64,102912], with the same copies).
    """
    padded = (padding_bytes(i.shape) > padding_bytes(i.operands[0].shape) for i in rows)
    return not any(padded) and _only_reordered(facts, rows)


def _only_reordered(facts: Facts, rows: list[Instruction]) -> bool:
    """Whether nothing uses these arguments in the order in which they are given, but to update
    them: weights that are used in both orders have to be turned for one of them."""
    turned, hands_on = set(rows), opcodes.SAME_ORDER | opcodes.BUNDLES | opcodes.CONTROL

    def through(i: Instruction) -> bool:
        return i.opcode in hands_on and i not in turned and not _reorders(i)

    for i in rows:
        source = source_of(i.operands[0], facts.target) if i.operands else None
        if source is None or source.kind != "argument":
            continue
        for use in walk.uses(source.instruction, through):
            u = use.instruction
            if u not in turned and u.opcode not in opcodes.UPDATES and not _reorders(u):
                return False
    return True


def _what(facts: Facts, i: Instruction) -> object:
    """The key to group by: the arrays of one argument, else what is on one line."""
    argument = _argument(facts, i)
    if argument:
        return argument
    frame, _ = facts.line(i)
    return (frame.file, frame.line, i.shape.dense_text) if frame is not None else i.shape.dense_text


def _said(facts: Facts, i: Instruction) -> str:
    frame, _ = facts.line(i)
    return f"%{i.name} ({i.opcode}{f', line {frame.line}' if frame is not None else ''})"


def _lines(facts: Facts, rows: list[Instruction]) -> str:
    """``: 8 at decode.py:8, 8 at decode.py:10``, where there are several."""
    at: dict[str, float] = defaultdict(float)
    for i in rows:
        frame, _ = facts.line(i)
        where = f"at {short_line(f'{frame.file}:{frame.line}')}" if frame else "without a line"
        at[where] += float(facts.runs[i.index])
    if len(at) < 2:
        return ""
    most = sorted(at.items(), key=lambda x: -x[1])[:4]
    return ": " + ", ".join(f"{n:,.0f} {where}" for where, n in most)


def _least(facts: Facts, runs: float) -> float:
    """The share worth reporting. XLA:CPU sometimes lays arrays out for its own kernels."""
    if facts.seconds is None:
        return limits.REORDERED_SHARE_UNMODELLED
    if facts.on_host:
        return (
            limits.REORDERED_SHARE_IN_LOOP_ON_HOST if runs > 1 else limits.REORDERED_SHARE_ON_HOST
        )
    return limits.REORDERED_SHARE_IN_LOOP if runs > 1 else limits.REORDERED_SHARE


def _types(i: Instruction, s: str) -> str:
    """What else a fusion of moves does: widen or narrow; ``s`` ends the verb of a single one."""
    if not i.operands or not i.operands[0].shape.is_array or not i.shape.is_array:
        return ""
    before, after = i.operands[0].shape.element_type, i.shape.element_type
    return f", and convert{s} {before} to {after}" if before != after else ""


def _layouts(i: Instruction) -> str:
    if i.opcode != "copy" or not i.operands:
        return ""
    a, b = _layout(i.operands[0].shape), _layout(i.shape)
    return f" ({a} → {b})" if a and b else ""


def _layout(shape: Shape) -> str:
    """``{2,1,0}``; "" if unknown."""
    if not shape.is_array or shape.layout is None or not shape.layout.minor_to_major:
        return ""
    return "{" + ",".join(map(str, shape.layout.minor_to_major)) + "}"


def _for_kernel(i: Instruction) -> str:
    """The kernel whose layout forces a copy, as the end of a sentence; "" if there is none.

    A custom call's text has the layouts of its operands: XLA has to give them in these.
    """
    hands_on = opcodes.SAME_ORDER | opcodes.BUNDLES | opcodes.CONTROL

    def as_it_is(x: Instruction) -> bool:
        return x is i or (x.opcode in hands_on and not _reorders(x))

    for use in walk.uses(i, as_it_is):
        kernel = use.instruction
        given = kernel.operands[use.operand].shape
        if _fixes_layouts(kernel) and _layout(given):
            wanted = f"{given.dense_text} as {_layout(given)}"
            return f": the kernel %{kernel.name} wants its operand {wanted}"
    made = walk.source(i.operands[0], as_it_is)
    kernel, shape = made.instruction, made.instruction.shape
    if made.element and shape.tuple_shapes:
        shape = shape.tuple_shapes[made.element[0]]
    if _fixes_layouts(kernel) and _layout(shape):
        result = f"{shape.dense_text} as {_layout(shape)}"
        return f": the kernel %{kernel.name} writes its result {result}"
    return ""


def _fixes_layouts(i: Instruction) -> bool:
    return i.opcode == "custom-call" and bool(i.attribute("operand_layout_constraints"))


def whole_copies(facts: Facts) -> Iterator[Finding]:
    """Whole arrays copied as they are: same values, type and order; those of one line together."""
    is_cpus_own = facts.made_for_cpu and not facts.on_host
    t = facts.table
    groups: dict[tuple[object, ...], list[Instruction]] = defaultdict(list)
    for n in t.where("copy").tolist():
        i = t.instructions[n]
        if facts.runs[n] == 0 or not i.shape.is_array or not is_duplicate(i):
            continue
        if i.shape.byte_size < limits.WHOLE_COPY_BYTES or (is_cpus_own and moves(i) is None):
            continue
        if facts.runs[n] > 1 and _is_for_update(i):
            continue  # ``update_copies`` says it
        if not_donated_argument(facts, i) is not None:
            continue  # ``not_donated`` says it
        seconds = None if facts.seconds is None else float(facts.seconds[n])
        if facts.time_share(seconds, float(facts.moved[n])) < limits.WORTH_SAYING:
            continue
        groups[_alike(facts, i)].append(i)
    for (_, array, runs, argument, why, moved_on), rows in groups.items():
        rows.sort(key=lambda i: -float(facts.moved[i.index]))
        seconds = None
        if facts.seconds is not None:
            seconds = float(sum(facts.seconds[i.index] for i in rows))
        share = facts.time_share(seconds, float(sum(facts.moved[i.index] for i in rows)))
        if share < limits.WHOLE_COPY_SHARE:
            continue
        of = f" of `{argument}`" if argument else ""
        often = f"{runs:,.0f} times" if isinstance(runs, float) and runs > 1 else "once"
        many = len(rows) > 1
        yield Finding(
            "whole-copies",
            f"{f'{len(rows):,} arrays of' if many else 'All of'} {array}{of}"
            f" {'are copied whole' if many else 'is copied'} {often}{' each' if many else ''},"
            f" {percent(share)} of the {'modelled step' if seconds is not None else 'bytes moved'}",
            f"{names(rows)} write{'' if many else 's'} the same values again, in the same type and"
            f" order{why}",
            "take two steps in each trip of the loop (unroll=2): after two, each array is back in"
            " its place"
            if moved_on
            else _IN_PLACE
            if why == _RESTACKED
            else "",
            share,
            seconds=seconds,
            bytes=facts.traffic(rows),
            bytes_of="memory traffic",
            instructions=tuple(rows),
            **facts.at(rows[0]),
        )


_IN_PLACE = (
    "carry the whole array through the inner loop and update its slice there, by the number of the"
    " trip (a dynamic_update_slice), in place of scanning over it, and donate it if it is an"
    " argument"
)
_RESTACKED = (
    ": the loop around it carries the array, and the loop inside stacks its results in memory of"
    " its own while it reads what is carried"
)


def _alike(facts: Facts, i: Instruction) -> tuple[object, ...]:
    """What copies of one finding have in common: its last are argument, reason, is moved on."""
    frame, _ = facts.line(i)
    loop = moves(i)
    line: object = (frame.file, frame.line) if frame is not None else i.index
    argument = "" if loop is not None else _argument(facts, i)
    if loop is not None:
        line = loop.index
    why = _because(facts, reason_of(i)) if loop is not None else _why_copied(facts, i)
    return line, i.shape.dense_text, float(facts.runs[i.index]), argument, why, loop is not None


def _is_for_update(i: Instruction) -> bool:
    """Whether a slice is written into it or into a copy of it, and it keeps its place."""
    uses = walk.uses(i, opcodes.SAME_VALUE)
    return any(updates(u.instruction, i) for u in uses) and moves(i) is None


def is_duplicate(i: Instruction) -> bool:
    """Whether a copy changes neither type, order nor memory."""
    if not i.operands or not i.operands[0].shape.is_array or not _same_order(i):
        return False
    a, b = i.operands[0].shape, i.shape
    return a.element_type == b.element_type and memory_space(a) == memory_space(b)


def _why_copied(facts: Facts, i: Instruction) -> str:
    """The reason of a copy as the end of a sentence."""
    donated = _returned_in(facts, i)
    made = walk.source(i.operands[0], opcodes.SAME_VALUE)
    if donated and made.instruction.opcode == "while" and _is_stack(made):
        return (
            f": a loop stacks its results in memory of its own while it reads the donated"
            f" `{donated}`, and its result is copied there afterwards"
        )
    if donated:
        return f", into the memory of the donated `{donated}`{_because(facts, reason_of(i))}"
    loop = _carries(i)
    if loop is not None and made.instruction.opcode == "while" and _is_stack(made):
        return _RESTACKED
    reason = reason_of(i)
    if reason is not None and reason.kind == "returned":
        return _because(facts, reason)
    if i.computation.is_entry and (i.is_root or any(u.is_root for u in i.users)):
        return ", for the step to return them"
    return _because(facts, reason)


def _carries(i: Instruction) -> Instruction | None:
    """The loop whose body returns a value as an element that it carries; None if there is none."""
    if not any(u.is_root and u.opcode == "tuple" for u in i.users):
        return None
    return loop_of(i)


def _returned_in(facts: Facts, i: Instruction) -> str:
    """The donated argument in whose memory a copy is returned; "" if there is none."""
    entry = facts.module.entry
    if entry is None or entry.root is None or i.computation is not entry:
        return ""
    for alias in facts.module.input_output_alias:
        out = walk.source(Position(entry.root, tuple(alias.output_index)), opcodes.SAME_ORDER)
        way = walk.path(Position(entry.root, tuple(alias.output_index)), opcodes.SAME_ORDER)
        if out.instruction is i or any(p.instruction is i for p in way):
            for p in entry.parameters:
                if p.parameter_number == alias.parameter_number:
                    return facts.role(p)[1]
    return ""


def _is_stack(value: Position) -> bool:
    """Whether a loop's result is written slice by slice, into memory that held nothing before."""
    loop = value.instruction
    body = dict(loop.called).get("body")
    if body is None or body.root is None or not loop.operands:
        return False
    begun = walk.source(Position(loop.operands[0], value.element), opcodes.REPEATED).instruction
    made = updated(walk.source(Position(body.root, value.element), opcodes.SAME_ORDER))
    is_new = begun.opcode in opcodes.LITERALS or (
        begun.opcode == "custom-call" and not begun.operands
    )
    return made is not None and is_new


def not_donated_argument(facts: Facts, i: Instruction) -> Instruction | None:
    """The argument that could be donated, and is copied whole to keep it; None if none is."""
    at = walk.source(i, opcodes.SAME_VALUE).instruction
    if at.opcode != "parameter" or not at.computation.is_entry:
        return None
    could = {d.parameter for d in facts.memory.donations if d.outcome == "could be donated"}
    return at if at.parameter_number in could else None


def update_copies(facts: Facts) -> Iterator[Finding]:
    """A whole buffer copied in a loop so that a slice of it can be updated."""
    yield from _slices_written_back(facts)
    t = facts.table
    for n in t.where("copy").tolist():
        i = t.instructions[n]
        if facts.runs[n] < 2 or not i.shape.is_array or not _same_order(i):
            continue
        written = [u for u in i.users if updates(u, i)]
        if not written or moves(i) is not None:
            continue  # of what changes its place ``whole_copies`` says it
        # XLA:CPU copies a copy: both are for the update
        way = walk.path(i.operands[0], opcodes.SAME_VALUE)
        rows = [i, *(c for c in (p.instruction for p in way) if c.opcode == "copy")]
        seconds = (
            None if facts.seconds is None else sum(float(facts.seconds[c.index]) for c in rows)
        )
        share = facts.time_share(seconds, sum(float(facts.moved[c.index]) for c in rows))
        reason = reason_of(i)
        yield Finding(
            "update-copies",
            f"A loop copies all of {i.shape.dense_text} {facts.runs[n]:,.0f} times to update a"
            " slice of it",
            f"{names(rows)} cop{'ies' if len(rows) == 1 else 'y'} {size(i.shape.byte_size)}"
            f"{'' if len(rows) == 1 else ' each'} before %{written[0].name} writes into"
            f" it{_because(facts, reason)}",
            "carry what is needed of the old value beside it: XLA does not keep the order in which"
            " a trip reads and writes"
            if reason is not None
            and reason.reader is not None
            and not _takes(reason.reader)
            and not _stores(reason.reader, i)
            else "",
            share,
            seconds=seconds,
            bytes=facts.traffic(rows),
            bytes_of="memory traffic",
            instructions=(*rows, *written),
            **facts.at(written[0]),
        )


def _takes(i: Instruction) -> bool:
    """Whether it takes a part of an array, which part only the trip knows."""
    return any(x.opcode in opcodes.INDEXED or x.opcode == "dynamic-slice" for x in _inside(i))


def _stores(i: Instruction, whole: Instruction) -> bool:
    """Whether it writes all of an array into a stack, as what a backward pass needs of each trip:
    then all of the old value is needed."""
    return any(
        x.opcode in opcodes.UPDATES and x.operands[1].shape.elements >= whole.shape.elements
        for x in _inside(i)
        if len(x.operands) > 1
    )


def _inside(i: Instruction) -> Sequence[Instruction]:
    called = i.called_computations if i.opcode == "fusion" else ()
    return called[0].instructions if called else (i,)


def _slices_written_back(facts: Facts) -> Iterator[Finding]:
    """Slices that each trip takes out of an array, updates in part and writes back whole.

    row = dynamic-slice(stack, t)                 as a scan takes a row of what it goes over,
    row = dynamic-update-slice(row, new, …)       new is small
    stack = dynamic-update-slice(stack, row, t)   and stacks it as a result
    """
    found: dict[tuple[object, ...], list[Instruction]] = defaultdict(list)
    for n in np.flatnonzero(facts.runs >= 2).tolist():
        unit = facts.table.instructions[n]
        row = _written_back(unit) if unit.opcode in opcodes.FUSIONS | opcodes.UPDATES else None
        if row is not None and row.shape.byte_size >= limits.WHOLE_COPY_BYTES:
            found[unit.computation.index, row.shape.dense_text, float(facts.runs[n])].append(unit)
    for (_, array, runs), rows in found.items():
        seconds = None
        if facts.seconds is not None:
            seconds = sum(float(facts.seconds[i.index]) for i in rows)
        row = _written_back(rows[0])
        assert row is not None
        written = row.operands[2 if row.opcode == "scatter" else 1].shape.byte_size
        each = facts.cost.execution.runs  # of computations: rows that are written one by one
        times = max(1.0, float(each[row.computation.index]) / float(facts.runs[rows[0].index]))
        new = size(round(written * times))
        whole = size(row.shape.byte_size)
        one = len(rows) == 1
        what = array if one else f"{len(rows):,} arrays {array}"
        yield Finding(
            "update-copies",
            f"A loop writes back all of {what} {runs:,.0f} times to update a slice of"
            f" {'it' if one else 'each'}",
            f"each trip takes {'it' if one else 'them'} out of an array, writes {new} into"
            f" {'its' if one else 'the'} {whole}{'' if one else ' of each'} and puts all of it into"
            f" a stack ({names(rows)}), as a scan does that goes over an array and returns it anew",
            _IN_PLACE,
            facts.time_share(seconds, sum(float(facts.moved[i.index]) for i in rows)),
            seconds=seconds,
            bytes=facts.traffic(rows),
            bytes_of="memory traffic",
            instructions=tuple(rows),
            **facts.at(row),
        )


def _written_back(unit: Instruction) -> Instruction | None:
    """The small update of a slice that ``unit`` writes whole into a stack, in the same trip in
    which it was taken out of an array; None if it writes nothing of the kind."""
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS
    # XLA:CPU converts all of a stack in bf16 for it, which is no fault of the program
    stack = walk.source(unit, opcodes.SAME_ELEMENTS | opcodes.FUSIONS, inside_fusions=True)
    if stack.instruction.opcode != "dynamic-update-slice":
        return None
    row = walk.source(
        Position(stack.instruction.operands[1], (), stack.calls),
        through | opcodes.BUNDLES, inside_fusions=True,
    )  # fmt: skip
    update, begun = row.instruction, row
    if update.opcode == "while":  # rows at places of their own, which XLA writes one by one
        update, begun = _written_by(row)
    if update.opcode not in opcodes.UPDATES or len(update.operands) < 2:
        return None
    new = update.operands[2 if update.opcode == "scatter" else 1]
    if new.shape.elements * limits.SMALL_UPDATE > update.shape.elements:
        return None
    if begun is row:
        begun = Position(update.operands[0], (), row.calls)
    taken = walk.source(begun, through | opcodes.BUNDLES, inside_fusions=True).instruction
    return update if taken.opcode == "dynamic-slice" else None


def _written_by(loop: Position) -> tuple[Instruction, Position]:
    """What a loop writes into an array that it carries, and what it begins with."""
    body = dict(loop.instruction.called).get("body")
    given = Position(loop.instruction.operands[0], loop.element)
    if body is None or body.root is None:
        return loop.instruction, given
    through = opcodes.SAME_NUMBERS | opcodes.FUSIONS | opcodes.BUNDLES
    return walk.source(
        Position(body.root, loop.element), through, inside_fusions=True
    ).instruction, given


def _because(facts: Facts, reason: CopyReason | None) -> str:
    """A reason as the end of a sentence; "" where there is none."""
    if reason is None:
        return ""
    if reason.reader is not None and reason.update is not None:
        return (
            f": {_said(facts, reason.reader)} reads the old value, and nothing makes it run before"
            f" %{reason.update.name}"
        )
    if reason.kind == "returned":
        return ": the step returns the old value as well as what is written into it"
    if reason.kind == "kept":
        return ": the loop hands the old value on as well, as another element of what it carries"
    return (
        ": what the loop carries takes another place in each trip, and each place has memory of"
        " its own"
    )


def converts(facts: Facts) -> Iterator[Finding]:
    """Whole arrays converted and nothing else, where that takes a real part of the step."""
    if facts.made_for_cpu:
        return  # XLA:CPU has no matmul for narrow types and widens them itself
    t = facts.table
    groups: dict[tuple[str, str, str], list[Instruction]] = defaultdict(list)
    for n in t.where("convert", "fusion").tolist():
        if facts.runs[n] == 0 or facts.moved[n] == 0:
            continue
        i = t.instructions[n]
        types = _converts(i)
        # What is narrowed before it is sent is narrowed for a reason.
        if types is None or (i.users and all(is_collective(u.opcode) for u in i.users)):
            continue
        source = source_of(i.operands[0], facts.target)
        kind = source.kind if source.kind == "argument" else "value"
        groups[*types, kind].append(i)
    for (before, after, kind), rows in groups.items():
        rows.sort(key=lambda i: -float(facts.moved[i.index]))
        moved = float(sum(facts.moved[i.index] for i in rows))
        seconds = None
        if facts.seconds is not None:
            seconds = float(sum(facts.seconds[i.index] for i in rows))
        share = facts.time_share(seconds, moved)
        if share < limits.CONVERTED_SHARE or len(rows) < 2:
            continue
        took = f" ({duration(seconds)})" if seconds is not None else ""
        yield Finding(
            "repeated-converts",
            f"{len(rows):,} whole arrays are converted from {before} to {after}"
            f"{' (arguments)' if kind == 'argument' else ''}: {percent(share)} of the"
            f" {'modelled step' if seconds is not None else 'bytes moved'}{took}",
            f"nothing else is done with them there: {names(rows)}",
            f"keep them in {after} between steps, where their update allows it",
            share,
            seconds=seconds,
            bytes=facts.traffic(rows),
            bytes_of="memory traffic",
            instructions=tuple(rows),
            **facts.at(rows[0]),
        )


def _converts(i: Instruction) -> tuple[str, str] | None:
    """(from, to) for a convert alone, or a fusion of nothing else."""
    if not i.operands or not i.shape.is_array or not i.operands[0].shape.is_array:
        return None
    before, after = i.operands[0].shape.element_type, i.shape.element_type
    if before == after or not {before[0], after[0]} <= {"f", "b"}:
        return None
    if i.opcode == "convert":
        return before, after
    if len(i.operands) != 1 or not i.called_computations:
        return None
    inside = i.called_computations[0].instructions
    return (before, after) if all(x.opcode in _ONLY_MOVED for x in inside) else None
