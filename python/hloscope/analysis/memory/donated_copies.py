"""Copies of whole arrays on the way into the memory of a donated argument, each with its reason.

    cache ─ parameter ─┬─ while: reads slices of it, stacks results in memory of its own
                       ▼                                        │
    donated memory  ◀── copy ◀──────────────────────────────────┘   reason: "loop"

An alias promises memory, not that nothing is copied: XLA's copy insertion writes the result there
where it cannot be made in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...hlo import Instruction, Module, Shape, opcodes, walk
from ...hlo.walk import Position
from ..base.loops.branches import most_runs_a_trip
from ..base.memory_spaces import memory_space
from ..base.memory_tiling import storage_bytes
from ..flops.calls import accesses_nothing
from ..text.results import Row

LAYOUT, LIVE, LOOP, ALIAS, SPACE, UNKNOWN = (
    "layout", "live value", "loop", "alias", "memory space", "",
)  # fmt: skip
_COPIES = ("copy", "copy-start")
# A result and the array that it is made of, changed here and there.
_SAME_ARRAY = opcodes.SAME_ELEMENTS | opcodes.UPDATES | opcodes.CONTROL | opcodes.FUSIONS
_PLUMBING = opcodes.BUNDLES | {"bitcast", *opcodes.BARRIERS}


@dataclass(frozen=True, slots=True, repr=False)
class DonatedCopy(Row):
    """A copy of all of a donated argument, or of the output that takes its memory.

    ``reason``: "layout" (the two have another order in memory), "live value" (``because`` reads the
    value that the other one is written over), "loop" (``because`` stacks its results in memory of
    its own), "alias" (``because`` is the argument or output whose memory it is too), "memory space"
    (it is worked on elsewhere, such as in VMEM), or "" if none of these is seen. ``bytes`` are of
    one run.
    """

    instruction: Instruction
    bytes: int
    runs: int
    reason: str
    because: Instruction | None = None

    @property
    def words(self) -> str:
        """The reason as a clause with a subject; "" if it is not known."""
        at = self.because
        name = f"%{at.name}" if at is not None else ""
        return {
            LAYOUT: "the argument and the output have different layouts",
            LIVE: f"{name} reads the value that was there",
            LOOP: f"the loop {name} stacks its results in memory of its own",
            ALIAS: f"{name} has the same value in memory of its own",
            SPACE: "it is worked on in another memory",
            UNKNOWN: "",
        }[self.reason]


def donated_copies(parameter: Instruction, output: tuple[int, ...]) -> tuple[DonatedCopy, ...]:
    """Copies between a parameter of ENTRY and the output in its memory, last first.

    Every whole array that the output is made of, through updates, loops, branches and fusions, is
    looked at, and copies of the parameter itself: what reads the old value once the output is
    written there, or might, reads a copy.
    """
    module = parameter.module
    if module.entry is None or module.entry.root is None or not parameter.shape.is_array:
        return ()
    runs = most_runs_a_trip(module)
    end = Position(module.entry.root, output)
    elements = parameter.shape.elements
    if elements < 2:
        return ()

    def is_whole(at: Position) -> bool:
        found = _leaf(at)
        return found is None or found.elements == elements

    out = []
    for at in walk.back(end, _SAME_ARRAY, where=is_whole):
        i = at.instruction
        times = runs[i.computation.index]
        if times and _copies(i):
            reason, because = _reason(i, parameter)
            if not reason and not _is_made_of(end, parameter):
                reader = next(_uses(Position(parameter)), None)
                reason, because = (LIVE, reader) if reader is not None else (ALIAS, parameter)
            written = i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape
            out.append(DonatedCopy(i, storage_bytes(written), times, reason, because))
    found = {c.instruction.index: c for c in out}
    for i, reader in _kept_in_a_copy(parameter, walk.source(end, opcodes.SAME_ORDER).instruction):
        found.setdefault(i.index, DonatedCopy(i, storage_bytes(parameter.shape), 1, LIVE, reader))
    return tuple(found.values())


def _kept_in_a_copy(
    parameter: Instruction, written_by: Instruction
) -> Iterator[tuple[Instruction, Instruction]]:
    """Copies of a parameter as it is, in the same memory, each with a reader beside the output."""
    for use in walk.uses(parameter, _PLUMBING):
        i = use.instruction
        made = i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape
        moves = _order(made) != _order(parameter.shape)
        moves |= memory_space(made) != memory_space(parameter.shape)
        if i.opcode not in _COPIES or moves or not i.computation.is_entry:
            continue
        readers = [u for u in _uses(Position(i)) if u is not written_by]
        after = (r for r in readers if r.index > written_by.index)
        reader = next(after, readers[-1] if readers else None)
        if reader is not None:
            yield i, reader


def _is_made_of(output: Position, parameter: Instruction) -> bool:
    back = walk.back(output, opcodes.ANYTHING, dependencies=True)
    return any(p.instruction is parameter for p in back)


def _leaf(at: Position) -> Shape | None:
    shape = at.instruction.shape
    for k in at.element:
        if not shape.is_tuple or k >= len(shape.tuple_shapes):
            return None
        shape = shape.tuple_shapes[k]
    return None if shape.is_tuple else shape


def _copies(i: Instruction) -> bool:
    """Whether it writes the elements of one array again, and nothing else."""
    if i.opcode in _COPIES or i.opcode == "transpose":
        return bool(i.operands) and i.operands[0].shape.is_array
    if i.opcode not in opcodes.FUSIONS or not i.shape.is_array:
        return False
    source = walk.source(i, opcodes.SAME_ELEMENTS | opcodes.FUSIONS)
    return source.instruction is not i


def _reason(i: Instruction, parameter: Instruction) -> tuple[str, Instruction | None]:
    before = i.operands[0]
    after = i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape
    if before.shape.is_array and memory_space(before.shape) != memory_space(after):
        return SPACE, None
    if _order(before.shape) != _order(after) or i.opcode == "transpose":
        return LAYOUT, None
    reader = _read_after(i, before)
    if reader is not None:
        return LIVE, reader
    made = walk.source(before, opcodes.SAME_VALUE)
    source = made.instruction
    if source.opcode in opcodes.LOOPS and _begins_empty(made):
        return LOOP, source
    if source.opcode == "parameter":
        if not source.computation.is_entry:  # a loop's elements change places
            return ALIAS, before
        return (ALIAS, source) if source is not parameter else (UNKNOWN, None)
    other = _returned_too(i.module, i, made)
    if other is not None:
        return ALIAS, other
    # what is not made in place reads what was there while it writes
    return (LIVE, source) if _reads(source, parameter) else (UNKNOWN, None)


def _reads(maker: Instruction, parameter: Instruction) -> bool:
    """Whether it reads the argument itself, or in a loop what the loop carries."""
    given = [x for o in maker.operands for x in (o.operands if o.opcode == "tuple" else (o,))]
    for o in given:
        found = walk.source(o, _PLUMBING).instruction
        carried = found.opcode == "parameter" and not found.computation.is_entry
        if found is parameter or (carried and o.shape.elements == parameter.shape.elements):
            return True
    return False


def _order(shape: Shape) -> tuple[int, ...]:
    return shape.layout.minor_to_major if shape.layout is not None else ()


def _begins_empty(made: Position) -> bool:
    """Whether a loop's element begins as memory without a value, or with one number throughout."""
    loop = made.instruction
    if not loop.operands or not made.element:
        return False
    given = Position(loop.operands[0], made.element)
    begun = walk.source(given, opcodes.REPEATED | opcodes.FUSIONS).instruction
    allocates = begun.opcode == "custom-call" and accesses_nothing(begun.custom_call_target or "")
    return begun.opcode in opcodes.LITERALS or allocates


def _read_after(copy: Instruction, value: Instruction) -> Instruction | None:
    """What uses the copied value itself after the copy, in the same computation."""
    held = walk.source(value, _PLUMBING)
    if held.instruction.computation is not copy.computation:
        held = Position(value)
    for use in _uses(held):
        if use is not copy and use.computation is copy.computation and use.index > copy.index:
            return use
    return None


def _uses(held: Position) -> Iterator[Instruction]:
    for use in walk.uses(held, _PLUMBING):
        if not use.instruction.is_root or use.instruction.opcode not in opcodes.BUNDLES:
            yield use.instruction


def _returned_too(module: Module, copy: Instruction, made: Position) -> Instruction | None:
    """Another output of the program that is the copied value."""
    root = module.entry.root if module.entry is not None else None
    if root is None or copy.computation is not root.computation or not root.shape.is_tuple:
        return None
    for k in range(len(root.shape.tuple_shapes)):
        way = list(walk.path(Position(root, (k,)), opcodes.SAME_VALUE))
        passed = {p.instruction.index for p in way}
        if way[-1] == made and copy.index not in passed:
            return root.operands[k] if k < len(root.operands) else root
    return None
