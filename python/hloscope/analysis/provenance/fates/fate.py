"""One operation's fate, and the fates of a whole program: see ``fates.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....hlo import Instruction, Operation
from ...text.units import printed

if TYPE_CHECKING:
    import pandas

KINDS = ("kept", "fused", "rewritten", "merged", "folded", "inlined", "dead", "unknown")

_OPCODES = {
    "dot_general": "dot", "broadcast_in_dim": "broadcast", "case": "conditional",
    "if": "conditional", "func.call": "call", "optimization_barrier": "opt-barrier",
    "dynamic_broadcast_in_dim": "broadcast", "create_token": "after-all",
    "dynamic_reshape": "reshape", "real_dynamic_slice": "slice", "round_nearest_afz":
    "round-nearest-afz", "bitcast_convert": "bitcast-convert",
}  # fmt: skip


_CONSTANT = frozenset(["constant", "iota"])
_THROUGH = frozenset(["broadcast", "reshape", "bitcast", "convert", "copy", "transpose"])


def is_constant(i: Instruction, depth: int = 4) -> bool:
    """A constant, or one in another form."""
    if i.opcode in _CONSTANT:
        return True
    return depth > 0 and i.opcode in _THROUGH and is_constant(i.operands[0], depth - 1)


def hlo_opcode(opcode: str) -> str:
    """HLO's name for a StableHLO operation."""
    return _OPCODES.get(opcode, opcode.replace("_", "-"))


@dataclass(frozen=True)
class Fate:
    """What happened to one operation.

    ``instructions`` of the optimised program do its work, ``into`` are the fusions around
    them; ``by`` is the pass that removed it, "" if it is still there or the pass is unknown;
    ``other`` is the operation that it was merged with.
    """

    operation: Operation
    kind: str
    instructions: tuple[Instruction, ...] = ()
    into: tuple[Instruction, ...] = ()
    by: str = ""
    other: Operation | None = None
    detail: str = ""

    def __str__(self) -> str:
        return f"{called(self.operation)} {self.what}"

    @property
    def what(self) -> str:
        """The sentence without its subject."""
        by = f" by {self.by}" if self.by else ""
        if self.kind == "kept":
            return f"is {names(self.instructions)}"
        if self.kind == "fused":
            return f"is {names(self.instructions)} in {names(self.into)}"
        if self.kind == "inlined":
            return f"was inlined: {self.detail}"
        if self.kind == "dead":
            return f"was removed{by}: {self.detail or 'nothing used its result'}"
        if self.kind == "unknown":
            since = f" since {self.by}" if self.by else ""
            return f"is gone{since}; {self.detail or 'how is unknown'}"
        if self.kind == "merged" and self.other is not None:
            return f"was merged{by} with {called(self.other)}{self._detail}"
        if self.detail.startswith("away: "):
            return f"was simplified away{by}: {self.detail.removeprefix('away: ')}"
        if self.kind == "folded":
            return f"was folded{self._detail}{by}"
        verb = {"rewritten": "was rewritten", "merged": "was merged"}
        return f"{verb[self.kind]}{by}{self._detail}"

    @property
    def _detail(self) -> str:
        return f" {self.detail}" if self.detail else ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "operation": self.operation.number,
            "opcode": self.operation.opcode,
            "name": self.operation.name,
            "fate": self.kind,
            "pass": self.by,
            "instructions": [i.name for i in self.instructions],
            "into": [i.name for i in self.into],
            "with": None if self.other is None else self.other.number,
            "sentence": str(self),
        }


@dataclass(frozen=True, eq=False)
class Fates:
    """The fate of each operation, by its number. Iterate it, or look one up.

    ``inferred``: the operations were not marked; they are the instructions of the first dump,
    followed by name, structure and metadata.
    """

    rows: tuple[Fate, ...] = field(repr=False)
    inferred: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Fate]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> Fate:
        return self.rows[number]

    @property
    def counts(self) -> dict[str, int]:
        """How many operations have each fate; adds up to ``len(self)``."""
        found = Counter(r.kind for r in self.rows)
        return {k: found[k] for k in KINDS if found[k]}

    def to_dict(self) -> dict[str, Any]:
        fates = [r.to_dict() for r in self.rows]
        return {"inferred": self.inferred, "counts": self.counts, "fates": fates}

    def to_pandas(self) -> pandas.DataFrame:
        """One row per operation."""
        import pandas

        return pandas.DataFrame([r.to_dict() for r in self.rows])

    def __str__(self) -> str:
        said = ", ".join(f"{n:,} {kind}" for kind, n in self.counts.items())
        how = " (inferred: this dump has no marks)" if self.inferred else ""
        lines = [f"{len(self):,} operations: {said}{how}"]
        lines += [f"  {r}" for r in self.rows[:200]]
        if len(self) > 200:
            lines.append(f"  … {len(self) - 200:,} more")
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


def names(found: Sequence[Instruction]) -> str:
    said = ", ".join(f"%{i.name}" for i in found[:3])
    return said + (f" and {len(found) - 3:,} more" if len(found) > 3 else "")


def called(operation: Operation) -> str:
    """``dot_general`` at ``jit(f)/layer/dot_general``."""
    return f"{operation.opcode} ({operation.name})" if operation.name else operation.opcode
