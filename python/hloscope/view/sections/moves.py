"""Asynchronous copies and collectives, one row each: ``move.*``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.cost.cost import estimated
from ...analysis.cost.moves import moves

if TYPE_CHECKING:
    from ..builder import Builder
    from ..core import Context


def add(builder: Builder, context: Context) -> None:
    """Writes nothing if nothing is asynchronous."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    found = moves(module, context.target)
    if not found:
        return
    builder.column("move.start", "u32", [m.starts[0] for m in found])
    builder.column("move.end", "u32", [m.end for m in found])
    builder.column("move.source", "u32", [m.source for m in found])
    builder.column("move.pieces", "u32", [len(m.starts) for m in found])
    builder.text_column("move.kind", [m.kind for m in found])
    builder.column("move.bytes", "f64", [m.bytes for m in found])
    builder.column("move.seconds", "f64", [m.seconds for m in found])
    builder.column("move.exposed", "f64", [m.exposed for m in found])
    hardware = estimated(module, context.target).hardware
    context.extras["moves"] = {"hardware": None if hardware is None else hardware.label}
