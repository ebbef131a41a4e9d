"""Communication of more than is used: gathered or summed whole, then sliced."""

from __future__ import annotations

from collections.abc import Iterator

from ...hlo import Instruction
from ..base.operands import callers
from ..comms.collective import Collective
from . import limits
from .collective_facts import SAME, moved, over
from .facts import Facts
from .finding import Finding, names


def gathered_then_sliced(facts: Facts) -> Iterator[Finding]:
    """Arrays gathered whole although every use takes a slice: the sharding goes back and forth."""
    for row in facts.collectives:
        uses = cut_again(row)
        if not uses:
            continue
        wire = row.total_wire_bytes
        seconds = facts.waited(row.members)
        frame, inferred = facts.line(row.anchor)
        yield Finding(
            "gathered-then-sliced",
            f"{moved(row)} is gathered {over(row)}, and each device then keeps only a slice",
            f"%{row.name} makes {row.parts[0].shape}, and all its users cut it again"
            f" ({names(uses)})",
            "the sharding changes back and forth: constrain the value between the two to the"
            " sharding of its user, so that shards move directly",
            facts.wire_share(wire, seconds),
            seconds,
            wire,
            "wire",
            (row.instruction, *uses[:4]),
            frame,
            inferred,
        )


def cut_again(row: Collective) -> list[Instruction]:
    """The users of an all-gather if each takes only its device's slice of it, else none."""
    if row.kind != "all-gather" or len(row.parts) != 1:
        return []
    whole = row.instruction.shape.elements
    uses = []
    for u in _real_users(row.instruction):
        if u.shape.elements * 2 > whole > 0 or not _is_device_slice(u, row.instruction):
            return []
        uses.append(u)
    return uses


def reduced_then_sliced(facts: Facts) -> Iterator[Finding]:
    """All-reduces of which each device keeps its own slice: half of the wire bytes are wasted."""
    if facts.target.platform == "cpu":
        return  # XLA:CPU has no pass that makes reduce-scatters, unlike other platforms
    for row in facts.collectives:
        if row.kind != "all-reduce" or len(row.parts) != 1 or row.group_size < 2:
            continue
        uses = list(_real_users(row.instruction))
        if not uses or not all(_is_device_slice(u, row.instruction) for u in uses):
            continue
        wire = None if row.total_wire_bytes is None else row.total_wire_bytes // 2
        whole = facts.waited(row.members)
        frame, inferred = facts.line(row.anchor)
        yield Finding(
            "reduced-then-sliced",
            f"%{row.name} reduces all of {row.parts[0].shape} {over(row)}, and each device"
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
    if value.is_root:
        yield value
    behind = {x.index: x for x in _sources(value)}
    seen: set[int] = set()
    for x in behind.values():
        for u in x.users:
            if u.index not in seen and (u.index not in behind or u.is_root):
                seen.add(u.index)
                yield u


def _is_device_slice(u: Instruction, value: Instruction) -> bool:
    """A dynamic-slice at an offset that comes from the device's own number, and no other use."""
    if u.opcode == "dynamic-slice":
        return any(_from_partition(o) for o in u.operands[1:])
    if u.opcode != "fusion" or not u.called_computations:
        return False
    inside = u.called_computations[0]
    root = inside.root
    while root is not None and root.opcode in SAME - {"tuple"} and root.operands:
        root = root.operands[0]
    if root is not None and root.opcode == "dynamic-slice":
        return any(_from_partition(o) for o in root.operands[1:])
    # Sliced first, then computed on: only slices read the whole.
    given = {o.index for o in _sources(value)}
    numbers = [n for n, o in enumerate(u.operands) if o.index in given]
    uses = [
        x for n in numbers if n < len(inside.parameters) for x in _real_users(inside.parameters[n])
    ]
    return bool(uses) and all(
        x.opcode == "dynamic-slice" and any(_from_partition(o) for o in x.operands[1:])
        for x in uses
    )


def _sources(value: Instruction) -> Iterator[Instruction]:
    """A value, and what equals it except for copies, casts and done halves."""
    front, seen = [value], {value.index}
    while front:
        x = front.pop()
        yield x
        for u in x.users:
            plumbing = u.opcode in SAME - {"tuple"} or u.opcode.endswith("-done")
            if plumbing and u.index not in seen:
                seen.add(u.index)
                front.append(u)


def _from_partition(value: Instruction) -> bool:
    front = [value]
    seen: set[int] = set()
    while front and len(seen) < limits.MOST_VISITED:
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
