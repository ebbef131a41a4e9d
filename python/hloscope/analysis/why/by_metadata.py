"""Causes by metadata alone, for captures without the dump of the partitioned program.

A collective carries the name and line of the op that it was made for, or of the one that made
the value it moves. A candidate must account for the kind, the axes and the elements of the
collective, and all candidates that do must agree.
"""

from __future__ import annotations

from functools import cached_property

from ...hlo import Instruction, Module, StackFrame, opcodes
from ...hlo.collective_kinds import kind_of
from ..comms.collective import Collective
from .alignment import Place, place
from .provenance_causes import Cause, Causes
from .provenance_origins import ShardingOrigins

# Their names are those of other ops.
_UNNAMED = opcodes.BUNDLES | {"parameter"}


class ByMetadata:
    """``causes(row, …)`` of a collective or of one part of it, or the reason why unknown."""

    def __init__(self, before: Module, origins: ShardingOrigins) -> None:
        self.before, self.origins = before, origins

    @cached_property
    def places(self) -> dict[Place, list[Instruction]]:
        out: dict[Place, list[Instruction]] = {}
        for i in self.before.instructions:
            if i.op_name and i.opcode not in _UNNAMED:
                out.setdefault(place(i.op_name, i.frames), []).append(i)
        return out

    def argument(self, op_name: str) -> Instruction | None:
        """The ENTRY parameter of that name, if there is exactly one."""
        entry = self.before.entry
        found = [p for p in entry.parameters if p.op_name == op_name] if entry and op_name else []
        return found[0] if len(found) == 1 else None

    def causes(
        self, row: Collective, op_name: str, frames: tuple[StackFrame, ...], shape: str
    ) -> tuple[list[Cause], str]:
        """Causes that account for it; if there are none, also the reason."""
        candidates = self.places.get(place(op_name, frames), [])
        if not candidates and "/" not in op_name:  # named after the argument that moves
            found = self.argument(op_name)
            candidates = [found] if found is not None else []
        if not candidates:
            return [], "no op before partitioning has its name and line"
        axes = frozenset((row.axes or "").split("+"))
        asked = Causes(self.origins)
        causes = [c for op in candidates for c in asked.causes(op, row.kind, axes, shape)]
        if not causes:  # some are named after the value that moves, not after the op that needs it
            users = dict.fromkeys(u for op in candidates for u in op.users)
            later = [c for op in users for c in asked.causes(op, row.kind, axes, shape)]
            causes = [c for c in later if c.operand in candidates]
        if not causes and _moves_one_value(row.kind):
            causes = [c for op in candidates for c in asked.reshards(op, row, axes, shape)]
            causes = causes if len(causes) == 1 else []
        return causes, "" if causes else "no op of that name and line accounts for it"


def _moves_one_value(kind: str) -> bool:
    return kind_of(kind).is_pairwise or kind_of(kind).gathers
