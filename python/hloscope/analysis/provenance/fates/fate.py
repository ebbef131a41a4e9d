"""One operation's fate, the fates of a whole program, and their sentences: see ``fates.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

from ....hlo import Instruction, Operation, opcodes, walk
from ....hlo.texts.listed import listed
from ...text.results import Row, Rows
from ...text.units import printed

if TYPE_CHECKING:
    pass

_OPCODES = {
    "dot_general": "dot", "broadcast_in_dim": "broadcast", "case": "conditional",
    "if": "conditional", "func.call": "call", "optimization_barrier": "opt-barrier",
    "dynamic_broadcast_in_dim": "broadcast", "create_token": "after-all",
    "dynamic_reshape": "reshape", "real_dynamic_slice": "slice", "round_nearest_afz":
    "round-nearest-afz", "bitcast_convert": "bitcast-convert",
}  # fmt: skip
_MOST_PRINTED = 200  # fates of one program, as text


def is_constant(i: Instruction) -> bool:
    """A constant, or one in another form."""
    return walk.source(i, opcodes.REPEATED).instruction.opcode in opcodes.LITERALS


def hlo_opcode(opcode: str) -> str:
    """HLO's name for a StableHLO operation."""
    return _OPCODES.get(opcode, opcode.replace("_", "-"))


class FateKind(StrEnum):
    """What happened to an operation; exactly one of these. ``fates.py`` describes each."""

    KEPT = "kept"
    FUSED = "fused"
    REWRITTEN = "rewritten"
    MERGED = "merged"
    FOLDED = "folded"
    INLINED = "inlined"
    DEAD = "dead"
    UNKNOWN = "unknown"


class FateCause(Enum):
    """How an operation met its fate, or why that is not known."""

    # unknown
    NOT_SHOWN = "the passes around its removal do not show it"
    PASSES_NOT_KEPT = "the passes were not kept"
    NO_PASS_REMOVED_IT = "no pass is known that removed it"
    MAY_BE_AN_EQUAL_ONE = "as above; in a dump without marks equal ones are not distinguished"
    NAMELESS_CONSTANT = "XLA's import gives constants no names"
    UNPRINTED_CONSTANT = "as above, and the value of its possible instruction is not printed"
    # inlined
    CAME_THROUGH = "``count`` instructions came through the call"
    BODY_IN_PLACE = "its region took its place"
    NOTHING_CAME_THROUGH = "no instruction of its function is left"
    NOT_KNOWN_TO_COME_THROUGH = "instructions of its function are left, none known to be of it"
    # dead
    UNUSED = "nothing used its result"
    USERS_REMOVED = "its users were removed"
    USER_STOPPED_READING = "its user, ``names[0]``, did not need it any more"
    LOOP_REMOVED = "it decided when a loop ends that is gone"
    # folded
    TO_CONSTANT = "its value was computed"
    INTO_CONSTANT = "a constant is part of another"
    TO_CONSTANT_WITH_USERS = "the value of its users was computed"
    # rewritten
    AS_OPCODES = "``names`` do its work"
    AS_NAMELESS = "``names[0]`` does its work and bears no name of an operation"
    AS_OTHER = "``names[0]``, which was there already, took its place"
    ABSORBED = "``names[0]`` of the operation ``other`` reads its operand"
    SIMPLIFIED_TO_OPERAND = "``names[0]``, from which it was computed, took its place"
    UNROLLED = "its body took its place, ``count`` times"
    # merged
    IN = "``names`` do its work too"
    WITH_EQUAL = "it and its users were merged with equal ones"


_SIMPLIFIED_AWAY = frozenset([FateCause.SIMPLIFIED_TO_OPERAND, FateCause.UNROLLED])


@dataclass(frozen=True, slots=True)
class InstructionName:
    """Opcode and name of an instruction; it may be in a module that is not kept."""

    opcode: str
    name: str

    @classmethod
    def of(cls, i: Instruction) -> InstructionName:
        return cls(i.opcode, i.name)

    def __str__(self) -> str:
        return f"{self.opcode} %{self.name}"


@dataclass(frozen=True, repr=False)
class Fate(Row):
    """What happened to one operation.

    ``instructions`` of the optimised program do its work, ``into`` are the fusions around
    them; ``by`` is the pass that removed it, "" if it is still there or the pass is unknown;
    ``other`` is the operation that it was merged with. ``cause`` says how, with the ``names`` of
    instructions and the ``count`` that it speaks of; ``with_users``: its users met the same fate.
    """

    operation: Operation
    kind: FateKind
    instructions: tuple[Instruction, ...] = ()
    into: tuple[Instruction, ...] = ()
    by: str = ""
    other: Operation | None = None
    cause: FateCause | None = None
    names: tuple[InstructionName, ...] = ()
    count: int = 0
    with_users: bool = False

    def __str__(self) -> str:
        return f"{called(self.operation)} {self.what}"

    @property
    def is_simplified_away(self) -> bool:
        """Whether nothing new does its work."""
        return self.cause in _SIMPLIFIED_AWAY

    @property
    def what(self) -> str:
        """The sentence without its subject."""
        how = _HOW[self.cause](self) if self.cause is not None else ""
        after = f" {how}" if how else ""
        by = f" by {self.by}" if self.by else ""
        users = ", together with what used it" if self.with_users else ""
        match self.kind:
            case FateKind.KEPT:
                return f"is {names(self.instructions)}"
            case FateKind.FUSED:
                return f"is {names(self.instructions)} in {names(self.into)}"
            case FateKind.INLINED:
                return f"was inlined: {how}"
            case FateKind.DEAD:
                return f"was removed{by}: {how or 'nothing used its result'}"
            case FateKind.UNKNOWN:
                since = f" since {self.by}" if self.by else ""
                return f"is gone{since}; {how or 'how is unknown'}"
            case FateKind.FOLDED:
                return f"was folded{after}{by}"
            case FateKind.MERGED:
                other = f" with {called(self.other)}" if self.other is not None else ""
                return f"was merged{by}{other}{after}"
            case FateKind.REWRITTEN:
                if self.is_simplified_away:
                    return f"was simplified away{by}: {how}{users}"
                return f"was rewritten{by}{after}{users}"

    @property
    def short(self) -> str:
        """The sentence without its subject, and without names of instructions if possible."""
        by = f" by {self.by}" if self.by else ""
        if self.is_simplified_away:
            return f"was simplified away{by}"
        if self.kind in (FateKind.REWRITTEN, FateKind.FOLDED, FateKind.MERGED):
            return f"was {self.kind}{by}"
        return f"was removed{by}" if self.kind is FateKind.DEAD else self.what

    def to_dict(self) -> dict[str, Any]:
        return {
            "operation": self.operation.number,
            "opcode": self.operation.opcode,
            "name": self.operation.name,
            "fate": str(self.kind),
            "pass": self.by,
            "instructions": [i.name for i in self.instructions],
            "into": [i.name for i in self.into],
            "with": None if self.other is None else self.other.number,
            "sentence": str(self),
        }


def _opcodes(fate: Fate) -> str:
    """``as dot, copy (%dot.3 and 2 more)``: in brackets those of the optimised program."""
    found = ", ".join(dict.fromkeys(n.opcode for n in fate.names))
    return f"as {found}" + (f" ({names(fate.instructions)})" if fate.instructions else "")


def _constant(fate: Fate) -> str:
    return "constant" + (f" ({names(fate.instructions)})" if fate.instructions else "")


_NAMELESS = "XLA's import gives constants no names"
_NO_PASS = "no pass is known that removed it"
# How an operation met its fate, as part of the sentence.
_HOW = {
    FateCause.NOT_SHOWN: lambda fate: "",
    FateCause.PASSES_NOT_KEPT: lambda fate: "its passes were not kept",
    FateCause.NO_PASS_REMOVED_IT: lambda fate: _NO_PASS,
    FateCause.MAY_BE_AN_EQUAL_ONE: lambda fate: (
        f"{_NO_PASS}; it may be one of several equal ones that cannot be told apart"
    ),
    FateCause.NAMELESS_CONSTANT: lambda fate: _NAMELESS,
    FateCause.UNPRINTED_CONSTANT: lambda fate: (
        f"{_NAMELESS}, and the value of {names(fate.names)} is not printed"
    ),
    FateCause.CAME_THROUGH: lambda fate: (
        f"{fate.count:,} instruction{'s' * (fate.count != 1)} came from it"
    ),
    FateCause.BODY_IN_PLACE: lambda fate: "what it holds took its place",
    FateCause.NOTHING_CAME_THROUGH: lambda fate: "nothing of it is left",
    FateCause.NOT_KNOWN_TO_COME_THROUGH: lambda fate: (
        "no instruction is known to have come through it"
    ),
    FateCause.UNUSED: lambda fate: "",
    FateCause.USERS_REMOVED: lambda fate: "what used it was removed",
    FateCause.USER_STOPPED_READING: lambda fate: (
        f"what used it, {fate.names[0]}, no longer needed it"
    ),
    FateCause.LOOP_REMOVED: lambda fate: "the loop whose end it decides is gone",
    FateCause.TO_CONSTANT: lambda fate: f"to a {_constant(fate)}",
    FateCause.INTO_CONSTANT: lambda fate: f"into another {_constant(fate)}",
    FateCause.TO_CONSTANT_WITH_USERS: lambda fate: "to a constant with what used it",
    FateCause.AS_OPCODES: _opcodes,
    FateCause.AS_NAMELESS: lambda fate: f"as {fate.names[0].opcode} without a name",
    FateCause.AS_OTHER: lambda fate: f"as {fate.names[0]}, there already",
    FateCause.ABSORBED: lambda fate: (
        f"into {fate.other.opcode if fate.other else 'another'} (%{fate.names[0].name}),"
        " which reads its operand"
    ),
    FateCause.SIMPLIFIED_TO_OPERAND: lambda fate: f"{fate.names[0]} took its place",
    FateCause.UNROLLED: lambda fate: (
        "what its body does stands in its place"
        + (f", {fate.count:,} times" if fate.count > 1 else "")
    ),
    FateCause.IN: lambda fate: f"in {names(fate.instructions)}",
    FateCause.WITH_EQUAL: lambda fate: "with an equal one, as was what used it",
}


@dataclass(frozen=True, eq=False, repr=False)
class Fates(Rows[Fate]):
    """The fate of each operation, by its number. Iterate it, or look one up.

    ``inferred``: the operations were not marked; they are the instructions of the first dump,
    followed by name, structure and metadata.
    """

    rows: tuple[Fate, ...] = field(repr=False)
    inferred: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many operations have each fate; adds up to ``len(self)``."""
        found = Counter(r.kind for r in self.rows)
        return {str(k): found[k] for k in FateKind if found[k]}

    COLUMNS = (
        "operation", "opcode", "name", "fate", "pass", "instructions", "into", "with", "sentence",
    )  # fmt: skip

    def _totals(self) -> dict[str, Any]:
        return {"inferred": self.inferred, "counts": self.counts}

    def __str__(self) -> str:
        counted = ", ".join(f"{n:,} {kind}" for kind, n in self.counts.items())
        how = " (inferred: this dump has no marks)" if self.inferred else ""
        lines = [f"{len(self):,} operations: {counted}{how}"]
        lines += [f"  {r}" for r in self.rows[:_MOST_PRINTED]]
        if len(self) > _MOST_PRINTED:
            lines.append(f"  … {len(self) - _MOST_PRINTED:,} more")
        return printed(lines)


def combined(operation: Operation, found: Sequence[Instruction]) -> Instruction | None:
    """What does an operation's work together with that of others, if only its result is left.

    So for combined collectives: one ``all-reduce`` of a tuple replaces several, and all but one
    are known only by their ``get-tuple-element``.
    """
    opcode = hlo_opcode(operation.opcode)
    if not found or any(i.opcode != "get-tuple-element" for i in found):
        return None
    whole = found[0].operands[0]
    own = {o.operation for o in whole.origins}
    base = whole.opcode.removesuffix("-start").removesuffix("-done")
    return whole if base == opcode and own and operation.number not in own else None


def names(found: Sequence[Instruction | InstructionName]) -> str:
    """``%dot.3, %dot.4``, at most three."""
    return listed([f"%{i.name}" for i in found])


def called(operation: Operation) -> str:
    """``dot_general`` at ``jit(f)/layer/dot_general``."""
    return f"{operation.opcode} ({operation.name})" if operation.name else operation.opcode
