"""Edges along which a value changes its sharding: ``transition.*``."""

from __future__ import annotations

from ...analysis.why.transitions import transitions
from ..builder import Builder
from ..context import Context


def add(builder: Builder, context: Context) -> None:
    """Writes nothing when no such edge is known."""
    found = transitions(context.module, context.target)
    if not found:
        return
    builder.column("transition.source", [t.source.index for t in found])
    builder.column("transition.target", [t.target.index for t in found])
    builder.column("transition.before", [t.before for t in found])
    builder.column("transition.after", [t.after for t in found])
