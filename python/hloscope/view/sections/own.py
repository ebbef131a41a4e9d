"""The user's own numbers per instruction: one column each, named in ``extras.own``."""

from __future__ import annotations

from ..builder import Builder
from ..context import Context


def add(builder: Builder, context: Context) -> None:
    """Writes ``own.0``, ``own.1``, …; nothing where no values were given."""
    found = context.given.own_values
    for k, values in enumerate(found):
        builder.column(f"own.{k}", values.column)
    if found:
        context.extras["own"] = [{"label": v.label, "unit": v.unit} for v in found]
        context.warnings += [f"{v.remark}." for v in found if v.remark]
