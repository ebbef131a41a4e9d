"""Donation and copies: memory that is used twice, or could be shared."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...hlo import Instruction, Shape, Target, opcodes, walk
from ..base.memory_spaces import memory_space
from ..base.operands import given_name
from ..base.table import table
from ..text.results import Row
from .argument_roles import MOVED
from .donated_copies import SPACE, DonatedCopy, donated_copies
from .liveness.liveness import Liveness
from .liveness.values import ARGUMENT, OUTPUT, leaf_span


@dataclass(frozen=True, slots=True, repr=False)
class Donation(Row):
    """One argument (``parameter`` of ENTRY) and how its memory is reused.

    ``outcome``: "aliased" (the output is in its memory), "aliased, but copied" (the output is
    written there by copying all of it, or all of the argument is copied before it is updated),
    "donated, unused" (no output could take its memory) or "could be donated" (an output of the
    same shape has its own memory); ``output`` is the shape index of that output. ``copies`` are
    all such copies, with those between memories, which do not make it "copied".
    """

    argument: str
    parameter: int
    bytes: int
    outcome: str
    output: tuple[int, ...] | None = None
    output_name: str = ""
    why: str = ""  # reason, if donated without effect or copied
    copies: tuple[DonatedCopy, ...] = ()


def audit_donations(live: Liveness, target: Target) -> tuple[Donation, ...]:
    """One row per argument that is aliased, donated without effect, or worth donating.

    An argument is worth donating if an output of the same shape and layout has its own memory;
    each output is matched to one argument only, largest outputs first.
    """
    module = live.module
    entry = module.entry
    if entry is None or entry.root is None:
        return ()
    arguments = {a.parameter: a for a in target.arguments if a.parameter is not None}
    results: dict[tuple[int, ...], Shape] = (
        {(): entry.root.shape}
        if not entry.root.shape.is_tuple
        else {(k,): s for k, s in enumerate(entry.root.shape.tuple_shapes)}
    )
    result_names = [r.name for r in target.results]
    parameters = {p.parameter_number or 0: p for p in entry.parameters}
    aliased: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for a in module.input_output_alias:
        aliased[a.parameter_number].append(a.output_index)
    taken = {index for indices in aliased.values() for index in indices}
    free = sorted(
        (index for index in results if index not in taken and _owns(live, index)),
        key=lambda index: -results[index].byte_size,
    )
    out: list[Donation] = []
    spare: dict[Shape, deque[tuple[int, Instruction, str]]] = defaultdict(deque)
    for number, p in sorted(parameters.items()):
        argument = arguments.get(number)
        name = argument.name if argument else given_name(p) or p.name
        size = sum(int(live.size[live.buffer_of[v]]) for v in live.values.nodes(p))
        if number in aliased:
            index = aliased[number][0]
            out.append(_aliased(p, name, size, index, _name(result_names, index)))
        elif argument is not None and argument.donated:
            why = _why_in_vain(entry.root.shape, p.shape)
            out.append(Donation(name, number, size, "donated, unused", why=why))
        else:
            spare[p.shape].append((number, p, name))
    for index in free:
        shape = results[index]
        if shape.is_tuple or shape.elements <= 1 or not spare.get(shape):
            continue
        number, p, name = spare[shape].popleft()
        size = int(live.size[live.buffer_of[live.values.nodes(p)[0]]])
        result = _name(result_names, index)
        out.append(Donation(name, number, size, "could be donated", index, result))
    return tuple(out)


def _aliased(p: Instruction, name: str, size: int, index: tuple[int, ...], output: str) -> Donation:
    copies = donated_copies(p, index)
    number = p.parameter_number or 0
    inside = [c for c in copies if c.reason != SPACE]
    if not inside:
        return Donation(name, number, size, "aliased", index, output, copies=copies)
    most = max(inside, key=lambda c: c.bytes * c.runs)
    times = f"{most.runs:,} times" if most.runs > 1 else "once"
    why = f"%{most.instruction.name} copies all of it {times}"
    why += f": {most.words}" if most.words else ""
    if len(inside) > 1:
        why += f"; {len(inside) - 1:,} more cop{'ies' if len(inside) > 2 else 'y'}"
    return Donation(name, number, size, "aliased, but copied", index, output, why, copies)


def _why_in_vain(results: Shape, shape: Shape) -> str:
    """Reason: no output of that shape, or of that type, or none left."""
    outputs = list(results.leaves())
    same = [s for s in outputs if s.dense_text == shape.dense_text]
    if same:
        if any(s == shape for s in same):
            n = len(same)
            of = f"of {shape.dense_text} already"
            if n == 1:
                return f"the one output {of} lies in another argument's memory"
            return f"all {n} outputs {of} lie in other arguments' memory"
        return f"the outputs of {shape.dense_text} have another layout or sharding"
    dims = [s for s in outputs if s.dimensions == shape.dimensions and s.is_array]
    if dims:
        types = ", ".join(sorted({s.element_type for s in dims}))
        return f"it is {shape.dense_text}, and the outputs of that shape are {types}"
    elements = [s for s in outputs if s.byte_size == shape.byte_size]
    if elements:
        return f"no output is {shape.dense_text} on a device (as large: {elements[0].dense_text})"
    return f"no output is {shape.dense_text} on a device"


def _owns(live: Liveness, index: tuple[int, ...]) -> bool:
    """Whether the output has its own allocation."""
    entry = live.module.entry
    if entry is None or entry.root is None:
        return False
    at, count = leaf_span(entry.root.shape, index)
    nodes = live.values.nodes(entry.root)[at : at + count]
    buffers = [int(live.buffer_of[v]) for v in nodes]
    return all(live.kind[b] == OUTPUT and live.home[b] < 0 for b in buffers)


def _name(names: list[str], index: tuple[int, ...]) -> str:
    k = index[0] if index else 0
    return names[k] if k < len(names) else ""


@dataclass(frozen=True, slots=True, repr=False)
class ParameterCopy(Row):
    """A value that is a whole parameter in another layout or type; its bytes and live range."""

    instruction: Instruction
    argument: str
    bytes: int
    changes: str  # "layout", "type", "layout and type", "memory space", "" for a plain copy
    start: int
    end: int


# Copies, transposes and conversions of a whole array, alone or fused.
# An array rounded in its own type is another one, not a copy in another memory.
_WHOLE = (MOVED | opcodes.FUSIONS) - {"reduce-precision"}


def find_parameter_copies(
    live: Liveness, argument_names: Mapping[int, str]
) -> tuple[ParameterCopy, ...]:
    """Copies and conversions of whole parameters, largest first.

    ``argument_names`` are by buffer of ``live``; an argument without one has that of its parameter.
    """
    out: list[ParameterCopy] = []
    may_move = table(live.module).may_pass(_WHOLE)[live.defined_by]
    for b in np.flatnonzero(may_move & (live.size > 0) & (live.kind != ARGUMENT)).tolist():
        i = live.module.instructions[int(live.defined_by[b])]
        source = _moved_from(i)
        if source is None or len(live.values.nodes(source)) != 1:
            continue
        a = int(live.buffer_of[live.values.nodes(source)[0]])
        if live.kind[a] != ARGUMENT:
            continue
        shape = live.shape_of(b)
        if shape.elements != source.shape.elements or shape.elements < 2:
            continue
        typed = shape.element_type != source.shape.element_type
        moved = _order(shape) != _order(source.shape) or shape.dimensions != source.shape.dimensions
        changes = " and ".join(w for w, on in (("layout", moved), ("type", typed)) if on)
        if not changes and memory_space(shape) != memory_space(source.shape):
            changes = "memory space"
        out.append(
            ParameterCopy(
                i,
                argument_names.get(a, source.name),
                int(live.size[b]),
                changes,
                int(live.start[b]),
                int(live.end[b]),
            )
        )
    return tuple(sorted(out, key=lambda c: (-c.bytes, c.instruction.index)))


def _order(shape: Shape) -> tuple[int, ...]:
    return shape.layout.minor_to_major if shape.layout is not None else ()


def _moved_from(i: Instruction) -> Instruction | None:
    """The parameter of ENTRY whose whole value ``i`` only moves or converts, or None."""
    if i.opcode not in _WHOLE or i.opcode in ("bitcast", "reshape"):
        return None
    source = walk.source(i, _WHOLE)
    found = source.instruction
    is_argument = found.opcode == "parameter" and found.computation.is_entry
    return found if is_argument and not source.element else None
