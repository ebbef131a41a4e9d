"""Memory that is held twice, without use, or in the wrong place."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ...hlo import Instruction, Module, Shape, StackFrame, Target, opcodes, walk
from ...hlo.changes import Changes
from ...hlo.collective_kinds import is_collective, kind_of
from ...hlo.shardings.specs import as_written, cut_further, spec_of
from ...hlo.texts.places import short_line
from ...hlo.walk import Position
from ..base.lines.frames import is_library, own_line
from ..base.operands import given_name
from ..base.phases.phases import BACKWARD, phases
from ..base.table import per_devices
from ..comms.sharding import shardings
from ..memory.audit import Donation
from ..memory.categories import COPIED
from ..memory.if_donated import is_returned
from ..memory.liveness.values import ARGUMENT, CONSTANT, TEMP
from ..memory.memory import LiveValue
from ..text.units import size
from . import limits
from .facts import Facts
from .finding import Finding, names, percent
from .layout_rules import is_duplicate, not_donated_argument
from .saved_values import AGAIN, changes_of, saved


def not_donated(facts: Facts) -> Iterator[Finding]:
    """Arguments that an output replaces, and that could have given it their memory."""
    could = [d for d in facts.memory.donations if d.outcome == "could be donated"]
    rows = [d for d in could if _replaces(facts, d)]
    if not rows:
        return
    donated = tuple(dict.fromkeys(_whole(d.argument) for d in rows))
    # a state's other parts are donated with it: those that are returned as they are, as copies
    copied_out = [
        d for d in could
        if d not in rows and _whole(d.argument) in donated and d.output is not None
        and is_returned(facts.module, d.output, d.parameter)
    ]  # fmt: skip
    copies = _copies_of(facts, _parameters(facts, rows))
    rows += copied_out
    total = sum(d.bytes for d in rows)
    rows.sort(key=lambda d: -d.bytes)
    shown = ", ".join(f"`{d.argument}`" for d in rows[:3])
    more = f" and {len(rows) - 3:,} more" if len(rows) > 3 else ""
    parameters = _parameters(facts, rows)
    moved = float(sum(facts.moved[c.index] for c in copies))
    seconds = None
    if facts.seconds is not None and copies:
        seconds = float(sum(facts.seconds[c.index] for c in copies)) or None
    copied = f", and copied first ({names(copies)})" if copies else ""
    given = _numbers(facts, rows, donated)
    gain = facts.memory.gain_if_donated(given, before_schedule=facts.made_for_cpu)
    if gain < limits.MOSTLY * total:
        # another point is as high, or temporaries lie in the results' memory until it is written
        copied = f", {size(gain) if gain else 'nothing'} of it at the peak{copied}"
    yield Finding(
        "not-donated",
        f"{len(rows):,} argument{'s' if len(rows) > 1 else ''} that the step replaces"
        f"{', or returns unchanged,' if copied_out else ''}"
        f" {'are' if len(rows) > 1 else 'is'} not donated: {size(total)} held twice{copied}",
        f"{shown}{more}: an output of the same shape is computed from"
        f" {'each' if len(rows) > 1 else 'it'}{', or is a copy of it,' if copied_out else ''} and"
        f" has memory of its own{_costs(facts, given)}",
        "jax.jit(step, donate_argnums=(…)) for the arguments that the caller drops",
        max(facts.peak_share(gain), facts.time_share(seconds, moved) if copies else 0.0),
        seconds,
        gain or None,
        "peak memory" if gain else "",
        (*parameters, *copies),
        None,
        changes=({"donate": donated},),
    )


def _costs(facts: Facts, given: set[int]) -> str:
    """The copies that XLA:CPU makes once these are donated, and their share of the step."""
    copied = facts.memory.copied_if_donated(given) if facts.made_for_cpu else ()
    total = sum(p.shape.byte_size for p in copied)
    if total < limits.WHOLE_COPY_BYTES:
        return ""
    chip, seconds = facts.cost.hardware, facts.total_seconds
    share = 2 * total / chip.memory_bandwidth / seconds if chip is not None and seconds else 0.0
    longer = f", {percent(share)} of the step" if share >= limits.WORTH_SAYING else ""
    them = f"{len(copied):,} of them" if len(copied) > 1 else "one of them"
    return (
        f"; once donated, XLA:CPU copies {them} first ({size(total)}{longer}), as what reads the"
        " old value may run after the new one is written"
    )


def _whole(argument: str) -> str:
    """``params`` of ``params['w1']`` and ``params.w1``: what jax donates."""
    return re.split(r"[\[.]", argument, maxsplit=1)[0]


def _numbers(facts: Facts, rows: list[Donation], donated: tuple[str, ...]) -> set[int]:
    """The parameters that are donated with whole arguments: also those that nothing replaces."""
    names = {a.parameter: a.name for a in facts.target.arguments if a.parameter is not None}
    entry = facts.module.entry
    for p in entry.parameters if entry is not None else ():
        names.setdefault(p.parameter_number or 0, given_name(p) or "")
    whole = {number for number, name in names.items() if _whole(name) in donated}
    return whole | {d.parameter for d in rows}


def _copies_of(facts: Facts, parameters: tuple[Instruction, ...]) -> list[Instruction]:
    """Copies of whole arguments that are made only to leave the argument as it was."""
    t = facts.table
    rows = [t.instructions[n] for n in t.where("copy").tolist() if facts.moved[n] > 0]
    if facts.seconds is not None:
        rows = [i for i in rows if facts.seconds[i.index] > 0]
    rows = [i for i in rows if is_duplicate(i) and i.shape.byte_size >= limits.WHOLE_COPY_BYTES]
    wanted = set(parameters)
    return [i for i in rows if not_donated_argument(facts, i) in wanted]


def _parameters(facts: Facts, rows: list[Donation]) -> tuple[Instruction, ...]:
    entry = facts.module.entry
    numbers = {p.parameter_number: p for p in entry.parameters} if entry is not None else {}
    return tuple(numbers[d.parameter] for d in rows if d.parameter in numbers)


# TPU fetches and writes large arrays in slices, which it joins.
_IN_PIECES = opcodes.PART_OF_ONE | {"concatenate"}
_UPDATED = (
    opcodes.BUNDLES | _IN_PIECES | opcodes.UPDATES | opcodes.ELEMENTWISE | opcodes.FUSIONS
    | {"select"}
)  # fmt: skip


def _replaces(facts: Facts, donation: Donation) -> bool:
    """Whether the output is computed from the argument itself: an update, not a coincidence."""
    entry = facts.module.entry
    if entry is None or entry.root is None or donation.output is None:
        return False
    parameter = next(
        (p for p in entry.parameters if p.parameter_number == donation.parameter), None
    )
    for p in walk.back(Position(entry.root, tuple(donation.output)), _IN_PIECES):
        if parameter is not None and (
            _is_updated_by_loop(p, parameter) or _is_kept_by_a_branch(p, parameter)
        ):
            return True
        for o in p.instruction.operands if p.instruction.opcode != "tuple" else ():
            if _is_fetched(o, parameter):
                return _elementwise(facts, p.instruction, o, p.element[0] if p.element else 0)
    result = Position(entry.root, tuple(donation.output))
    return parameter is not None and (
        _is_scaled_first(facts, result, parameter) or _is_updated_in_parts(result, parameter)
    )


def _is_updated_in_parts(result: Position, parameter: Instruction) -> bool:
    """Whether each device updates its part of an argument that all have whole, and all of these
    are gathered: state that is given and returned replicated."""
    gather = walk.source(result, _IN_PIECES | opcodes.FUSIONS, inside_fusions=True).instruction
    if not kind_of(gather.opcode).gathers or not gather.operands:
        return False
    part = gather.operands[0]
    way = walk.back(
        part, _UPDATED | opcodes.SLICES, inside_fusions=True, reach=limits.CAUSE_REACH,
        where=lambda p: p.instruction.shape.is_tuple or p.instruction is parameter
        or p.instruction.shape.elements in (part.shape.elements, parameter.shape.elements),
    )  # fmt: skip
    return any(p.instruction is parameter for p in way)


def _is_scaled_first(facts: Facts, result: Position, parameter: Instruction) -> bool:
    """Whether an argument is updated in several steps: ``decay * m`` first, to which XLA then adds
    or scatters the gradient, and which it sums over the devices, where they have parts of it."""
    steps = _steps(result, parameter.shape.elements)
    if all(p.instruction is not parameter for p in steps):
        return False
    # a value of its shape that merely reads it, as a loss does, keeps nothing of it
    return any(_elementwise(facts, u, parameter, 0) for u in parameter.users)


def _steps(result: Position, elements: int) -> list[Position]:
    """What a value of so many elements is made of, step by step of an update."""
    way = walk.back(
        result, _UPDATED | {"all-reduce"}, inside_fusions=True, reach=limits.CAUSE_REACH,
        where=lambda p: p.instruction.shape.is_tuple or p.instruction.shape.elements == elements,
    )  # fmt: skip
    return list(way)


def _is_updated_by_loop(result: Position, parameter: Instruction) -> bool:
    """Whether a loop begins with an argument and updates parts of it, or all."""
    loop = result.instruction
    body = dict(loop.called).get("body") if loop.opcode == "while" else None
    if body is None or body.root is None or not loop.operands:
        return False
    begun = walk.source(Position(loop.operands[0], result.element), opcodes.BUNDLES)
    if begun.element or not _is_fetched(begun.instruction, parameter):
        return False
    through = _IN_PIECES | opcodes.UPDATES | opcodes.FUSIONS | opcodes.BRANCHES
    way = walk.back(Position(body.root, result.element), through, inside_fusions=True)
    if any(p.instruction.opcode in opcodes.UPDATES for p in way):
        return True
    # or all of it in each trip, as an optimiser does in a loop of several steps
    if not body.parameters:
        return False
    steps = _steps(Position(body.root, result.element), parameter.shape.elements)
    carried = body.parameters[0], result.element
    return any(p.instruction.opcode in opcodes.ELEMENTWISE for p in steps) and any(
        p[:2] == carried for p in steps
    )


def _is_kept_by_a_branch(result: Position, parameter: Instruction) -> bool:
    """Whether a conditional returns an argument in one branch, and in another what replaces it."""
    if result.instruction.opcode not in opcodes.BRANCHES:
        return False
    ends = walk.sources(result, opcodes.SAME_VALUE | opcodes.BRANCHES)
    return any(end.instruction is parameter for end in ends)


def _is_fetched(value: Instruction, parameter: Instruction | None) -> bool:
    """Whether a value is a parameter, or all of it fetched into another memory."""
    if parameter is None or value.shape.elements != parameter.shape.elements:
        return value is parameter
    # also what a loop that uses it hands on, as it does with layers' weights
    for begun in (value, walk.source(value, opcodes.SAME_VALUE | opcodes.LOOPS)):
        way = walk.path(begun, _IN_PIECES)
        if any(p.instruction is parameter for p in way):
            return True
    return False


_UPDATING = opcodes.UPDATES | {"add", "subtract", "multiply", "select"}
_MIXING = opcodes.PRODUCTS | opcodes.REDUCTIONS | {"gather", "sort"}


def _elementwise(facts: Facts, user: Instruction, parameter: Instruction, leaf: int) -> bool:
    if user.opcode in _UPDATING:
        return user.operands[0] is parameter or user.shape.dense_text == parameter.shape.dense_text
    if user.opcode == "while":
        return True
    if user.opcode != "fusion" or not user.called_computations:
        return False
    inside = user.called_computations[0]
    number = next((n for n, o in enumerate(user.operands) if o is parameter), None)
    if number is None or number >= len(inside.parameters):
        return False
    if any(x.opcode in _MIXING for x in inside.instructions):
        # XLA may fuse the update of weights with their gradient; x + f(x) alone is not an update.
        return bool(np.any(phases(facts.module) == BACKWARD)) and _updated_in(
            user, inside.parameters[number], leaf
        )
    # narrow numbers are widened before they are updated
    uses = walk.uses(inside.parameters[number], opcodes.SAME_NUMBERS)
    return any(use.instruction.opcode in _UPDATING for use in uses)


def _updated_in(fusion: Instruction, parameter: Instruction, leaf: int) -> bool:
    """Whether a result of a fusion is the parameter except for elementwise updates."""
    root = fusion.called_computations[0].root
    if root is None:
        return False
    way = walk.back(
        Position(root, (leaf,) if root.shape.is_tuple else ()),
        lambda i: i.opcode not in _MIXING,
        where=lambda p: p.instruction.shape.elements == parameter.shape.elements,
    )
    return any(p.instruction is parameter for p in way)


def donated_in_vain(facts: Facts) -> Iterator[Finding]:
    """Donated arguments whose memory no output could take, and why."""
    rows = [d for d in facts.memory.donations if d.outcome == "donated, unused" and d.bytes]
    if not rows:
        return
    rows.sort(key=lambda d: -d.bytes)
    total = sum(d.bytes for d in rows)
    why = rows[0].why
    shown = ", ".join(f"`{d.argument}`" for d in rows[:3])
    more = f" and {len(rows) - 3:,} more" if len(rows) > 3 else ""
    gain = facts.memory.gain_if_donated(
        {d.parameter for d in rows}, retyped=True, before_schedule=facts.made_for_cpu
    )
    # where no output could take it, nothing is gained, but somebody counts on it
    least = min(limits.WORTH_SAYING, facts.peak_share(total))
    yield Finding(
        "donated-in-vain",
        f"{len(rows):,} donated argument{'s' if len(rows) > 1 else ''} could not be used:"
        f" {size(total)} in {shown}{more}",
        f"`{rows[0].argument}`: {why}",
        "give the output the argument's shape, dtype and sharding" if gain else "",
        max(least, facts.peak_share(gain)),
        None,
        gain or None,
        "peak memory" if gain else "",
        _parameters(facts, rows),
        None,
    )


def does_not_fit(facts: Facts) -> Iterator[Finding]:
    """A peak above what the chip has, as far as this compile shows it."""
    chip = facts.cost.hardware
    peak = facts.memory.peak_bytes
    if chip is None:
        return
    is_simulated = facts.memory.platform == "tpu" and facts.memory.peak_source == "simulated"
    room = chip.memory_bytes * (limits.SIMULATED_ABOVE if is_simulated else 1)
    if peak <= room:
        return
    held = facts.memory.liveness.live_at(facts.memory.peak_point, facts.memory.main_spaces)
    top = tuple(facts.memory.value(int(b)) for b in held[:3])
    shown = ", ".join(map(_named, top))
    kept = saved(facts)
    is_saved = 2 * kept.bytes >= peak
    again = is_saved and bool(kept.function)
    because = f"; {size(kept.bytes)} are saved for the backward pass" if is_saved else ""
    if again:
        because += f", {size(kept.held)} of it by {kept.calls:,} calls of `{kept.function}`"
    of = f"The peak of {size(peak)}"
    is_given = bool(top) and top[0].kind == "argument"  # what is computed has reasons to be whole
    other = ""
    if facts.made_for_cpu and not facts.on_host:
        of += ", as compiled for CPU,"
        other = "; a compile for the chip makes room where it can, so that its peak may be lower"
    yield Finding(
        "does-not-fit",
        f"{of} does not fit in the {size(chip.memory_bytes)} of a {chip.label}",
        f"largest at the peak: {shown}{because}{other}",
        AGAIN if again else "shard the largest of them over more devices" if is_given else "",
        1.0,
        None,
        int(peak - chip.memory_bytes),
        "peak memory",
        tuple(v.instruction for v in top),
        own_line(top[0].frames) if top else None,
        changes=changes_of(kept) if again else _given_in_shards(facts, top) if is_given else (),
    )


def _given_in_shards(facts: Facts, rows: tuple[LiveValue, ...]) -> tuple[Changes, ...]:
    """Arguments over the axes that nothing of them is over, along each dimension that divides."""
    mesh, held = facts.target.mesh, {v.instruction for v in rows if v.kind == "argument"}
    ways: dict[int, dict[str, Any]] = defaultdict(dict)
    for a in shardings(facts.module, facts.target).parameters if mesh is not None else ():
        spec = spec_of(a.sharding, len(a.global_shape), mesh) if a.instruction in held else None
        further = cut_further(spec, a.global_shape, mesh) if spec is not None and mesh else []
        for n, way in enumerate(further):
            ways[n][a.name] = as_written(way)
    return tuple(_sharded_state(facts, specs) for specs in ways.values())


def _named(value: LiveValue) -> str:
    """``params['w'] (2 GiB)``, ``%fusion.3 f32[8,64] (2 GiB) at model.py:37``."""
    if value.kind == "argument":
        return f"{value.name} ({size(value.bytes)})"
    frame = own_line(value.frames)
    at = f" at {short_line(f'{frame.file}:{frame.line}')}" if frame is not None else ""
    return f"%{value.name} {value.shape.dense_text} ({size(value.bytes)}){at}"


def waiting_values(facts: Facts) -> Iterator[Finding]:
    """Equal values of one line that are live together only because all are made before any is used.

    Each is made from arguments, which are still there when it is first used: it could be made then.
    Values made from others, as those of layers for the backward pass, have an order of their own.
    """
    memory = facts.memory
    alike: dict[tuple[object, Shape], list[LiveValue]] = defaultdict(list)
    buffers: dict[int, int] = {}
    for b in memory.liveness.live_at(memory.peak_point, memory.main_spaces).tolist():
        if _could_be_later(facts, b):
            value = memory.value(b)
            alike[own_line(value.frames), value.shape].append(value)
            buffers[value.instruction.index] = b
    for (frame, shape), rows in alike.items():
        total = sum(v.bytes for v in rows)
        if len(rows) < limits.WAITING_VALUES or total < facts.scarce_bytes or frame is None:
            continue
        gain = memory.gain_if_smaller({buffers[v.instruction.index]: v.bytes for v in rows[1:]})
        first, inferred = facts.line(rows[0].instruction)
        yield Finding(
            "waiting-values",
            f"{len(rows):,} equal values of one line wait for their users: {size(total)} of the"
            " peak",
            f"{names([v.instruction for v in rows])}, each {shape.dense_text}, are made before the"
            " peak and first used after it; the arguments that they are made from are still there"
            " then, so that only the order of the schedule keeps them at the same time",
            "make and use one after another: jax.lax.map, or a scan over them"
            if not _use_each_other([v.instruction for v in rows])
            else "",
            facts.peak_share(gain),
            None,
            gain,
            "peak memory",
            tuple(v.instruction for v in rows),
            first,
            inferred,
        )


def peak_of_a_line(facts: Facts) -> Iterator[Finding]:
    """Temporaries of one line that are most of the peak, outside loops: logits, a mask.

    Arrays that a loop stacks, or carries, and waiting ones have rules of their own.
    """
    memory = facts.memory
    live = memory.liveness
    lines: dict[StackFrame, list[int]] = defaultdict(list)
    known = _known_lines(facts.module, facts.target)
    for b in live.live_at(memory.peak_point, memory.main_spaces).tolist():
        if b not in known:
            known[b] = _line_of_temporary(facts, b)
        frame = known[b]
        if frame is not None:
            lines[frame].append(b)
    for frame, buffers in lines.items():
        total = int(live.size[buffers].sum())
        alike = Counter(map(live.shape_of, buffers)).most_common(1)[0][1]
        if total < limits.LINE_OF_PEAK_SHARE * memory.peak_bytes or total < facts.scarce_bytes:
            continue
        if alike >= limits.WAITING_VALUES:
            continue
        rows = sorted(map(memory.value, buffers), key=lambda v: -v.bytes)
        gain = memory.gain_if_smaller({b: int(live.size[b]) for b in buffers})
        first = rows[0]
        many = f"{len(rows):,} arrays" if len(rows) > 1 else first.shape.dense_text
        shown = ", ".join(f"%{v.name} {v.shape.dense_text} ({size(v.bytes)})" for v in rows[:3])
        more = f" and {len(rows) - 3:,} more" if len(rows) > 3 else ""
        at = memory.peak_instruction
        peak = f", which is at %{at.name}" if at is not None else ""
        yield Finding(
            "peak-of-a-line",
            f"One line is {percent(total / memory.peak_bytes)} of the peak: {size(total)} in"
            f" {many}",
            f"{shown}{more} {'are' if len(rows) > 1 else 'is'} live at the peak of"
            f" {size(memory.peak_bytes)}{peak}",
            _IN_PARTS
            if any(map(_is_of_product, rows))
            else _TAKEN_IN_PARTS
            if all(map(_is_taken_and_reduced, (v for v in rows if 2 * v.bytes > first.bytes)))
            else "",
            facts.peak_share(gain),
            None,
            gain,
            "peak memory",
            tuple(v.instruction for v in rows),
            frame,
            facts.line(first.instruction)[1],
        )


_IN_PARTS = (
    "compute it for some rows at a time: a scan or jax.lax.map over blocks of rows, with"
    " jax.checkpoint around its body, so that no more than a block is there at once"
)


_TAKEN_IN_PARTS = (
    "take and reduce some rows at a time: jax.lax.map over blocks of the indices (and, for a"
    " gradient, jax.checkpoint around its body), as XLA does not fuse the two"
)


@per_devices
def _known_lines(module: Module, target: Target) -> dict[int, StackFrame | None]:
    """The lines of temporaries that were found; the same on every chip."""
    return {}


def _line_of_temporary(facts: Facts, buffer: int) -> StackFrame | None:
    """The person's line of a temporary of the step itself, that no loop carries; else None."""
    live = facts.memory.liveness
    i = facts.module.instructions[int(live.defined_by[buffer])]
    if live.kind[buffer] != TEMP or not i.computation.is_entry:
        return None
    if i.opcode in opcodes.LOOPS or is_collective(i.opcode):
        return None
    if live.home[buffer] >= 0 or facts.memory.category[buffer] == COPIED:
        return None
    frame = own_line(facts.module.source_frames()[0].stack(int(facts.memory.frames[buffer])))
    if frame is None or is_library(frame.file):
        return None
    in_loop = any(u.instruction.opcode in opcodes.LOOPS for u in walk.uses(i, opcodes.BUNDLES))
    return None if in_loop else frame


def _is_of_product(value: LiveValue) -> bool:
    """Whether each element is made of an element of a product of rows, as logits are."""
    i, elements = value.instruction, value.shape.elements
    start = Position(i, (value.leaf,)) if i.shape.is_tuple else Position(i)
    through = opcodes.ELEMENTWISE | opcodes.SAME_NUMBERS | opcodes.FUSIONS | {"select"}
    # a gradient of what was taken by index is written into that of the rest
    through |= opcodes.UPDATES
    ends = walk.back(
        start, through, inside_fusions=True, reach=limits.CAUSE_REACH,
        where=lambda p: p.instruction.shape.is_tuple or p.instruction.shape.elements == elements,
    )  # fmt: skip
    return any(p.instruction.opcode in opcodes.PRODUCTS for p in ends)


def _is_taken_and_reduced(value: LiveValue) -> bool:
    """Whether it is rows taken by index, of which products or reductions make less than half."""
    i, elements = value.instruction, value.shape.elements
    if i.shape.is_tuple:
        return False
    same = opcodes.ELEMENTWISE | opcodes.SAME_NUMBERS | opcodes.FUSIONS | {"select"}
    ends = walk.back(
        i, same, inside_fusions=True, reach=limits.CAUSE_REACH,
        where=lambda p: p.instruction.shape.elements == elements,
    )  # fmt: skip
    if not any(p.instruction.opcode == "gather" for p in ends):
        return False
    uses = [u.instruction for u in walk.uses(i, same, inside_fusions=True)]
    makes_less = opcodes.PRODUCTS | opcodes.REDUCTIONS
    return bool(uses) and all(
        u.opcode in makes_less and sum(s.elements for s in u.shape.leaves()) * 2 <= elements
        for u in uses
    )


def _use_each_other(values: list[Instruction]) -> bool:
    """Whether what uses one waits for what uses another, as layers do: they already run one after
    another, and only the order in which the values are made is the compiler's."""
    own: dict[Instruction, int] = defaultdict(int)
    for n, value in enumerate(values):
        for use in walk.uses(value, opcodes.BUNDLES | {"bitcast"}):
            own[use.instruction] |= 1 << n
    needs: dict[Instruction, int] = {}
    for i in values[0].computation.instructions:
        before = 0
        for o in i.operands:
            before |= needs.get(o, 0)
        if i in own and before & ~own[i]:
            return True
        needs[i] = before | own.get(i, 0)
    return False


def _could_be_later(facts: Facts, buffer: int) -> bool:
    """Whether a temporary is made of arguments before the peak, and first used after it."""
    live = facts.memory.liveness
    peak = facts.memory.peak_point
    i = facts.module.instructions[int(live.defined_by[buffer])]
    entry = facts.module.entry
    if live.kind[buffer] != TEMP or live.has_several[buffer] or i.computation is not entry:
        return False
    if i.opcode not in ("fusion", *opcodes.ELEMENTWISE) or not i.users or not i.operands:
        return False
    point = facts.points
    uses = [u.instruction for u in walk.uses(i, opcodes.BUNDLES | {"bitcast"})]
    first = min((point.get(u.index, 0) for u in uses), default=0)
    if not int(live.start[buffer]) < peak < first:
        return False
    given = [int(live.buffer_of[v]) for o in i.operands for v in live.values.nodes(o)]
    return all(live.kind[b] in (ARGUMENT, CONSTANT) for b in given) and any(
        o.shape.is_array and o.shape.elements >= i.shape.elements for o in i.operands
    )


def padding(facts: Facts) -> Iterator[Finding]:
    """Arrays that tiles make much larger than they are."""
    total = facts.memory.padding_at_peak
    if not total or total < max(limits.PADDING_SHARE * facts.memory.peak_bytes, facts.scarce_bytes):
        return
    worst = sorted(facts.memory.live_at_peak, key=lambda v: -v.padding_bytes)[:5]
    gain = facts.memory.gain_without_padding
    first = worst[0]
    yield Finding(
        "padding",
        f"{percent(total / facts.memory.peak_bytes)} of the peak is padding: {size(total)}",
        f"the most in {first.name}: {first.shape.dense_text} takes {size(first.bytes)} for"
        f" {size(first.bytes - first.padding_bytes)} of data{filled_up(first.shape)}",
        "merge the small dimensions into one, such as [n, 3] into [3 · n]"
        if could_be_flat(first.instruction, first.shape)
        else "",
        facts.peak_share(gain),
        None,
        gain,
        "peak memory",
        tuple(v.instruction for v in worst),
        own_line(first.frames),
    )


def filled_up(shape: Shape) -> str:
    """``, as dimensions of 3 and 16 are filled up to tiles of 4 × 128``; "" where unknown."""
    layout = shape.layout
    if layout is None or not layout.tiles or len(layout.minor_to_major) < len(layout.tiles[0]):
        return ""
    tile = layout.tiles[0]
    filled = [shape.dimensions[d] for d in layout.minor_to_major[: len(tile)]][::-1]
    return (
        f", as dimensions of {' and '.join(map(str, filled))} are filled up to tiles of"
        f" {' × '.join(map(str, tile))}"
    )


def could_be_flat(value: Instruction, shape: Shape) -> bool:
    """Whether the last two dimensions share the tiles, and nothing needs them apart: all that is
    done with the value is done element by element."""
    rank = len(shape.dimensions)
    order = shape.layout.minor_to_major if shape.layout is not None else ()
    if rank < 2 or set(order[:2]) != {rank - 2, rank - 1}:
        return False
    through = opcodes.ELEMENTWISE | opcodes.SAME_NUMBERS | opcodes.FUSIONS | {"select", "broadcast"}
    used = walk.uses(value, through, inside_fusions=True)
    return all(u.instruction.opcode in opcodes.BUNDLES for u in used)


def replicated_state(facts: Facts) -> Iterator[Finding]:
    """Optimiser state that every device holds whole, where memory is not plenty."""
    chip = facts.cost.hardware
    peak = facts.memory.peak_bytes
    if (
        chip is None
        or peak < limits.ROOMY_SHARE * chip.memory_bytes
        or len(facts.target.devices) < 2
    ):
        return
    found = shardings(facts.module, facts.target)
    rows = [
        v
        for v in facts.memory.live_at_peak
        if v.category == "optimiser state" and v.kind == "argument"
    ]
    whole = {
        a.instruction.index
        for a in found
        if a.instruction is not None and a.replicas >= len(facts.target.devices)
    }
    rows = [v for v in rows if v.instruction.index in whole]
    total = sum(v.bytes for v in rows)
    if not total:
        return
    n = len(facts.target.devices)
    each = _axes(facts)
    specs, parts = _cut(facts, rows, each)
    ways = [specs, *(_cut(facts, rows, [axis])[0] for axis in each[1:])]
    is_manual = _is_manual(rows)
    # arguments are held throughout, so that each byte counts at every point
    gain = int(sum(v.bytes * (1 - 1 / k) for v, k in zip(rows, parts, strict=True)))
    yield Finding(
        "replicated-state",
        f"{size(total)} of optimiser state is replicated on all {n:,} devices",
        f"the largest: {rows[0].name} ({size(rows[0].bytes)}), in a peak of {size(peak)} of"
        f" {size(chip.memory_bytes)}",
        _IN_SHARD_MAP
        if is_manual
        else "shard the optimiser state over the data axis (ZeRO, Rajbhandari et al. 2020): each"
        " device then updates its part",
        facts.peak_share(gain),
        None,
        gain,
        "peak memory",
        tuple(v.instruction for v in rows),
        None,
        changes=() if is_manual else tuple(_sharded_state(facts, w) for w in ways if w),
    )


_IN_SHARD_MAP = (
    "in the jax.shard_map that takes it whole, by hand (ZeRO, Rajbhandari et al. 2020): in_specs"
    " and out_specs of the state over the data axis, jax.lax.psum_scatter of the gradients, the"
    " update of a part, jax.lax.all_gather of the parameters"
)


def _is_manual(rows: list[LiveValue]) -> bool:
    """Whether the state enters a ``jax.shard_map``, which says itself how it is cut."""
    users = [u for v in rows for u in v.instruction.users if u.op_name]
    return bool(users) and all("shard_map/" in u.op_name for u in users)


def _sharded_state(facts: Facts, specs: dict[str, Any]) -> Changes:
    """Arrays of the state in shards, and the results that take their place in the next step."""
    next_ = {d.argument: d.output_name for d in facts.memory.donations if d.output_name}
    results = {f"result{next_[name]}": spec for name, spec in specs.items() if name in next_}
    changes: Changes = {"in_shardings": specs}
    if results:
        changes["out_shardings"] = results
    return changes


def _axes(facts: Facts) -> list[tuple[Any, int]]:
    """All axes of the mesh together, and each of several, the largest first, with their sizes."""
    mesh = facts.target.mesh
    if mesh is None:
        return [(None, len(facts.target.devices))]
    each = sorted(zip(mesh.axis_names, mesh.axis_sizes, strict=True), key=lambda w: -w[1])
    many = [(axis, n) for axis, n in each if n > 1]
    return [(mesh.axis_names, prod(mesh.axis_sizes)), *(many if len(many) > 1 else ())]


def _cut(
    facts: Facts, rows: list[LiveValue], ways: list[tuple[Any, int]]
) -> tuple[dict[str, Any], list[int]]:
    """Each array over the first axes that divide a dimension, in the first such dimension.

    Specs by name, if there are axes, and into how many parts each array is cut.
    """
    names = {a.parameter: a.name for a in facts.target.arguments}
    found: dict[str, Any] = {}
    parts = [1] * len(rows)
    for at, value in enumerate(rows):
        name = names.get(value.instruction.parameter_number)
        dims = value.instruction.shape.dimensions
        for axis, k in ways:
            where = next((j for j, d in enumerate(dims) if d % k == 0), None)
            if where is not None and k > 1:
                parts[at] = k
                if name is not None and axis is not None:
                    found[name] = (*(None,) * where, axis)
                break
    return found, parts


def narrow_copies(facts: Facts) -> Iterator[Finding]:
    """Parameters that are converted whole and held beside themselves, for a loop over layers."""
    if facts.made_for_cpu:
        return  # XLA:CPU widens what it multiplies
    point = facts.memory.peak_point
    rows = [
        c
        for c in facts.memory.parameter_copies
        if "type" in c.changes
        and c.start <= point <= c.end
        and _is_sliced_in_loop(facts, c.instruction)
    ]
    total = sum(c.bytes for c in rows)
    if not rows or total < max(
        limits.NARROW_COPY_SHARE * facts.memory.peak_bytes, facts.scarce_bytes
    ):
        return
    shown = ", ".join(f"`{c.argument}`" for c in rows[:3])
    more = f" and {len(rows) - 3:,} more" if len(rows) > 3 else ""
    first = rows[0].instruction
    live = facts.memory.liveness
    gain = facts.memory.gain_if_smaller(
        {int(live.buffer_of[v]): c.bytes for c in rows for v in live.values.nodes(c.instruction)}
    )
    yield Finding(
        "narrow-copies",
        f"{size(total)} of the peak are parameters in {first.shape.element_type} beside themselves",
        f"all layers of {shown}{more} are converted before a loop that uses one layer at a time,"
        " and held until its end",
        f"keep them in {first.shape.element_type} between steps, where their update allows it: in"
        " the loop's body XLA moves the conversion out again",
        facts.peak_share(gain),
        bytes=gain,
        bytes_of="peak memory",
        instructions=tuple(c.instruction for c in rows),
        **facts.at(first),
    )


def _is_sliced_in_loop(facts: Facts, value: Instruction) -> bool:
    """Whether loops take slices of a value, and nothing else uses it."""
    through = opcodes.SAME_ORDER | opcodes.LOOPS | opcodes.FUSIONS | {"call"}
    used = [u.instruction for u in walk.uses(value, through, inside_fusions=True)]
    runs = facts.cost.execution.runs
    return bool(used) and all(
        u.opcode in opcodes.SLICES and runs[u.computation.index] > 1 for u in used
    )
