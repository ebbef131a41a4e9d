"""Python stacks of many instructions, each distinct one computed once."""

from __future__ import annotations

from ....hlo import Instruction, Module, StackFrame
from ....hlo.texts.places import is_library, own_line

__all__ = ["FrameFinder", "is_library", "own_line"]


class FrameFinder:
    """``Instruction.frames``, cached by stack frame id."""

    def __init__(self, module: Module):
        self._table, self._ids = module.source_frames()
        self._stacks: dict[int, tuple[StackFrame, ...]] = {}

    def of(self, i: Instruction) -> tuple[StackFrame, ...]:
        """Innermost frame first; () if unknown."""
        frame = self._ids[i.index]
        found = self._stacks.get(frame)
        if found is None:
            found = self._stacks[frame] = self._table.stack(frame)
        return found or i.frames
