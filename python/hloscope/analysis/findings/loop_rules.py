"""Loops that do more than anyone needs of them."""

from __future__ import annotations

from collections.abc import Iterator

from ...hlo import Computation, Instruction, opcodes, walk
from ...hlo.walk import Position
from ..base.loops.trips import trip_count
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
    for n in facts.table.where("while").tolist():
        loop = facts.table.instructions[n]
        roles = dict(loop.called)
        body, condition = roles.get("body"), roles.get("condition")
        if body is None or condition is None or body.root is None or not body.parameters:
            continue
        kept = [s for k in range(len(loop.shape.tuple_shapes)) if (s := _kept_row(body, k))]
        counts = {c for s in kept for c in _rows(s)}
        if not counts or not _any_of(condition, counts):
            continue
        work = _work(facts, body)
        seconds = float(sum(facts.seconds[i.index] for i in work))
        share = min(1.0, seconds / facts.total_seconds)
        # A trip of many that are unknown is the least that it can be.
        is_counted = trip_count(loop) is not None
        if share < (limits.BATCHED_SHARE if is_counted else limits.BATCHED_SHARE_OF_A_TRIP):
            continue
        many = max(counts)
        work.sort(key=lambda i: -float(facts.seconds[i.index]))  # type: ignore[index]
        frame, inferred = facts.line(loop)
        once = "" if is_counted else ", with one trip counted"
        yield Finding(
            "batched-loop",
            f"A loop over {many:,} rows runs until the last of them is done: it is"
            f" {percent(share)} of the modelled step{once}",
            f"every trip of %{loop.name} computes all rows ({names(work)}), and a select keeps what"
            " a row had when it was done, as jax.vmap makes of a lax.while_loop whose end differs"
            " by row",
            "",
            share,
            seconds if is_counted else None,
            None,
            "",
            (loop, *work[:20]),
            frame,
            inferred,
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


def _work(facts: Facts, body: Computation) -> list[Instruction]:
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
        work = [i for _, body, _ in rows for i in _work(facts, body)]
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
