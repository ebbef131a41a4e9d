"""Loops that do more than anyone needs of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...hlo import Computation, Instruction, Module, StackFrame, Target, opcodes, walk
from ...hlo.walk import Position
from ..base.loops.trips import trip_count
from ..base.memory_tiling import storage_bytes
from ..base.table import per_target
from ..flops.matrix_unit import filled_flops, product_of, products_in
from ..text.units import duration
from . import limits
from .facts import Facts
from .finding import Finding, names, percent

# What lies between a carried value and the select that keeps it.
_SAME = opcodes.SAME_NUMBERS | opcodes.FUSIONS


def batched_loops(facts: Facts) -> Iterator[Finding]:
    """Loops of several rows that go on until the last row is done: what vmap makes of a while.

    body:  row = select(row is not done, what the trip makes of it, row)     for every row
    cond:  any row is not done
    """
    if facts.seconds is None or not facts.total_seconds:
        return
    by_line: dict[object, list[tuple[Instruction, int]]] = {}
    for n in facts.table.where("while").tolist():
        loop = facts.table.instructions[n]
        roles = dict(loop.called)
        body, condition = roles.get("body"), roles.get("condition")
        if body is None or condition is None or body.root is None or not body.parameters:
            continue
        kept = [s for k in range(len(loop.shape.tuple_shapes)) if (s := _kept_row(body, k))]
        counts = {c for s in kept for c in _rows(s)}
        if counts and facts.cost.runs[n] and _any_of(condition, counts):
            is_counted = trip_count(loop) is not None
            frame, _ = facts.line(loop)
            key = (frame.file, frame.line) if frame is not None else n
            by_line.setdefault((key, max(counts), is_counted), []).append((loop, max(counts)))
    for loops in by_line.values():
        yield from _batched(facts, [loop for loop, _ in loops], loops[0][1])


def _batched(facts: Facts, loops: list[Instruction], many: int) -> Iterator[Finding]:
    """The finding on loops of one line over so many rows; none if they take too little."""
    assert facts.seconds is not None
    assert facts.total_seconds
    work = [i for loop in loops for i in work_of(facts, dict(loop.called)["body"])]
    seconds = float(sum(facts.seconds[i.index] for i in work))
    share = min(1.0, seconds / facts.total_seconds)
    # A trip of many that are unknown is the least that it can be.
    is_counted = trip_count(loops[0]) is not None
    if share < (limits.BATCHED_SHARE if is_counted else limits.BATCHED_SHARE_OF_A_TRIP):
        return
    work.sort(key=lambda i: -float(facts.seconds[i.index]))  # type: ignore[index]
    once = "" if is_counted else f", with one trip{'' if len(loops) == 1 else ' of each'} counted"
    one = len(loops) == 1
    what = (
        f"A loop over {many:,} rows runs" if one else f"{len(loops)} loops over {many:,} rows run"
    )
    yield Finding(
        "batched-loop",
        f"{what} until the last of them is done: {'it is' if one else 'they are'}"
        f" {percent(share)} of the modelled step{once}",
        f"every trip of {names(loops)} computes all rows ({names(work)}), and a select keeps what"
        " a row had when it was done, as jax.vmap makes of a lax.while_loop whose end differs by"
        " row",
        "",
        share,
        seconds=seconds if is_counted else None,
        instructions=(*loops, *work[:20]),
        **facts.at(loops[0]),
    )


def _kept_row(body: Computation, k: int) -> Instruction | None:
    """The select of element ``k`` between a new value and the one that was carried."""
    assert body.root is not None
    at = walk.source(Position(body.root, (k,)), _SAME, inside_fusions=True)
    select = at.instruction
    if select.opcode != "select" or len(select.operands) != 3 or not _rows(select):
        return None
    for old in select.operands[1:]:
        way = walk.path(Position(old, (), at.calls), _SAME, inside_fusions=True)
        if any(p.instruction is body.parameters[0] and p.element == (k,) for p in way):
            return select
    return None


def _rows(select: Instruction) -> tuple[int, ...]:
    """The number of rows that a select tells apart; () if its predicate is one for all."""
    chosen = walk.source(select.operands[0], opcodes.REPEATED, inside_fusions=True).instruction
    count = chosen.shape.elements if chosen.shape.is_array else 1
    return (count,) if count > 1 else ()


def _any_of(condition: Computation, counts: set[int]) -> bool:
    """Whether a loop goes on while any of so many predicates holds."""
    if condition.root is None:
        return False
    through = opcodes.ANYTHING - opcodes.LOOPS
    for p in walk.back(condition.root, through, inside_fusions=True, reach=limits.CAUSE_REACH):
        i = p.instruction
        if i.opcode not in opcodes.REDUCTIONS or not i.operands or not i.called_computations:
            continue
        combined = i.called_computations[0].root
        is_any = combined is not None and combined.opcode in ("or", "maximum", "and", "minimum")
        if is_any and i.operands[0].shape.elements in counts:
            return True
    return False


def work_of(facts: Facts, body: Computation) -> list[Instruction]:
    """What runs in a loop's body, in loops and branches in it as well."""
    assert facts.seconds is not None
    found, todo, seen = [], [body], {body}
    while todo:
        for i in todo.pop().instructions:
            if facts.runs[i.index] > 0 and facts.seconds[i.index] > 0:
                found.append(i)
            for c in i.called_computations if i.opcode != "fusion" else ():
                if c not in seen:
                    seen.add(c)
                    todo.append(c)
    return found


class _Hoistable(NamedTuple):
    """A product of each trip that needs nothing of the trips before it."""

    unit: Instruction
    product: Instruction
    now: float  # seconds, all trips
    at_once: float


Groups = tuple[tuple[Instruction, int, tuple[_Hoistable, ...]], ...]


def hoistable(facts: Facts) -> Groups:
    """(loop, trips, products of one line) where one product before the loop is quicker."""
    return _hoistable(facts.module, facts.target)


@per_target
def _hoistable(module: Module, target: Target) -> Groups:
    facts = Facts(module, target)
    if facts.seconds is None or not facts.total_seconds or facts.on_host:
        return ()
    out = []
    for n in facts.table.where("while").tolist():
        loop = facts.table.instructions[n]
        body, trips = dict(loop.called).get("body"), trip_count(loop)
        if body is None or not body.parameters or not trips or trips < 2 or not _recurs(loop):
            continue
        by_line: dict[StackFrame | None, list[_Hoistable]] = {}
        for unit in body.instructions:
            for product in products_in(unit):
                if facts.runs[unit.index] and _is_given(body, product):
                    found = _at_once(facts, unit, product, trips)
                    by_line.setdefault(facts.line(product)[0], []).append(found)
        for rows in by_line.values():
            gained = sum(x.now - x.at_once for x in rows)
            if gained >= limits.HOISTED_SHARE * facts.total_seconds:
                rows.sort(key=lambda x: x.at_once - x.now)
                out.append((loop, trips, tuple(rows)))
    return tuple(out)


def hoistable_products(facts: Facts) -> Iterator[Finding]:
    """Products in a loop of what the loop is given, trip by trip, where one product is quicker.

    body:  x[t] @ w + h @ u        x[t] @ w does not wait for h: x @ w, before the loop

    Not where no trip waits for another one: such a loop goes over blocks, as of a batch whose
    gradients it adds up, for all of it would take too much memory at once.
    """
    for loop, trips, rows in hoistable(facts):
        now, once = sum(x.now for x in rows), sum(x.at_once for x in rows)
        one = len(rows) == 1
        yield Finding(
            "product-in-a-loop",
            f"{'A matmul' if one else f'{len(rows):,} matmuls'} in each of {trips:,} trips"
            f" need{'s' if one else ''} nothing of the trips before:"
            f" {duration(now)} that one product before the loop does in {duration(once)}",
            f"{names([x.unit for x in rows])} multipl{'ies' if one else 'y'} a slice of what"
            f" %{loop.name} is given, another in each trip, with an array that is always the same",
            "multiply all slices before the loop, in one product, and let the loop take slices of"
            " the result",
            (now - once) / (facts.total_seconds or now),
            seconds=now - once,
            instructions=tuple(x.unit for x in rows),
            **facts.at(rows[0].product),
        )


def _recurs(loop: Instruction) -> bool:
    """Whether a trip needs what the trips before made, and not only adds to it or stacks it."""
    body = dict(loop.called)["body"]
    if body.root is None:
        return False
    given = body.parameters[0]
    changing = {
        (k,)
        for k, shape in enumerate(loop.shape.tuple_shapes)
        if shape.is_array and shape.elements > 1 and not _is_handed_on(body, (k,))
    }
    through = opcodes.ANYTHING - opcodes.LOOPS
    for element in changing:
        new = walk.source(Position(body.root, element), _SAME, inside_fusions=True)
        made = new.instruction.operands
        if new.instruction.opcode in opcodes.UPDATES:
            made = made[1:]
        elif new.instruction.opcode == "add":
            olds = [
                walk.source(Position(o, (), new.calls), _SAME, inside_fusions=True) for o in made
            ]
            made = tuple(
                o
                for o, old in zip(made, olds, strict=True)
                if old.instruction is not given or old.element != element
            )
        for operand in made:
            start = Position(operand, (), new.calls)
            for p in walk.back(start, through, inside_fusions=True, reach=limits.CAUSE_REACH):
                if p.instruction is given and p.element in changing:
                    return True
    return False


def _is_given(body: Computation, product: Instruction) -> bool:
    """Whether it multiplies a slice, another in each trip, with an array that is always the same:
    both of arrays that every trip hands on unchanged."""
    slices = [_sliced(body, operand) for operand in product.operands]
    return None not in slices and sorted(map(bool, slices)) == [False, True]


def _sliced(body: Computation, operand: Instruction) -> bool | None:
    """Whether a value is made of slices that the trip chooses; None if of what a trip changes."""
    is_slice, reach = False, limits.CAUSE_REACH
    through = opcodes.ANYTHING - opcodes.LOOPS - opcodes.COMMUNICATION
    for p in walk.back(operand, through, inside_fusions=True, reach=reach):
        i = p.instruction
        is_slice |= i.opcode == "dynamic-slice"
        if i.opcode == "gather":  # by indices of the trip it is another array in each
            return None
        if i is body.parameters[0]:
            if len(p.element) != 1 or not _is_handed_on(body, p.element):
                return None
        elif i.opcode in opcodes.COMMUNICATION or i.opcode in opcodes.RANDOM:
            return None
    return is_slice


def _is_handed_on(body: Computation, element: tuple[int, ...]) -> bool:
    if body.root is None:
        return False
    at = walk.source(Position(body.root, element), _SAME)
    return at.instruction is body.parameters[0] and at.element == element


def _at_once(facts: Facts, unit: Instruction, product: Instruction, trips: int) -> _Hoistable:
    """Its modelled seconds as it is, and as one product of the slices of all trips."""
    chip, p = facts.cost.hardware, product_of(product)
    rate = chip.matmul_rate(facts.cost.matmul_dtype[unit.index]) if chip is not None else None
    runs = float(facts.runs[unit.index])
    assert facts.seconds is not None
    now = float(facts.seconds[unit.index])
    if chip is None or p is None or not rate:
        return _Hoistable(unit, product, now, now)
    side, every = chip.matrix_side, float(np.nan_to_num(facts.filled[unit.index]))
    own = filled_flops(p, side) if side else 2.0 * p.batch * p.rows * p.columns * p.contracted
    now *= min(1.0, own / every)
    for operand in unit.operands:  # what is waited for until it is in VMEM
        if operand.opcode == "copy-done" and operand.operands:
            now += float(facts.seconds[operand.operands[0].index])
    first = product.operands[0]
    is_first = bool(_sliced(unit.computation, first))
    many = p._replace(rows=p.rows * trips) if is_first else p._replace(columns=p.columns * trips)
    given, kept = product.operands if is_first else reversed(product.operands)
    # the slices and the weights once, the products written and read by slice
    moved = trips * (storage_bytes(given.shape) + 2 * storage_bytes(product.shape))
    moved += storage_bytes(kept.shape)
    flops = filled_flops(many, side) if side else own * trips
    at_once = max(flops / rate, moved / chip.memory_bandwidth) * runs / trips
    return _Hoistable(unit, product, now, min(now, at_once))


def looped_updates(facts: Facts) -> Iterator[Finding]:
    """Scatters that the compiler took apart into a loop, which writes one update a trip.

    Such a loop is named after the operation, where one of the program is named ``while``.
    """
    if facts.seconds is None:
        return
    groups: dict[object, list[tuple[Instruction, Computation, int]]] = {}
    for n in facts.table.where("while").tolist():
        loop = facts.table.instructions[n]
        body, trips = dict(loop.called).get("body"), trip_count(loop)
        is_scatter = _name(loop).startswith("scatter")
        if facts.cost.runs[n] and is_scatter and body is not None and trips and _write(body):
            frame, _ = facts.line(loop)
            key = (frame.file, frame.line, trips, _name(loop)) if frame is not None else loop.index
            groups.setdefault(key, []).append((loop, body, trips))
    for rows in groups.values():
        loops = [loop for loop, _, _ in rows]
        first, _, trips = rows[0]
        runs = sum(float(facts.cost.runs[loop.index]) for loop in loops)
        if runs * trips < limits.LOOPED_UPDATES:
            continue
        work = [i for _, body, _ in rows for i in work_of(facts, body)]
        work.sort(key=lambda i: -float(facts.seconds[i.index]))  # type: ignore[index]
        seconds = float(sum(facts.seconds[i.index] for i in work))
        share = facts.time_share(seconds, float(sum(facts.moved[i.index] for i in work)))
        frame, inferred = facts.line(first)
        if len(loops) > 1:
            what = f"{len(loops):,} {_name(first)}s became loops of {trips:,} steps"
            often = f", which run {runs:,.0f} times in all"
        else:
            what = f"A {_name(first)} became a loop of {trips:,} steps"
            often = f", and runs {runs:,.0f} times" if runs > 1 else ""
        # a batch of them, each at a place of its own, is a scatter that sets
        by_row = _name(first) == "scatter" and "dynamic_update" in facts.code(frame)
        write = _write(rows[0][1])
        is_one_row = by_row and write is not None and _is_one_row(write)
        yield Finding(
            "looped-updates",
            f"{what}{often}",
            f"XLA made %{first.name} of it, which writes one update in each trip ({names(work)});"
            " what a trip costs by itself is not modelled"
            + (", and jax.vmap of a dynamic_update_slice is such a scatter" if by_row else ""),
            "write the row by its index instead, x.at[i].set(row) under jax.vmap: that stays one"
            " operation"
            if is_one_row
            else "",
            max(share, limits.WORTH_SAYING),
            seconds if seconds >= limits.LEAST_SECONDS else None,
            None,
            "",
            (*loops, *work[:20]),
            frame,
            inferred,
        )


def _name(loop: Instruction) -> str:
    """The operation that a loop is named after: ``scatter-add``, or ``while``."""
    return loop.op_name.rpartition("/")[2]


def _write(body: Computation) -> Instruction | None:
    """What each trip writes into an array that the loop carries; None if it writes into none."""
    if body.root is None or not body.parameters:
        return None
    for k in range(len(body.root.operands)):
        update = walk.source(Position(body.root, (k,)), _SAME, inside_fusions=True).instruction
        if update.opcode not in opcodes.UPDATES or not update.operands:
            continue
        held = walk.source(update.operands[0], _SAME)
        if held.instruction is body.parameters[0] and held.element == (k,):
            return update
    return None


def _is_one_row(update: Instruction) -> bool:
    """Whether it writes one index of each dimension that it does not write whole."""
    if update.opcode != "dynamic-update-slice" or len(update.operands) < 2:
        return False
    part, whole = (update.operands[k].shape.dimensions for k in (1, 0))
    return all(n in (1, all_of) for n, all_of in zip(part, whole, strict=True))
