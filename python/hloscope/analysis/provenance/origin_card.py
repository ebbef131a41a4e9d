"""Where one instruction comes from: operations, calls, source lines, and the pass that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...hlo import Instruction, Module, Operation, Origins, StackFrame
from ...hlo.origins.python_calls import PythonCall
from ...hlo.texts.places import short_place
from ..base.lines.frames import is_library
from ..passes.identity.how import How
from ..text.results import Row, Rows
from ..text.units import printed

if TYPE_CHECKING:
    from ..passes.passes import Passes


@dataclass(frozen=True, repr=False)
class OperationOrigin(Row):
    """One operation that an instruction comes from; ``calls`` outermost first.

    ``frames`` is the Python stack of the operation, innermost first, () if it has none.
    ``python`` are the calls of the user's functions that it was traced in, outermost first,
    each the k-th of n calls of that function; () if unknown.
    """

    operation: Operation
    calls: tuple[Operation, ...]
    frames: tuple[StackFrame, ...] = field(repr=False, default=())
    python: tuple[PythonCall, ...] = ()

    @property
    def source(self) -> StackFrame | None:
        """The innermost line of the user's own code."""
        return next((f for f in self.frames if not is_library(f.file)), None)

    def __str__(self) -> str:
        said = [self.operation.opcode]
        if self.operation.name:
            said.append(f"({self.operation.name})")
        if self.python:
            said.append(f"in {self.python[-1]}")
        else:
            said += [f"in {call.callee}" for call in reversed(self.calls)]
        at = self.source
        if at is not None:
            said.append(f"at {short_place(at.file, at.line)}")
        return " ".join(said)

    def to_dict(self) -> dict[str, Any]:
        at = self.source
        return {
            "operation": self.operation.number,
            "opcode": self.operation.opcode,
            "name": self.operation.name,
            "calls": [c.number for c in self.calls],
            "source": None if at is None else {"file": at.file, "line": at.line},
            "python": [
                {
                    "function": c.function,
                    "file": c.file,
                    "line": c.begins,
                    "called_at": c.called_at,
                    "call": c.which,
                    "of": c.of,
                }
                for c in self.python
            ],
        }


@dataclass(frozen=True, repr=False)
class OriginCard(Rows[OperationOrigin]):
    """What ``cap.origins(instruction)`` returns.

    ``made_by``: the pass in which an instruction of this name first appeared, "" if the passes
    were not kept or it was there from the beginning. ``inferred`` says what the origins of a
    dump without marks are based on, such as "by its neighbours"; "" if they are exact. Without
    origins it says that several equal ones cannot be distinguished, or that it has no op name.
    ``agreement``: how often origins of that kind were right when compared with marks, 0 to 1;
    None if the origins are exact.
    """

    instruction: Instruction
    origins: tuple[OperationOrigin, ...]
    made_by: str = ""
    inferred: str = ""
    agreement: float | None = None

    COLUMNS = ("operation", "opcode", "name", "calls", "source", "python")

    def _all(self) -> tuple[OperationOrigin, ...]:
        return self.origins

    def _totals(self) -> dict[str, Any]:
        return {
            "instruction": self.instruction.name,
            "opcode": self.instruction.opcode,
            "made_by": self.made_by,
            "inferred": self.inferred,
            "agreement": self.agreement,
        }

    def __str__(self) -> str:
        made = f", named so {_when(self.made_by)}" if self.made_by else ""
        head = f"%{self.instruction.name} ({self.instruction.opcode}{made})"
        if not self.origins:
            if self.instruction.opcode == "parameter":
                return f"{head} is an argument"
            if self.inferred == str(How.ORDER):
                return f"{head} comes from {self.inferred}, and nothing tells from which"
            if self.inferred:
                right = f" ({self.agreement:.0%} of such)" if self.agreement is not None else ""
                return f"{head} has no op name of an operation; most likely XLA made it{right}"
            if self.instruction.opcode == "constant":
                may = "it may be one of the program or made by XLA"
                return (
                    f"{head} bears no name of an operation, as XLA's import leaves constants; {may}"
                )
            return f"{head} bears no name of an operation: XLA made it"
        right = f", {self.agreement:.0%} of such were right" if self.agreement is not None else ""
        how = f" (inferred {self.inferred}{right})" if self.inferred else ""
        return printed([f"{head} comes from{how}", *(f"  {o}" for o in self.origins)])


def frames_of(stablehlo: Module) -> dict[int, tuple[StackFrame, ...]]:
    """Number of an operation → its Python stack, from the StableHLO stage."""
    return {i.origins[0].operation: i.frames for i in stablehlo.instructions if i.origins}


def origin_card(
    instruction: Instruction,
    frames: Mapping[int, tuple[StackFrame, ...]],
    passes: Passes | None,
    inferred: tuple[Origins, How] | None = None,
) -> OriginCard:
    """``frames``: by operation. ``inferred``: origins of an unmarked module, and their basis.

    Raises ``ValueError`` for an instruction of a module without origins.
    """
    origins, how = instruction.module.origins, None
    if origins is None and inferred is not None:
        origins, how = inferred
    if origins is None:
        raise ValueError(
            "the operations of this program were not tracked; capture the function itself, "
            "with exact=True"
        )
    rows = []
    for o in origins.of[instruction.index]:
        call = origins.python.of(o)
        rows.append(
            OperationOrigin(
                origins.operations[o.operation],
                tuple(origins.operations[n] for n in o.calls),
                frames.get(o.operation, ()),
                () if call is None else origins.python.stack(call),
            )
        )
    row = passes.made(instruction.name) if passes is not None else None
    made_by = row.title if row is not None else ""
    if how is None or (instruction.opcode == "parameter" and not rows):
        return OriginCard(instruction, tuple(rows), made_by)
    return OriginCard(instruction, tuple(rows), made_by, str(how), how.agreement)


def _when(made_by: str) -> str:
    """``by dce``; between passes, by what came before or after."""
    if made_by.startswith(("after all passes", "before any pass")):
        return made_by
    pipeline = made_by.removeprefix("start of ")
    return f"before {pipeline}" if pipeline != made_by else f"by {made_by}"
