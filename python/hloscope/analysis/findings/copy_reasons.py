"""Why an array is copied as it is, as far as the program itself shows it.

read      r = reduce(old)              nothing orders r before u: u writes into a copy
          u = dynamic-update-slice(copy(old), …)
returned  entry returns (u, …, old)    the step returns both
kept      body returns (…, u, …, old)  the loop carries the old value beside the new one
moved     body returns (b', a')        what the loop carries takes another place in each trip, and
          body returns (now, next)     each place has memory of its own
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ...hlo import Instruction, opcodes, walk
from ...hlo.walk import Position

# From a fused update's buffer to the value that the fusion is given.
_THROUGH = opcodes.SAME_VALUE | opcodes.FUSIONS
_IN_ONE_TRIP = opcodes.ANYTHING - opcodes.LOOPS
# Instructions that a search for what one depends on looks at; beyond, nothing is said.
_LOOKED_AT = 5_000
_IN_A_TRIP = 100  # updates of one buffer, one after the other


@dataclass(frozen=True, slots=True)
class CopyReason:
    """``kind`` is "read", "returned", "kept" or "moved"; of "read", ``reader`` reads the old
    value that ``update`` writes into."""

    kind: str
    reader: Instruction | None = None
    update: Instruction | None = None


def reason_of(i: Instruction) -> CopyReason | None:
    """Why ``i`` copies its operand; None if the program does not show it."""
    old = walk.source(i, opcodes.SAME_VALUE)
    if moves(i) is not None:
        return CopyReason("moved")
    if _is_kept(i, old):
        return CopyReason("kept")
    if old.instruction.opcode in opcodes.LITERALS or _is_given_for_reading(old.instruction):
        return None
    uses = [u.instruction for u in walk.uses(i, opcodes.SAME_VALUE)]
    update = next((u for u in uses if updates(u, i)), None)
    if update is None:
        return None
    root = i.computation.root
    if i.computation.is_entry and any(
        p.instruction is root for p in walk.forward(old, opcodes.SAME_VALUE)
    ):
        return CopyReason("returned")
    needed = _ancestors(update)
    if needed is None:
        return None
    for use in walk.uses(old, opcodes.SAME_ORDER):
        reader = use.instruction
        same = reader.computation is update.computation
        if same and reader is not update and reader.index not in needed and not reader.is_root:
            return CopyReason("read", reader, update)
    return None


def moves(i: Instruction) -> Instruction | None:
    """The loop in which a copied array takes the place of another that is carried; else None.

    In two trips each is back in its place: the two change places, or the one is made from the
    other, whose place it takes (``now`` becomes ``before``, and ``next`` becomes ``now``).
    """
    loop, root = loop_of(i), i.computation.root
    if loop is None or root is None or root.opcode != "tuple":
        return None
    value = walk.source(i, opcodes.SAME_VALUE)
    buffer = updated(value)
    found = {_carried(value, i), *_places(i, root)}
    if buffer is not None:
        found.add(_carried(walk.source(buffer, _THROUGH), i))
    elements = sorted(e for e in found if e is not None)
    return loop if any(_is_moved(e, root, i) for e in elements) else None


def _is_moved(element: int, root: Instruction, i: Instruction) -> bool:
    given = next((p for p in i.computation.parameters), None)
    if given is None:
        return False

    def kept_in(e: int) -> set[int]:
        return _places(Position(given, (e,)), root)

    def takes(place: int, e: int) -> bool:
        """Whether ``e`` moves to ``place`` and nothing else, and ``place`` to ``e`` or away."""
        if kept_in(e) != {place} or not kept_in(place) <= {e}:
            return False
        return _comes_from(root, e, i) == place or any(
            p.instruction is given and p.element == (place,)
            for p in walk.back(Position(root, (e,)), _IN_ONE_TRIP, reach=_LOOKED_AT)
        )

    source = _comes_from(root, element, i)
    if source is not None and source != element and takes(element, source):
        return True
    return any(takes(place, element) for place in kept_in(element) - {element})


def _places(value: Instruction | Position, root: Instruction) -> set[int]:
    """The elements of what a loop hands on that are this value."""
    return {
        p.element[0]
        for p in walk.forward(value, opcodes.SAME_VALUE)
        if p.instruction is root and len(p.element) == 1
    }


def _comes_from(root: Instruction, element: int, i: Instruction) -> int | None:
    """The element of what a loop carries in whose place the next trip gets ``element``."""
    value: Position = walk.source(Position(root, (element,)), opcodes.SAME_VALUE)
    for _ in range(_IN_A_TRIP):
        found = _carried(value, i)
        if found is not None:
            return found
        buffer = updated(value)
        if buffer is None:
            return None
        value = walk.source(buffer, _THROUGH)
    return None


def _carried(value: Position, i: Instruction) -> int | None:
    """Which element of what the loop around ``i`` carries a value is; None if it is none."""
    at = value.instruction
    if at.opcode != "parameter" or at.computation is not i.computation or len(value.element) != 1:
        return None
    return value.element[0]


def _is_kept(i: Instruction, old: Position) -> bool:
    """Whether a loop hands on a value as another element than the one that it is."""
    own = _carried(old, i)
    root = i.computation.root
    if own is None or root is None or loop_of(i) is None:
        return False
    return any(
        p.instruction is root and len(p.element) == 1 and p.element[0] != own
        for p in walk.forward(old, opcodes.SAME_VALUE)
    )


def loop_of(i: Instruction) -> Instruction | None:
    """The loop whose body ``i`` is in; None if there is none."""
    sites = i.module.call_sites(i.computation)
    return next((s for s in sites if dict(s.called).get("body") is i.computation), None)


def _is_given_for_reading(i: Instruction) -> bool:
    """Whether it is an argument of the program whose memory no result takes over."""
    if i.opcode != "parameter" or not i.computation.is_entry:
        return False
    taken = {a.parameter_number for a in i.module.input_output_alias}
    return i.parameter_number not in taken


def _ancestors(i: Instruction) -> set[int] | None:
    """Indices of all in its computation that run before ``i``; None if there are too many."""
    found = {i.index}
    todo = deque([i])
    while todo:
        at = todo.popleft()
        for before in (*at.operands, *at.control_predecessors):
            if before.index not in found:
                found.add(before.index)
                todo.append(before)
        if len(found) > _LOOKED_AT:
            return None
    return found


def updated(value: Instruction | Position) -> Instruction | None:
    """The buffer of which a slice is updated; None if there is no such update."""
    update = walk.source(
        value, opcodes.SAME_NUMBERS | opcodes.FUSIONS, inside_fusions=True
    ).instruction
    is_update = update.opcode == "dynamic-update-slice" and update.operands
    return update.operands[0] if is_update else None


def updates(u: Instruction, value: Instruction) -> bool:
    """Whether ``u`` writes a slice into the memory of ``value``."""
    buffer = updated(u) if u.opcode in opcodes.FUSIONS | opcodes.UPDATES else None
    way = walk.path(buffer, opcodes.SAME_NUMBERS | opcodes.FUSIONS) if buffer is not None else ()
    return any(p.instruction is value for p in way)
