"""Python stacks of many instructions: each distinct one is worked out once."""

from __future__ import annotations

import re

from ...hlo import Instruction, Module, StackFrame

_LIBRARY = re.compile(
    r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python\d|^<frozen |^<string>$"
    r"|[/\\]hloscope[/\\](?:capturing|show)[/\\]"
)


def is_library(file: str) -> bool:
    """Whether a file belongs to an installed package or the standard library."""
    return bool(_LIBRARY.search(file))


def own_line(stack: tuple[StackFrame, ...]) -> StackFrame | None:
    """The innermost frame outside libraries, else the innermost; None for an empty stack."""
    mine = (f for f in stack if not is_library(f.file))
    return next(mine, stack[0] if stack else None)


class FrameFinder:
    """``Instruction.frames``, remembered by stack frame id."""

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
