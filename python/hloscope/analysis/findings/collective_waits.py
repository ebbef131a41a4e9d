"""Communication that is waited for: not hidden, or too small to be worth a transfer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ...hlo import Instruction, opcodes, walk
from ...hlo.collective_kinds import KINDS, kind_of
from ...hlo.texts.places import short_line
from ..base.phases.phases import BACKWARD, phases
from ..comms.collective import Collective
from ..text.units import duration, size
from . import limits
from .collective_facts import moved, moves_constants, over, sent, times
from .collective_slices import cut_again
from .facts import Facts
from .finding import Finding, names, percent

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
        # What need not be sent need not be hidden: it is a finding of its own.
        if row is None or seconds <= 0 or moves_constants(row) or cut_again(row):
            continue
        waits[row.index] += seconds
    groups: dict[tuple[str, str, bool | None, bool], list[Collective]] = defaultdict(list)
    for index in waits:
        row = facts.collectives[index]
        # What waits for latency alone needs other advice than what waits for bytes.
        is_latency = row.payload_bytes < limits.TINY_TRANSFER
        groups[row.kind, row.axes_or_groups, row.inserted, is_latency].append(row)
    for (kind, _, _, is_latency), rows in groups.items():
        rows.sort(key=lambda row: -waits[row.index])
        seconds = sum(waits[row.index] for row in rows)
        share = seconds / facts.total_seconds
        first = rows[0]
        # Data parallelism adds up gradients: that alone is worth reporting only if it takes long.
        gradients = kind_of(kind).reduces_whole and (
            first.phase == "backward" or _is_gradient(facts, first)
        )
        if share < (limits.EXPOSED_GRADIENTS_SHARE if gradients else limits.EXPOSED_SHARE):
            continue
        if is_latency and (share < limits.LATENCY_SHARE or facts.total_seconds < limits.SHORT_STEP):
            continue
        whole = facts.seconds_of_wire(m for row in rows for m in row.members) or seconds
        many = f"{len(rows):,} {kind}s" if len(rows) > 1 else f"{kind} of {moved(first)}"
        it = "the longest" if len(rows) > 1 else "it"
        lines = _by_line(rows, waits)
        longest = next((r for line in lines for r in rows if line and r.line == line), first)
        frame, inferred = facts.line(longest.anchor)
        yield Finding(
            "exposed-collective",
            f"The chip waits {duration(seconds)} ({percent(share)} of the modelled step) for {many}"
            f" {over(first)}",
            f"{_hidden(seconds, whole)}{_lines(lines, seconds)}; {it} is %{first.name},"
            f" {size(first.payload_bytes)} of {moved(first)}{times(first)}",
            _LATENCY if is_latency else _advice(facts, first),
            share,
            seconds,
            sent(rows),
            "wire",
            tuple(row.instruction for row in rows),
            frame,
            inferred,
        )


def _hidden(waited: float, wire: float) -> str:
    """The part of the time on the wire that is waited for; more than all of it on busy links."""
    if waited <= 1.005 * wire:
        return f"{duration(waited)} of {duration(wire)} on the wire is not hidden behind compute"
    return (
        f"none of {duration(wire)} on the wire is hidden behind compute, and"
        f" {duration(waited - wire)} more is spent waiting for earlier transfers to free the links"
    )


def _by_line(rows: list[Collective], waits: dict[int, float]) -> dict[str, float]:
    """Seconds waited at each line, most first."""
    at: dict[str, float] = defaultdict(float)
    for row in rows:
        at[row.line] += waits[row.index]
    return dict(sorted(at.items(), key=lambda x: -x[1]))


def _lines(at: dict[str, float], seconds: float) -> str:
    """``: 60 % at llama.py:37, 30 % at llama.py:38``."""
    if len(at) < 2:
        return ""
    most = list(at.items())[:4]
    return ": " + ", ".join(
        f"{percent(s / seconds)} {f'at {short_line(line)}' if line else 'without a line'}"
        for line, s in most
    )


def _advice(facts: Facts, row: Collective) -> str:
    if kind_of(row.kind).reduces_whole and _is_accumulated(row):
        return (
            "each step of the loop sums over the devices and adds that to what it carries: add up"
            " on each device, and sum over the devices once, after the loop"
        )
    if kind_of(row.kind).reduces_whole and _is_gradient(facts, row):
        return (
            "these are gradients, summed over the batch: larger batches on a device or several"
            " microbatches a step make them rarer, layers in a scan let them start while the"
            " backward pass still runs, and sharded state needs a reduce-scatter instead"
        )
    if row.inserted and kind_of(row.kind).reduces_whole:
        return (
            "a contracted dimension is sharded: each device holds a partial sum. Shard another"
            " dimension of the operands, or constrain the result to stay sharded so that it"
            " becomes a reduce-scatter"
        )
    if row.inserted and kind_of(row.kind).scatters:
        return (
            "a contracted dimension is sharded and each device keeps a part of the sum: that is as"
            " little as such a sum takes. Give it independent work to overlap with, or shard"
            " another dimension of the operands"
        )
    if row.inserted and kind_of(row.kind).gathers and row.phase == "optimiser":
        return (
            "the state is updated in shards and wanted whole: keep it sharded and gather each"
            " layer's part where it is used (FSDP), beside the layer before"
        )
    if row.inserted and kind_of(row.kind).gathers:
        return (
            "an operand is sharded along a dimension that the operation needs whole. Constrain"
            " the other operand the same way, or give it more work to hide behind"
        )
    if row.inserted:
        return (
            "the sharding changes between two operations: put a with_sharding_constraint where"
            " the two can agree"
        )
    return "start it earlier, or give it independent work to overlap with"


def _is_accumulated(row: Collective) -> bool:
    """Whether a loop only adds what is summed to a value that it carries."""
    root = row.instruction.computation.root
    if root is None or root.opcode != "tuple" or (row.most_executions or 0) < 2:
        return False
    adds = {u.instruction for u in walk.uses(row.instruction, _is_handed_on)}
    return bool(adds) and all(_only_adds(u, root) for u in adds)


def _is_handed_on(i: Instruction) -> bool:
    same = opcodes.SAME_ORDER | {"get-tuple-element"}
    return i.opcode in same or i.opcode.endswith("-done")


def _only_adds(u: Instruction, root: Instruction) -> bool:
    """Whether ``u`` updates an element of a loop's tuple that nothing else in the loop reads."""
    places = [k for k, o in enumerate(root.operands) if o is u]
    if u.opcode not in ("add", "fusion") or len(places) != 1:
        return False
    old = [o for o in u.operands if o.opcode == "get-tuple-element"]
    old = [o for o in old if o.operands[0].opcode == "parameter"]
    if not any(o.attribute("index") == str(places[0]) for o in old):
        return False
    state = root.computation.parameters[0]
    mine = [x for x in state.users if x.attribute("index") == str(places[0])]
    return all(user is u for x in mine for user in x.users)


def _is_gradient(facts: Facts, row: Collective) -> bool:
    """Whether what is summed has the shapes of arguments and comes from the backward pass."""
    entry = facts.module.entry
    # Combined with the sum of a loss, all of it has the loss's name.
    backward = row.phase == "backward" or (len(row.parts) > 1 and BACKWARD in _all_phases(facts))
    if not backward or entry is None:
        return False
    shapes = {s.dimensions for p in entry.parameters for s in p.shape.leaves()}
    known = {_without_ones(d) for d in shapes}
    if not row.instruction.computation.is_entry:
        # one layer, from a stack of all
        known |= {_without_ones(d[1:]) for d in shapes if len(d) > 2}
    leaves = [s.dimensions for s in row.instruction.shape.leaves() if s.elements > 1]
    return bool(leaves) and all(_without_ones(x) in known for x in leaves)


def _without_ones(dimensions: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for d in dimensions if d != 1)


def _all_phases(facts: Facts) -> set[int]:
    return set(np.unique(phases(facts.module)).tolist())


def tiny(facts: Facts) -> Iterator[Finding]:
    """Many small collectives of one kind: the latency of each, although one would be enough."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host:
        return
    groups: dict[tuple[str, str, int], list[Collective]] = defaultdict(list)
    for row in facts.collectives:
        each = row.payload_bytes // max(1, len(row.parts))
        known = KINDS.get(row.kind)
        if (
            known is not None
            and known.pattern in ("ring", "exchange")
            and 0 < each <= limits.TINY_TRANSFER
        ):
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
