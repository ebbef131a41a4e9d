"""Unnecessary parts of the program: constants, callbacks, the compiler's own warnings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction
from ..base.lines.op_name import is_operation
from ..base.operands import source_of
from ..base.phases.phases import BACKWARD, phases
from ..comms.collective import Collective
from ..cost.moves import moves
from ..flops.matrix_unit import products_in
from ..text.units import duration, size
from ..why.compiler_messages import REMATERIALIZED, CompilerMessage, compiler_messages
from . import limits
from .collective_facts import sent
from .collective_repeats import slice_of
from .facts import Facts
from .finding import Finding, names, percent

if TYPE_CHECKING:
    from ..grouping.layers.layers import Run

_CALLBACK = re.compile(r"callback|host_compute", re.I)


def full_rematerialization(facts: Facts) -> Iterator[Finding]:
    """The partitioner's own warnings: arrays gathered whole to change their sharding."""
    each = []
    moved: dict[int, Collective] = {}  # one may be of several warnings
    for m in compiler_messages(facts.module, facts.target):
        if m.kind == REMATERIALIZED:
            rows = [facts.module.instructions[n] for n in m.instructions]
            members = facts.collectives.by_instruction
            mine = {id(r): r for i in rows if (r := members.get(i.index)) is not None}
            seconds = facts.waited(n for row in mine.values() for n in row.members)
            share = facts.wire_share(sent([*mine.values()]), seconds)
            each.append(_Gathered(m, rows, share))
            moved |= mine
    if not each:
        return
    each.sort(key=lambda g: -g.share)
    first = each[0].message
    evidence = [
        f"{g.message.whole or 'an array'}{f' at {g.message.line}' if g.message.line else ''}: from"
        f" {g.message.had} to {g.message.needs}" + (f" ({names(g.rows)})" if g.rows else "")
        for g in each[:_NAMED]
    ]
    more = f"; and {len(each) - _NAMED} more" if len(each) > _NAMED else ""
    total = sent([*moved.values()])
    seconds = facts.waited(n for row in moved.values() for n in row.members)
    of = first.whole or "an array" if len(each) == 1 else f"{len(each)} arrays"
    yield Finding(
        "full-rematerialization",
        f"XLA gathers all of {of} to change {'its' if len(each) == 1 else 'their'} sharding",
        f"it knows no direct way for {'; '.join(evidence)}{more}",
        "",
        # XLA itself warns of it, so that people look for it
        max(limits.WORTH_SAYING, facts.wire_share(total, seconds)),
        seconds=seconds,
        bytes=total,
        bytes_of="wire",
        instructions=tuple(i for g in each for i in g.rows),
        **facts.at(next(iter(each[0].rows), None)),
    )


class _Gathered(NamedTuple):
    """A warning, the gathers that do it, and their share of the step or of the bytes sent."""

    message: CompilerMessage
    rows: list[Instruction]
    share: float


# Arrays that the sentence names.
_NAMED = 3


def large_constants(facts: Facts) -> Iterator[Finding]:
    """Arrays that are part of the program text."""
    t = facts.table
    rows = [t.instructions[n] for n in t.where("constant").tolist()]
    rows = [i for i in rows if i.shape.byte_size >= limits.LARGE_CONSTANT]
    if not rows:
        return
    rows.sort(key=lambda i: -i.shape.byte_size)
    total = sum(i.shape.byte_size for i in rows)
    made = [name for i in rows if is_operation(name := i.op_name.rpartition("/")[2])]
    is_made = len(made) == len(rows)
    yield Finding(
        "large-constant",
        f"{size(total)} of constants are baked into the program",
        f"{len(rows):,} of at least {size(limits.LARGE_CONSTANT)}: {names(rows)}, the largest"
        f" {rows[0].shape.dense_text}"
        + (
            f"; XLA computed {'them' if len(rows) > 1 else 'it'} while it compiled, as the operands"
            f" of {', '.join(dict.fromkeys(made))} are known then"
            if is_made
            else ""
        ),
        ""
        if is_made
        else "pass the array as an argument: a closed-over array is copied into every compiled"
        " program, slows compiling down and cannot be donated or sharded",
        max(limits.WORTH_SAYING, facts.peak_share(total)),
        bytes=total,
        bytes_of="the program",
        instructions=tuple(rows),
        **facts.at(rows[0]),
    )


def unrolled(facts: Facts) -> Iterator[Finding]:
    """Layers that a Python loop wrote out one by one, where that makes the program long."""
    if len(facts.module.instructions) < limits.UNROLLED_INSTRUCTIONS:
        return
    from ..grouping.layers.layers import layers  # which few programs need

    found = layers(facts.module)
    t = facts.table
    held = _held(facts)
    products = _products(facts, found.layer)
    stacks: dict[tuple[int, ...], tuple[str, Instruction]] = {}
    for run in found.runs:
        # A tree of collectives or a solver's sweep repeats too, but is not a layer.
        if not (facts.cost.matmul_flops[[s[0] for s in run.stack.spine]] > 0).any():
            continue
        for numbers in _alike(run, products):
            if numbers[0] in products:
                stacks.setdefault(numbers, (run.name, products[numbers[0]][0]))
    for numbers, (name, first) in stacks.items():
        if any(set(numbers) < set(other) for other in stacks):
            continue
        inside = np.isin(found.layer, numbers)
        total = int(held[inside].sum())
        most = limits.UNROLLED_SHARE * len(t.instructions)
        if len(numbers) < limits.UNROLLED_LAYERS or total < max(limits.UNROLLED_INSTRUCTIONS, most):
            continue
        own = _have_own_weights(facts, numbers, products)
        what = "layers" if own else f"repetitions of `{name}`"
        yield Finding(
            "unrolled",
            f"{len(numbers)} {what} are written out one by one: {total:,} of"
            f" {len(t.instructions):,} instructions",
            f"`{name}` appears {len(numbers)} times with the same matmuls of the same shapes,"
            f" about {total // len(numbers):,} instructions each: time to compile and the size of"
            " the program grow with every one",
            "stack the layers' parameters along a new first axis and run one layer in jax.lax.scan"
            " (nn.scan in Flax): it compiles once, at the cost of slicing the stack in each step"
            if own
            else "run one of them in jax.lax.scan: it compiles once",
            limits.WORTH_SAYING,
            instructions=(first,),
            **facts.at(first),
        )


def _products(facts: Facts, layer: npt.NDArray[np.int64]) -> dict[int, list[Instruction]]:
    """The matmuls of each layer's forward pass, or of all that it has."""
    out: dict[int, list[Instruction]] = defaultdict(list)
    late: dict[int, list[Instruction]] = defaultdict(list)
    phase = phases(facts.module)
    for n in np.flatnonzero((layer >= 0) & (facts.cost.matmul_flops > 0)).tolist():
        of = late if phase[n] >= BACKWARD else out
        of[int(layer[n])].append(facts.table.instructions[n])
    return late | out


def _alike(run: Run, products: dict[int, list[Instruction]]) -> Iterator[tuple[int, ...]]:
    """Those in a row whose matmuls have the same shapes.

    Levels of a network are layers of one function too, but no scan runs over arrays of several
    shapes, nor over layers with others between them.
    """
    shapes = {n: {x for i in products.get(n, ()) for x in _multiplied(i)} for n in run.identity}
    numbers = sorted(run.identity)
    row: list[int] = numbers[:1]
    for number in numbers[1:]:
        a, b = shapes[row[-1]], shapes[number]
        # The first and the last layer may have the products before and after the stack, too.
        is_same = a == b or (row == numbers[:1] and a > b) or (number == numbers[-1] and a < b)
        if not is_same:
            yield tuple(row)
            row = []
        row.append(number)
    yield tuple(row)


def _have_own_weights(
    facts: Facts, numbers: tuple[int, ...], products: dict[int, list[Instruction]]
) -> bool:
    """Whether there is no argument, or part of one, that all of them multiply with."""
    used = []
    for n in numbers:
        given = [o for i in products[n] for o in _operands(i)]
        sources = [(source_of(o, facts.target), slice_of(o)) for o in given]
        used.append({(s.instruction, part) for s, part in sources if s.kind == "argument"})
    return not set.intersection(*used)


def _operands(i: Instruction) -> list[Instruction]:
    """What an instruction, or the products in its fusion, multiplies."""
    return [o for x in products_in(i) for o in x.operands[:2]]


def _multiplied(i: Instruction) -> list[tuple[tuple[int, ...], ...]]:
    """The dimensions of both operands of each product of an instruction."""
    dims = [tuple(sorted(d for d in o.shape.dimensions if d > 1)) for o in _operands(i)]
    return list(zip(dims[::2], dims[1::2], strict=True))


def _held(facts: Facts) -> npt.NDArray[np.int64]:
    """How many instructions each counts for: itself and those of the fusion it calls."""
    t = facts.table
    out = np.ones(len(t.instructions), np.int64)
    rows = t.where("fusion")
    counts = np.diff(t.called.offsets)[rows]
    callees = t.called.values[t.called.offsets[rows][counts == 1]]
    out[rows[counts == 1]] += t.size[callees]
    return out


def host_callbacks(facts: Facts) -> Iterator[Finding]:
    """Calls into Python, and transfers to and from the host, inside the step."""
    t = facts.table
    calls = [
        t.instructions[n]
        for n in t.where("custom-call").tolist()
        if facts.runs[n] and _CALLBACK.search(t.instructions[n].custom_call_target or "")
    ]
    calls += [t.instructions[n] for n in t.where("infeed", "outfeed").tolist() if facts.runs[n]]
    if not calls:
        return
    times = sum(float(facts.runs[i.index]) for i in calls)
    yield Finding(
        "host-callback",
        f"The step calls back into the host {times:,.0f} times",
        f"the devices wait for Python each time: {names(calls)}",
        "take jax.debug.print, pure_callback and io_callback out of the compiled step",
        limits.CALLBACK_SHARE,
        instructions=tuple(calls),
        **facts.at(calls[0]),
    )


def host_copies(facts: Facts) -> Iterator[Finding]:
    """Arrays fetched from the host's memory, or put there, that the chip waits for."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host or r.copy_wait_seconds <= 0:
        return
    rows = [
        m
        for m in moves(facts.module, facts.target)
        if m.kind in ("from host", "to host") and m.exposed > 0
    ]
    runs = [float(facts.cost.runs[m.starts[0]]) for m in rows]
    late = sum(m.exposed * n for m, n in zip(rows, runs, strict=True))
    seconds = min(late, r.copy_wait_seconds)
    share = seconds / facts.total_seconds
    if share < limits.HOST_COPIES_SHARE:
        return
    rows = [rows[k] for k in sorted(range(len(rows)), key=lambda k: -rows[k].exposed * runs[k])]
    total = sum(m.bytes * n for m, n in zip(rows, runs, strict=True))
    starts = [facts.module.instructions[m.starts[0]] for m in rows]
    word = "copies" if len(rows) > 1 else "copy"
    source = source_of(facts.module.instructions[rows[0].source], facts.target)
    chip = facts.cost.hardware
    slower = ""
    if chip is not None and chip.host_bandwidth:
        times = chip.memory_bandwidth / chip.host_bandwidth
        if times >= 2:
            slower = f": the link to the host is {times:.0f} times slower than its own memory"
    most = f"; the one waited for most is of `{source.name}`" if source.kind == "argument" else ""
    yield Finding(
        "host-copies",
        f"The chip waits {duration(seconds)} ({percent(share)} of the modelled step) for"
        f" {len(rows):,} {word} to or from the host's memory",
        f"{size(total)} a step go over the link to the host: {names(starts)}{most}{slower}",
        # What a policy offloads in the step, or the step returns there, is there for a reason.
        "keep on the device what every step reads" if source.kind == "argument" else "",
        share,
        seconds=seconds,
        bytes=int(total),
        bytes_of="traffic with the host",
        instructions=tuple(starts),
        **facts.at(starts[0]),
    )
