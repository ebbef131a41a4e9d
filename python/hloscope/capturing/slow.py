"""What XLA reports as slow to compile, with the Python line that it is about."""

from __future__ import annotations

import re

from ..hlo import StackFrame
from ..hlo.origins.operations import Operation
from ..hlo.target import SlowToCompile
from .cells import Cells
from .dumps.messages import SlowText
from .marks.marks import Marked
from .marks.text import Cleaner

_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_MAX_TEXT = 200  # characters of an instruction, whose operands say enough


def slow_to_compile(found: SlowText, marked: Marked | None, cells: Cells) -> SlowToCompile:
    """An alarm without marks; the line from the operation whose mark it carries."""
    named = _OP_NAME.search(found.instruction)
    name, frame = named[1] if named else "", None
    if marked is not None:
        name, chains = Cleaner(marked.salt).op_name(name)
        numbers = [n for chain in chains[:1] for n in reversed(chain)]
        frame = next(filter(None, (_frame(marked.operations[n]) for n in numbers)), None)
    text = found.instruction.partition(")")[0][:_MAX_TEXT] + ")"
    return SlowToCompile(found.what, cells.text(text), found.seconds, cells.text(name), frame)


def _frame(operation: Operation) -> StackFrame | None:
    """The innermost line of the person's own; the frame after a function's has its line."""
    for k in range(len(operation.frames) - 1, -1, -1):
        frame = operation.frames[k]
        if frame.function:
            inner = operation.frames[k + 1 :]
            line = inner[0].called_at if inner else frame.begins
            return StackFrame(frame.file, line, frame.function)
    return None
