"""Communication that could be less, or hidden, or not there at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...hlo import Instruction
from ...hlo.collective_kinds import KINDS
from ...hlo.places import short_line
from ..base.operands import callers, step_back
from ..comms.collective import Collective
from ..text.units import duration, size
from .facts import WORTH_SAYING, Facts
from .finding import Finding, names, percent

_STEPS = 60
_TINY = 1 << 16  # bytes: below it a transfer is nothing but latency on every chip of chips.toml


_MUCH = 0.25  # of the step: so much waiting is news however little is sent
_LATENCY = (
    "so little is sent that this is latency: fewer and larger transfers (fuse projections, sum"
    " several results at once), or shard so small a program over fewer devices"
)


def _where(row: Collective) -> str:
    return f"over {row.axes_or_groups}"


def _moved(row: Collective) -> str:
    return f"`{row.moves.name}`" if row.moves is not None else row.parts[0].shape


def _times(row: Collective) -> str:
    n = row.most_executions if row.executions is None else row.executions
    return "" if n in (0, 1, None) else f", {row.executions_text} times a step"


def exposed(facts: Facts) -> Iterator[Finding]:
    """Transfers that the chip waits for, by kind, axes and line."""
    r = facts.cost.roofline
    if r is None or not facts.total_seconds or facts.on_host:
        return
    waits: dict[int, float] = defaultdict(float)
    for t, seconds in zip(r.transfers, r.waited_seconds.tolist(), strict=True):
        row = facts.collectives.by_instruction.get(t.start)
        # What moves a constant needs no hiding: it is a finding of its own.
        if row is not None and seconds > 0 and not _moves_constants(row):
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
        many = f"{len(rows):,} {kind}s" if len(rows) > 1 else f"{kind} of {_moved(first)}"
        frame, inferred = facts.line(first.anchor)
        yield Finding(
            "exposed-collective",
            f"The chip waits {duration(seconds)} ({percent(share)} of the modelled step) for {many}"
            f" {_where(first)}",
            f"{duration(seconds)} of {duration(max(whole, seconds))} on the wire have no compute"
            f" beside them{_lines(rows, waits, seconds)}; the longest is %{first.name},"
            f" {size(first.payload_bytes)} of {_moved(first)}{_times(first)}",
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


def _same_groups(a: Collective, b: Collective) -> bool:
    if a.groups is None or b.groups is None:
        return False
    return a.groups is b.groups or a.groups.rows() == b.groups.rows()


def gathered_twice(facts: Facts) -> Iterator[Finding]:
    """One value gathered again over the same axes in the same phase and computation."""
    seen: dict[tuple[object, ...], list[Collective]] = defaultdict(list)
    for row in facts.collectives:
        if row.kind != "all-gather" or row.moves is None or row.phase == "rematerialised":
            continue
        if row.moves.kind not in ("argument", "value") or len(row.parts) != 1:
            continue
        source = row.instruction.operands[0] if row.instruction.operands else None
        if source is None:
            continue
        key = (
            row.moves.instruction.index, row.instruction.computation.index,
            row.instruction.shape.elements, row.executions, _slice_of(source),
        )  # fmt: skip
        seen[key].append(row)
    for rows in seen.values():
        rows = [row for row in rows if _same_groups(row, rows[0])]
        if len(rows) < 2:
            continue
        again = rows[1:]
        wire = sum(row.total_wire_bytes or 0 for row in again)
        seconds = facts.waited(m for row in again for m in row.members)
        frame, inferred = facts.line(again[0].anchor)
        yield Finding(
            "gathered-twice",
            f"{_moved(rows[0])} is gathered {len(rows)} times {_where(rows[0])}",
            f"the same shards are gathered as {_shapes(rows)}{_phases(rows)}:"
            f" {names([row.instruction for row in rows])}",
            "gather it once: constrain the value to be replicated right where it is first used,"
            " and use that result again",
            facts.wire_share(wire, seconds),
            seconds,
            wire,
            "wire",
            tuple(row.instruction for row in rows),
            frame,
            inferred,
        )


def _shapes(rows: list[Collective]) -> str:
    return " and ".join(dict.fromkeys(row.parts[0].shape for row in rows))


def _phases(rows: list[Collective]) -> str:
    found = [p for p in dict.fromkeys(row.phase for row in rows) if p]
    return f", {' and '.join(found)}" if found else ""


def _slice_of(value: Instruction) -> str:
    """Which part of its source a value is, as text; the same text is the same part."""
    parts = []
    path: list[int] = []
    at: Instruction | None = value
    for _ in range(_STEPS):
        if at is None:
            break
        if at.opcode in ("slice", "dynamic-slice", "get-tuple-element") or _slices(at):
            parts.append(at.name if at.opcode != "slice" else at.attribute("slice") or at.name)
        at = step_back(at, path)
    return "/".join(parts)


def _slices(i: Instruction) -> bool:
    inside = i.called_computations[0].instructions if i.opcode == "fusion" else ()
    return any(x.opcode in ("slice", "dynamic-slice") for x in inside)


def _is_trifle(facts: Facts, wire_bytes: float) -> bool:
    """Under a hundredth of what is sent: a gradient's norm, a loss."""
    return wire_bytes < 0.01 * facts.collectives.wire_bytes


def of_constant(facts: Facts) -> Iterator[Finding]:
    """Collectives whose operands are constants: every device could make the result itself."""
    for row in facts.collectives:
        operands = row.instruction.operands
        if not _moves_constants(row):
            continue
        wire = row.total_wire_bytes or 0
        if _is_trifle(facts, wire):
            continue
        seconds = facts.waited(row.members)
        frame, inferred = facts.line(row.anchor)
        yield Finding(
            "collective-of-constant",
            f"{row.kind} of a constant {_where(row)}: every device already knows the result",
            f"%{row.name} moves {size(row.payload_bytes)}{_times(row)}, and its operand"
            f" %{operands[0].name} is the same constant everywhere",
            "constrain the constant's sharding where it is made, or make it inside the function"
            " with the sharding it is used in",
            max(WORTH_SAYING, facts.wire_share(wire, seconds)),
            seconds,
            wire or row.total_payload_bytes,
            "wire",
            (row.instruction,),
            frame,
            inferred,
        )


def _moves_constants(row: Collective) -> bool:
    operands = row.instruction.operands
    return bool(operands) and all(_is_constant(o) for o in operands)


_OWN = ("rng", "partition-id", "replica-id", "infeed", "recv", "custom-call")


def _is_constant(value: Instruction) -> bool:
    """Whether nothing that a value is made from differs between devices or runs."""
    front, seen = [value], {value.index}
    while front:
        x = front.pop()
        if x.opcode.startswith(_OWN) or len(seen) > 100:
            return False
        if x.opcode == "parameter":
            caller = callers(x.module).get(x.computation.index)
            number = x.parameter_number
            if caller is None or caller.opcode not in ("fusion", "call") or number is None:
                return False
            ahead = caller.operands[number : number + 1]
        elif x.opcode in ("fusion", "call") and x.called_computations:
            root = x.called_computations[0].root
            ahead = (root,) if root is not None else ()
        elif x.called_computations and x.opcode not in ("reduce", "map"):
            return False
        else:
            ahead = x.operands
        for o in ahead:
            if o.index not in seen:
                seen.add(o.index)
                front.append(o)
    return True


_SAME = frozenset({
    "get-tuple-element", "bitcast", "reshape", "convert", "copy", "transpose", "copy-start",
    "copy-done", "all-reduce-done", "optimization-barrier", "bitcast-convert", "tuple",
})  # fmt: skip


def reduced_twice(facts: Facts) -> Iterator[Finding]:
    """Sums of two all-reduces over the same devices: adding first halves the transfer."""
    rows = [row for row in facts.collectives if row.kind == "all-reduce" and _is_sum(row)]
    if not rows:
        return
    # What holds nothing but one reduced array (or a part of a combined one), followed forward.
    marks: dict[int, tuple[Collective, Instruction]] = {}
    for row in rows:
        for value in _parts_of(row):
            _spread(facts, value, (row, value), marks)
    found: dict[int, list[tuple[Instruction, tuple[Collective, Instruction]]]] = defaultdict(list)
    for index in list(marks):
        for user in facts.module.instructions[index].users:
            if user.opcode != "add" or len(user.operands) != 2 or user.index in found:
                continue
            a, b = (marks.get(o.index) for o in user.operands)
            if a is None or b is None or a[1] is b[1] or not _same_groups(a[0], b[0]):
                continue
            if not (_one_use(a[1]) and _one_use(b[1])):
                continue
            less = min((a, b), key=lambda x: x[1].shape.byte_size)
            found[user.index].append((user, less))
    alike: dict[tuple[object, ...], list[_Twice]] = defaultdict(list)
    for pairs in found.values():
        user, (row, value) = pairs[0]
        part = value.shape.byte_size
        payload = sum(p.bytes for p in row.parts) or 1
        wire = int((row.total_wire_bytes or 0) * part / payload)
        if _is_trifle(facts, wire):
            continue
        seconds = facts.waited(row.members)
        seconds = None if seconds is None else seconds * part / payload
        other = next(o for o in (marks[x.index] for x in user.operands) if o[1] is not value)
        key = row.axes_or_groups, value.shape.dense_text, row.executions
        alike[key].append(_Twice(user, row, value, other[0], wire, seconds))
    for twice in alike.values():
        yield _told_twice(facts, twice)


class _Twice(NamedTuple):
    """An addition of two reduced values; wire bytes and seconds of the smaller one."""

    user: Instruction
    row: Collective
    value: Instruction
    other: Collective
    wire: int
    seconds: float | None


def _told_twice(facts: Facts, twice: list[_Twice]) -> Finding:
    user, row, value, other, _, _ = twice[0]
    saved = sum(x.value.shape.byte_size * x.row.counted for x in twice)
    rows = list(dict.fromkeys(x.row for x in twice))
    whole = sum(r.total_payload_bytes or 0 for r in rows)
    wire = sum(x.wire for x in twice)
    known = [x.seconds for x in twice if x.seconds is not None]
    seconds = sum(known) if known else None
    frame, inferred = facts.line(user)
    many = len(twice) > 1
    subject = f"{len(twice):,} gradients are" if many else "A gradient is"
    where = f"in %{row.name} and in %{other.name}" if row is not other else f"both in %{row.name}"
    evidence = dict.fromkeys(
        i for x in twice for i in (x.row.instruction, x.other.instruction, x.user)
    )
    return Finding(
        "reduced-twice",
        f"{subject} reduced twice {_where(row)}: {saved:,} of {whole:,} B of"
        f" {names([r.instruction for r in rows])} could be saved",
        f"%{user.name} adds two values that are each all-reduced: {value.shape.dense_text}"
        f" {where} (such as the two uses of a tied embedding)",
        "add the two partial gradients before they are reduced: compute both uses from one"
        " array inside one function, or reduce the sum by hand in shard_map",
        max(WORTH_SAYING, facts.wire_share(wire, seconds)),
        seconds,
        wire,
        "wire",
        tuple(evidence),
        frame,
        inferred,
    )


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
        if user.opcode == "all-reduce-done":
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
) -> None:
    """Marks what is ``value`` and nothing else, into the fusions that use it."""
    front = [value]
    for _ in range(_STEPS):
        ahead: list[Instruction] = []
        for x in front:
            if x.index in marks:
                continue
            marks[x.index] = mark
            for user in x.users:
                if user.opcode in _SAME and user.opcode != "tuple" and len(user.operands) == 1:
                    ahead.append(user)
                elif user.opcode == "fusion" and user.called_computations:
                    inside = user.called_computations[0].parameters
                    for n, o in enumerate(user.operands):
                        if o is x and n < len(inside):
                            ahead.append(inside[n])
        front = ahead
        if not front:
            return


def _one_use(value: Instruction) -> bool:
    """Whether the chain of copies and casts from a reduced value ends in one place."""
    at = value
    for _ in range(_STEPS):
        users = at.users
        if len(users) != 1:
            return False
        if users[0].opcode not in _SAME or users[0].opcode == "tuple":
            break
        at = users[0]
    if users[0].opcode != "fusion":
        return True
    inside = users[0].called_computations[0].parameters
    number = [n for n, o in enumerate(users[0].operands) if o is at]
    if len(number) != 1 or number[0] >= len(inside):
        return False
    return _one_use(inside[number[0]]) if inside[number[0]].users else True


def gathered_then_sliced(facts: Facts) -> Iterator[Finding]:
    """Arrays gathered whole of which every use takes a slice: the sharding goes there and back."""
    for row in facts.collectives:
        if row.kind != "all-gather" or len(row.parts) != 1:
            continue
        uses = list(_real_users(row.instruction))
        if not uses or not all(_is_device_slice(u) for u in uses):
            continue
        if any(u.shape.elements * 2 > row.instruction.shape.elements > 0 for u in uses):
            continue
        wire = row.total_wire_bytes or 0
        seconds = facts.waited(row.members)
        frame, inferred = facts.line(row.anchor)
        yield Finding(
            "gathered-then-sliced",
            f"{_moved(row)} is gathered {_where(row)}, and each device then keeps only a slice",
            f"%{row.name} makes {row.parts[0].shape}, and all its users cut it again"
            f" ({names(uses)})",
            "the sharding changes there and back: constrain the value between the two to the"
            " sharding of its user, so that shards move directly",
            facts.wire_share(wire, seconds),
            seconds,
            wire,
            "wire",
            (row.instruction, *uses[:4]),
            frame,
            inferred,
        )


def reduced_then_sliced(facts: Facts) -> Iterator[Finding]:
    """All-reduces of which each device keeps its own slice: half of the wire for nothing."""
    if facts.target.platform == "cpu":
        return  # XLA:CPU has no pass that makes reduce-scatters; the same program has on a chip
    for row in facts.collectives:
        if row.kind != "all-reduce" or len(row.parts) != 1 or row.group_size < 2:
            continue
        uses = list(_real_users(row.instruction))
        if not uses or not all(_is_device_slice(u) for u in uses):
            continue
        wire = (row.total_wire_bytes or 0) // 2
        whole = facts.waited(row.members)
        frame, inferred = facts.line(row.anchor)
        yield Finding(
            "reduced-then-sliced",
            f"%{row.name} reduces all of {row.parts[0].shape} {_where(row)}, and each device"
            " keeps a slice: a reduce-scatter would send half",
            f"its users cut it by device: {names(uses)}",
            "constrain the sum's sharding where it is made (or use psum_scatter) so that the"
            " compiler can reduce-scatter",
            facts.wire_share(wire, None if whole is None else whole / 2),
            None if whole is None else whole / 2,
            wire,
            "wire",
            (row.instruction, *uses[:4]),
            frame,
            inferred,
        )


def _real_users(value: Instruction) -> Iterator[Instruction]:
    """Users behind copies, casts and done halves; a tuple or a root counts as a use."""
    front, seen = [value], {value.index}
    if value.is_root:
        yield value
    while front:
        x = front.pop()
        for u in x.users:
            if u.index in seen:
                continue
            seen.add(u.index)
            plumbing = u.opcode in _SAME - {"tuple"} or u.opcode.endswith("-done")
            if plumbing and not u.is_root:
                front.append(u)
            else:
                yield u


def _is_device_slice(u: Instruction) -> bool:
    """A dynamic-slice at an offset that comes from the device's own number."""
    if u.opcode == "dynamic-slice":
        return any(_from_partition(o) for o in u.operands[1:])
    if u.opcode != "fusion" or not u.called_computations:
        return False
    root = u.called_computations[0].root
    while root is not None and root.opcode in _SAME - {"tuple"} and root.operands:
        root = root.operands[0]
    return (
        root is not None
        and root.opcode == "dynamic-slice"
        and any(_from_partition(o) for o in root.operands[1:])
    )


def _from_partition(value: Instruction) -> bool:
    front = [value]
    seen: set[int] = set()
    while front and len(seen) < 200:
        x = front.pop()
        if x.index in seen:
            continue
        seen.add(x.index)
        if x.opcode in ("partition-id", "replica-id"):
            return True
        if x.opcode == "parameter" and not x.computation.is_entry:
            caller = callers(x.module).get(x.computation.index)
            number = x.parameter_number
            if caller is not None and caller.opcode in ("fusion", "call") and number is not None:
                front += caller.operands[number : number + 1]
        elif x.opcode == "fusion" and x.called_computations:
            root = x.called_computations[0].root
            front += [root] if root is not None else []
        else:
            front += x.operands
    return False


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
            f" {_where(free[0])} could be one",
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
