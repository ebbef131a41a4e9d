"""Messages of the compiler that name an operation: ``extras.compiler``, and a warning each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.why.compiler_messages import compiler_messages

if TYPE_CHECKING:
    from ..builder import Builder
    from ..core import Context


def add(builder: Builder, context: Context) -> None:
    """``[{kind, operation, shape, had, needs, op_name, line, instructions, text}]``."""
    found = [m for m in compiler_messages(context.module, context.target) if m.kind]
    if found:
        context.extras["compiler"] = [m.to_dict() for m in found]
        context.warnings += [f"XLA: {m}." for m in found]
