"""Messages of the compiler that name an operation: ``extras.compiler``, and a warning each."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...analysis.why.compiler_messages import compiler_messages
from ..builder import Builder
from ..context import Context

if TYPE_CHECKING:
    from ..header import CompilerMessage


def add(builder: Builder, context: Context) -> None:
    """``[{kind, operation, shape, had, needs, op_name, line, instructions, text}]``."""
    found = [m for m in compiler_messages(context.module, context.target) if m.kind]
    if found:
        context.extras["compiler"] = [cast("CompilerMessage", m.to_dict()) for m in found]
        context.warnings += [f"XLA: {m}." for m in found]
