"""What happened to one source line: its instructions, with or without marks.

A capture has the fate of each operation of the line. A dump has only the stack frames that XLA
kept: they show which instructions are there and, if every pass was dumped, which pass named them.
That is inferred, and the result says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...hlo import Instruction, Module, StackFrame
from ...hlo.texts.places import base_name, is_same_file, parse_place
from ..text.units import printed

if TYPE_CHECKING:
    from ..passes.passes import Passes
    from .fates.fate import Fate, Fates


def at_line(frames: Sequence[StackFrame], place: str) -> bool:
    """Whether a stack goes through a line."""
    file, line = parse_place(place)
    return any(f.line == line and is_same_file(f.file, file) for f in frames)


def fates_at_line(
    rows: Sequence[Fate], frames: Mapping[int, Sequence[StackFrame]], place: str
) -> tuple[Fate, ...]:
    """The fates of all that a line wrote: its operations, and those of the functions it calls.

    Functions of a library have no lines of the person's, such as ``jnp.where`` and
    ``jax.nn.relu``; one that several lines call counts for each.
    """
    mine = {r.operation.number for r in rows if at_line(frames.get(r.operation.number, ()), place)}
    while True:
        called = {r.operation.callee for r in rows if r.operation.number in mine} - {""}
        more = {r.operation.number for r in rows if r.operation.function in called} - mine
        if not more:
            return tuple(r for r in rows if r.operation.number in mine)
        mine |= more


@dataclass(frozen=True)
class LineTrace:
    """The instructions of a line and the pass that first had each, "" if unknown.

    ``fates`` are those of the line's operations, if every pass was dumped.
    """

    place: str
    instructions: tuple[Instruction, ...] = field(repr=False)
    made_by: tuple[str, ...] = field(repr=False)
    fates: Fates | None = field(repr=False, default=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            "place": self.place,
            "inferred": True,
            "instructions": [
                {
                    "name": i.name,
                    "opcode": i.opcode,
                    "computation": i.computation.name,
                    "op_name": i.op_name,
                    "pass": by,
                }
                for i, by in zip(self.instructions, self.made_by, strict=True)
            ],
            "fates": None if self.fates is None else self.fates.to_dict()["rows"],
        }

    def __str__(self) -> str:
        count = len(self.instructions)
        lines = [f"{self.place}: {count:,} instruction{'s' * (count != 1)}, by XLA's stack frames"]
        for i, by in zip(self.instructions, self.made_by, strict=True):
            since = f", since {by}" if by else ""
            lines.append(f"  %{i.name} {i.opcode} in %{i.computation.name}{since}  {i.op_name}")
        if self.fates is not None:
            said = str(self.fates).splitlines()
            lines += ["", f"what became of its operations: {said[0]}", *said[1:]]
        return printed(lines)


def trace_line(
    module: Module, place: str, passes: Passes | None = None, fates: Fates | None = None
) -> LineTrace:
    """The instructions whose Python stack goes through a line.

    Raises ``LookupError`` if there are none, ``ValueError`` for what is not a line.
    """
    parse_place(place)
    table, ids = module.source_frames()
    hit = {k: at_line(table.stack(k), place) for k in set(ids) if k}
    found = tuple(i for i, k in zip(module.instructions, ids, strict=True) if hit.get(k))
    if not found:
        known = sorted({base_name(f.file) for k in hit for f in table.stack(k)})
        files = f"; its files are {', '.join(known[:8])}" if known else "; it has no source lines"
        raise LookupError(f"no instruction of {module.name} is at {place}{files}")
    rows = [passes.made(i.name) if passes is not None else None for i in found]
    made = tuple(r.title if r is not None else "" for r in rows)
    return LineTrace(place, found, made, fates)
