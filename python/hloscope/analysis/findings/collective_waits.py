"""Communication that is waited for: not hidden, or too small to be worth a transfer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...hlo.collective_kinds import KINDS
from ...hlo.places import short_line
from ..comms.collective import Collective
from ..text.units import duration, size
from .collective_facts import moved, moves_constants, over, times
from .facts import Facts
from .finding import Finding, names, percent

_TINY = 1 << 16  # bytes: below it a transfer is nothing but latency on every chip of chips.toml


_MUCH = 0.25  # of the step: so much waiting is news however little is sent


_LATENCY = (
    "so little is sent that this is latency: fewer and larger transfers (fuse projections, sum"
    " several results at once), or shard so small a program over fewer devices"
)


def exposed(facts: Facts) -> Iterator[Finding]:
    """Transfers that the chip waits for, by kind, axes and line."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host:
        return
    waits: dict[int, float] = defaultdict(float)
    for t, seconds in zip(r.transfers, r.waited_seconds.tolist(), strict=True):
        row = facts.collectives.by_instruction.get(t.start)
        # What moves a constant needs no hiding: it is a finding of its own.
        if row is not None and seconds > 0 and not moves_constants(row):
            waits[row.index] += seconds
    groups: dict[tuple[str, str, bool | None], list[Collective]] = defaultdict(list)
    for index in waits:
        row = facts.collectives[index]
        groups[row.kind, row.axes_or_groups, row.inserted].append(row)
    for (kind, _, _), rows in groups.items():
        rows.sort(key=lambda row: -waits[row.index])
        seconds = sum(waits[row.index] for row in rows)
        share = seconds / facts.total_seconds
        first = rows[0]
        # Data parallelism adds up gradients: that alone is news only where it takes long.
        gradients = kind == "all-reduce" and first.phase == "backward"
        if share < (0.15 if gradients else 0.05):
            continue
        is_latency = max(row.payload_bytes for row in rows) < _TINY
        if is_latency and share < _MUCH:
            continue
        whole = facts.seconds_of_wire(m for row in rows for m in row.members) or seconds
        many = f"{len(rows):,} {kind}s" if len(rows) > 1 else f"{kind} of {moved(first)}"
        frame, inferred = facts.line(first.anchor)
        yield Finding(
            "exposed-collective",
            f"The chip waits {duration(seconds)} ({percent(share)} of the modelled step) for {many}"
            f" {over(first)}",
            f"{duration(seconds)} of {duration(max(whole, seconds))} on the wire have no compute"
            f" beside them{_lines(rows, waits, seconds)}; the longest is %{first.name},"
            f" {size(first.payload_bytes)} of {moved(first)}{times(first)}",
            _LATENCY if is_latency else _advice(facts, first),
            share,
            seconds,
            sum(row.total_wire_bytes or 0 for row in rows) or None,
            "wire",
            tuple(row.instruction for row in rows),
            frame,
            inferred,
        )


def _lines(rows: list[Collective], waits: dict[int, float], seconds: float) -> str:
    """``: 60 % at llama.py:37, 30 % at llama.py:38``."""
    at: dict[str, float] = defaultdict(float)
    for row in rows:
        at[row.line] += waits[row.index]
    if len(at) < 2:
        return ""
    most = sorted(at.items(), key=lambda x: -x[1])[:4]
    return ": " + ", ".join(
        f"{percent(s / seconds)} {f'at {short_line(line)}' if line else 'without a line'}"
        for line, s in most
    )


def _advice(facts: Facts, row: Collective) -> str:
    if row.kind == "all-reduce" and _is_gradient(facts, row):
        return (
            "these are gradients, summed over the batch: larger batches on a device or several"
            " microbatches a step make them rarer, layers in a scan let them start while the"
            " backward pass still runs, and sharded state needs a reduce-scatter instead"
        )
    if row.inserted and row.kind == "all-reduce":
        return (
            "a contracted dimension is sharded: each device holds a partial sum. Shard another"
            " dimension of the operands, or constrain the result to stay sharded so that it"
            " becomes a reduce-scatter"
        )
    if row.inserted and row.kind == "all-gather":
        return (
            "an operand is sharded along a dimension that the operation needs whole. Constrain"
            " the other operand the same way, or give it more work to hide behind"
        )
    if row.inserted:
        return (
            "the sharding changes between two operations: put a with_sharding_constraint where"
            " the two can agree"
        )
    return "start it earlier, or give it independent work to run beside"


def _is_gradient(facts: Facts, row: Collective) -> bool:
    """Whether what is summed has the shapes of arguments, and is made in the backward pass."""
    entry = facts.module.entry
    if row.phase != "backward" or entry is None:
        return False
    known = {s.dimensions for p in entry.parameters for s in p.shape.leaves()}
    leaves = [s.dimensions for s in row.instruction.shape.leaves() if s.elements > 1]
    return bool(leaves) and all(x in known for x in leaves)


def tiny(facts: Facts) -> Iterator[Finding]:
    """Many small collectives of one kind: latency again and again where one would do."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host:
        return
    groups: dict[tuple[str, str, int], list[Collective]] = defaultdict(list)
    for row in facts.collectives:
        each = row.payload_bytes // max(1, len(row.parts))
        known = KINDS.get(row.kind)
        if known is not None and known.pattern in ("ring", "exchange") and 0 < each <= _TINY:
            key = (row.kind, row.axes_or_groups, row.instruction.computation.index)
            groups[key].append(row)
    for rows in groups.values():
        free = _independent(rows)
        if len(free) < 8:
            continue
        seconds = facts.waited(m for row in free for m in row.members) or 0.0
        saved = seconds * (1 - 1 / len(free))
        frame, inferred = facts.line(free[0].anchor)
        yield Finding(
            "tiny-collectives",
            f"{len(free):,} {free[0].kind}s of {size(free[0].payload_bytes)} or so"
            f" {over(free[0])} could be one",
            f"none needs the result of another: {names([row.instruction for row in free])}",
            "stack or concatenate the small arrays and communicate once, or raise the combiner"
            " threshold (xla_*_all_reduce_combine_threshold_bytes)",
            saved / facts.total_seconds,
            saved,
            None,
            "",
            tuple(row.instruction for row in free),
            frame,
            inferred,
        )


def _independent(rows: list[Collective]) -> list[Collective]:
    """Those of which none depends on an earlier one of them, first come first served."""
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
