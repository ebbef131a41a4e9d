"""Communication that is waited for: not hidden, or too small to be worth a transfer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...hlo import StackFrame
from ...hlo.changes import Changes, spec_text
from ...hlo.collective_kinds import KINDS, kind_of
from ...hlo.shardings.specs import as_written, spec_of
from ...hlo.texts.places import short_line
from ..comms.collective import Collective
from ..comms.sharding import shardings
from ..text.units import duration, size
from . import limits
from .collective_facts import moved, moves_constants, over, sent, times
from .collective_gathers import whole_for
from .collective_loops import (
    ends_loop,
    fits_beside,
    is_alone_in,
    is_read_in_a_loop,
    same_in_all_trips,
)
from .collective_purposes import (
    For,
    OwnSharding,
    Purpose,
    is_only_stacked,
    own_sharding,
    purpose,
    results_of,
    uneven_result,
    words,
)
from .collective_slices import cut_again
from .facts import Facts
from .finding import Finding, names, percent

# What a kind of parallelism costs, and nothing in the program can avoid.
_PRICES = frozenset({For.GRADIENTS})
_LATENCY = "So little is sent that this is latency"
_ONCE = "stack or concatenate the small arrays and communicate once"
# Sums that are kept in shards are whole until the end, if they are summed over devices there.
_SCATTERED = (
    "add up whole sums on each device, and sum and cut them once, after the loop (in jax.shard_map:"
    " psum_scatter after the scan instead of in it), if there is memory for them"
)
_FEWER = "fewer and larger transfers, such as one sum of several results"
_AFTERWARDS = (
    "let the loop stack what each device has, and reduce that once, after the loop: no later trip"
    " needs the result"
)


# Of what is waited for: a line of less is not named.
_NAMED_PART = 0.005


def exposed(facts: Facts) -> Iterator[Finding]:
    """Transfers that the chip waits for, by kind, axes and line."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host:
        return
    waits: dict[int, float] = defaultdict(float)
    for t, seconds in zip(r.transfers, r.waited_seconds.tolist(), strict=True):
        row = facts.collectives.by_instruction.get(t.start)
        # What need not be sent need not be hidden: it is a finding of its own.
        if row is None or seconds <= 0 or moves_constants(row) or cut_again(row):
            continue
        if whole_for(facts, row) is not None:
            continue
        waits[row.index] += seconds
    groups: dict[tuple[str, str, For, bool], list[Collective]] = defaultdict(list)
    purposes: dict[int, Purpose] = {}
    for index in waits:
        row = facts.collectives[index]
        purposes[index] = found = purpose(facts, row)
        # What waits for latency alone needs other words than what waits for bytes.
        is_latency = row.payload_bytes < limits.TINY_TRANSFER
        groups[row.kind, row.axes_or_groups, found.what, is_latency].append(row)
    for (kind, _, what, is_latency), rows in groups.items():
        rows.sort(key=lambda row: -waits[row.index])
        seconds = sum(waits[row.index] for row in rows)
        share = seconds / facts.total_seconds
        first = rows[0]
        # The price of a kind of parallelism is worth reporting only if it is high.
        least = limits.EXPOSED_PRICE_SHARE if what in _PRICES else limits.EXPOSED_SHARE
        if share < least:
            continue
        # a loop of unknown trips is counted once, however long it takes
        is_short = facts.total_seconds < limits.SHORT_STEP and what is not For.LOOP_END
        if is_latency and (share < limits.LATENCY_SHARE or is_short):
            continue
        said, advice = words([purposes[row.index] for row in rows])
        if what is For.ACCUMULATED and not kind_of(kind).reduces_whole:
            advice = _SCATTERED if fits_beside(facts, rows) else ""
        if not _would_gain(facts, what, rows):
            advice = ""
        if what in (For.UPDATED, For.OUTPUT) and (uneven := uneven_result(facts, rows)):
            advice = f"pad it ({uneven}), and return it sharded then (out_shardings)"
        if is_latency:
            said = ". ".join(filter(None, (said, _LATENCY)))
        if is_latency and what is not For.LOOP_END:
            advice = _of_latency(rows, waits)
        changes: tuple[Changes, ...] = ()
        if what is For.RESHARDED and (kept := _kept_so(facts, rows, waits)):
            advice, changes = _to_keep(kept)
        if what is For.REGATHERED and advice:
            changes = _gathered_before(facts, rows)
        whole = facts.seconds_of_wire(m for row in rows for m in row.members) or seconds
        kind = "all-gather" if what is For.JOINED else kind
        many = f"{len(rows):,} {kind}s" if len(rows) > 1 else f"{kind} of {moved(first)}"
        it = "the longest" if len(rows) > 1 else "it"
        # XLA:CPU runs nothing beside a collective; what a chip's compiler would hide is not known.
        most = "up to " if facts.made_for_cpu else ""
        here = " in what XLA:CPU made, which overlaps nothing" if most else ""
        lines = _by_line(facts, rows, waits)
        frame, inferred = next(((x.frame, x.inferred) for x in lines if x.frame), (None, False))
        yield Finding(
            "exposed-collective",
            f"The chip waits {most}{duration(seconds)} ({percent(share)} of the modelled step) for"
            f" {many} {over(first)}",
            f"{_hidden(seconds, whole)}{here}{_lines(lines, seconds)}; {it} is"
            f" %{first.name}{_asked(first)}, {size(first.payload_bytes)} of"
            f" {moved(first)}{times(first)}{said and f'. {said}'}",
            advice,
            share,
            seconds,
            sent(rows),
            "wire",
            tuple(row.instruction for row in rows),
            frame,
            inferred,
            changes=changes,
        )


def _kept_so(facts: Facts, rows: list[Collective], waits: dict[int, float]) -> list[OwnSharding]:
    """Values whose gradients would have their shardings if they were constrained to them, one of a
    line; [] where that would not save half of what is waited for."""
    saved: dict[OwnSharding, float] = defaultdict(float)
    moved_by: dict[str, float] = defaultdict(float)
    for row in rows:
        if (known := own_sharding(facts, row)) is not None:
            saved[known] += waits[row.index]
            moved_by[known.cut_by] += row.payload_bytes
    kept: dict[str | int, OwnSharding] = {}
    for known in sorted(saved, key=lambda x: -saved[x]):
        if known.value != "" and known.price < moved_by[known.cut_by]:
            kept.setdefault(known.value, known)
    causes = {known.cut_by for known in kept.values()}
    gained = sum(seconds for known, seconds in saved.items() if known.cut_by in causes)
    if gained < limits.GAINED_SHARE * sum(waits[row.index] for row in rows):
        return []
    return list(kept.values())


def _to_keep(kept: list[OwnSharding]) -> tuple[str, tuple[Changes, ...]]:
    """The advice, and the changes that follow it."""
    said = [f"{spec_text(k.spec)} on {k.shown}" for k in kept]
    return (
        f"{kept[0].cut_by} cuts the gradient, where the value is cut otherwise: constrain the value"
        f" to the sharding that it has (with_sharding_constraint): {', '.join(said[:3])}"
        + (f" and {len(said) - 3} more" if len(said) > 3 else "")
    ), ({"constrain": {k.value: k.spec for k in kept}},)


def _gathered_before(facts: Facts, rows: list[Collective]) -> tuple[Changes, ...]:
    """A constraint on each argument that a loop gathers, without the axes that it is gathered
    over; none where what is gathered is computed before, or over parts of axes."""
    given = {a.instruction: a for a in shardings(facts.module, facts.target).parameters}
    specs: dict[str | int, Any] = {}
    for row in rows:
        for i in same_in_all_trips(facts, row):
            a = given.get(i)
            if a is None:
                return ()
            spec = spec_of(a.sharding, len(a.global_shape), facts.target.mesh)
            if spec is None or row.axes is None or ":" in str(spec):
                return ()
            gathered = row.axes.split("+")
            specs[a.name] = as_written(
                tuple(tuple(x for x in e if x not in gathered) for e in spec)
            )
    return ({"constrain": specs},)


def _would_gain(facts: Facts, what: For, rows: list[Collective]) -> bool:
    """Whether the advice for what collectives are for gains something in this program."""
    if what in (For.CONSTRAINED, For.BY_TRIP):
        # in shards it would be gathered by each trip of the loop that reads it
        return not any(is_read_in_a_loop(facts, results_of(row), row) for row in rows)
    if what is For.REGATHERED:
        return fits_beside(facts, rows)
    if what is For.LOOP_END:
        loops = [ends_loop(facts, results_of(row)) for row in rows]
        pairs = zip(loops, rows, strict=True)
        return all(loop is not None and is_alone_in(facts, loop, row) for loop, row in pairs)
    return True


def _asked(row: Collective) -> str:
    return f" (asked for as {row.asked_as})" if row.asked_as else ""


def _hidden(waited: float, wire: float) -> str:
    """The part of the time on the wire that is waited for; more than all of it on busy links."""
    if waited <= 1.005 * wire:
        shown = duration(min(waited, wire))
        return f"{shown} of {duration(wire)} on the wire is not hidden behind compute"
    return (
        f"none of {duration(wire)} on the wire is hidden behind compute, and"
        f" {duration(waited - wire)} more is spent waiting for earlier transfers to free the links"
    )


class _At(NamedTuple):
    """A line and the seconds that are waited there."""

    frame: StackFrame | None
    inferred: bool
    seconds: float


def _by_line(facts: Facts, rows: list[Collective], waits: dict[int, float]) -> list[_At]:
    """Seconds waited for each line, most first; of a combined one by the bytes of its arrays."""
    at: dict[str, _At] = {}
    for row in rows:
        for frame, inferred, part in lines_of(facts, row):
            key = f"{frame.file}:{frame.line}" if frame is not None else ""
            before = at.get(key, _At(frame, inferred, 0.0))
            at[key] = _At(
                frame, before.inferred and inferred, before.seconds + part * waits[row.index]
            )
    return sorted(at.values(), key=lambda x: -x.seconds)


def lines_of(facts: Facts, row: Collective) -> list[tuple[StackFrame | None, bool, float]]:
    """The lines that a collective serves, whether they are inferred, and their parts of it.

    XLA joins what many lines ask for, and gives it the line of one of them. What a line of the
    program asks for by name, be it for a tree of arrays, is that line's, not that of the arrays.
    """
    if row.written_by == "user":
        return [(row.source, bool(row.inferred), 1.0)]
    given = row.instruction.operands
    total = sum(p.bytes for p in row.parts)
    if row.is_combined and len(given) == len(row.parts) and total:
        found = [(*facts.line(o), p.bytes / total) for o, p in zip(given, row.parts, strict=True)]
        if sum(part for frame, _, part in found if frame is not None) > limits.MOSTLY:
            return found
    return [(row.source, bool(row.inferred), 1.0)]


def _lines(at: list[_At], seconds: float) -> str:
    """``: 60 % at llama.py:37, 30 % at llama.py:38``."""
    at = [x for x in at if x.seconds >= _NAMED_PART * seconds]
    if len(at) < 2:
        return ""
    said = []
    for x in at[:4]:
        where = (
            f"at {short_line(f'{x.frame.file}:{x.frame.line}')}" if x.frame else "without a line"
        )
        said.append(f"{percent(x.seconds / seconds)} {where}")
    more = f" and the rest at {len(at) - 4:,} more lines" if len(at) > 5 else ""
    return f": {', '.join(said)}{more}"


def tiny(facts: Facts) -> Iterator[Finding]:
    """Many small collectives of one kind: the latency of each, although one would be enough."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host:
        return
    groups: dict[tuple[str, str, int], list[Collective]] = defaultdict(list)
    for row in facts.collectives:
        part = row.payload_bytes // max(1, len(row.parts))
        known = KINDS.get(row.kind)
        if (
            known is not None
            and known.pattern in ("ring", "exchange")
            and 0 < part <= limits.TINY_TRANSFER
            # What is gathered again is gathered late, so that it need not be kept.
            and row.phase != "rematerialised"
        ):
            key = (row.kind, row.axes_or_groups, row.instruction.computation.index)
            groups[key].append(row)
    for rows in groups.values():
        free = _independent(rows)
        if len(free) < 8:
            continue
        seconds = facts.waited(m for row in free for m in row.members) or 0.0
        saved = seconds * (1 - 1 / len(free))
        sizes = sorted({row.payload_bytes for row in free})
        each = size(sizes[0]) + (f" to {size(sizes[-1])}" if len(sizes) > 1 else "")
        yield Finding(
            "tiny-collectives",
            f"{len(free):,} {free[0].kind}s of {each} {over(free[0])} could be one",
            f"none needs the result of another: {names([row.instruction for row in free])}",
            # what the partitioner puts in, nobody writes otherwise
            "" if any(row.inserted for row in free) else _ONCE,
            saved / facts.total_seconds,
            seconds=saved,
            instructions=tuple(row.instruction for row in free),
            **facts.at(free[0].anchor),
        )


def _of_latency(rows: list[Collective], waits: dict[int, float]) -> str:
    """Advice where half of what is waited for is saved by joining those that need no other's
    result, or by sending after a loop what its trips only keep; else ""."""
    at: dict[object, list[Collective]] = defaultdict(list)
    for row in rows:
        devices = row.groups.key if row.groups is not None else None
        at[row.instruction.computation.index, devices].append(row)
    joined = afterwards = 0.0
    for together in at.values():
        free = [(waits[row.index], _trips(row)) for row in _independent(together)]
        least = max((wait / n for wait, n in free), default=0.0)
        joined += sum(wait for wait, _ in free) - least
        afterwards += sum(wait - wait / n for wait, n in free)
    enough = limits.GAINED_SHARE * sum(waits[row.index] for row in rows)
    return _AFTERWARDS if afterwards >= enough else _FEWER if joined >= enough else ""


def _trips(row: Collective) -> int:
    """How often a loop runs a collective whose result no later trip needs; else 1."""
    kept = all(is_only_stacked(result, made_of_it=True) for result in results_of(row))
    return max(1, row.executions or 1) if kept else 1


def _independent(rows: list[Collective]) -> list[Collective]:
    """Those that depend on none chosen before them, in order."""
    computation = rows[0].instruction.computation
    picked: list[Collective] = []
    tainted: set[int] = set()
    members = {m: row for row in rows for m in row.members}
    for i in computation.instructions:
        row = members.get(i.index)
        depends = any(o.index in tainted for o in i.operands)
        if row is not None and not depends and i is row.instruction:
            picked.append(row)
        if depends or (row is not None and row in picked):
            tainted.add(i.index)
    return picked
