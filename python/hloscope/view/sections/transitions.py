"""Edges along which a value changes its sharding: ``transition.*``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.why.transitions import transitions

if TYPE_CHECKING:
    from ..builder import Builder
    from ..core import Context


def add(builder: Builder, context: Context) -> None:
    """Writes nothing when no such edge is known."""
    found = transitions(context.module, context.target)
    if not found:
        return
    builder.column("transition.source", "u32", [t.source.index for t in found])
    builder.column("transition.target", "u32", [t.target.index for t in found])
    builder.text_column("transition.before", [t.before for t in found])
    builder.text_column("transition.after", [t.after for t in found])
