"""Asynchronous copies and collectives, one row each: ``move.*``."""

from __future__ import annotations

from ...analysis.cost.cost import estimated
from ...analysis.cost.moves import moves
from ..builder import Builder
from ..context import Context


def add(builder: Builder, context: Context) -> None:
    """Writes nothing if nothing is asynchronous."""
    module = context.module
    if module.dialect != "hlo" or module.entry is None:
        return
    found = moves(module, context.target)
    if not found:
        return
    builder.column("move.start", [m.starts[0] for m in found])
    builder.column("move.end", [m.end for m in found])
    builder.column("move.source", [m.source for m in found])
    builder.column("move.pieces", [len(m.starts) for m in found])
    builder.column("move.kind", [m.kind for m in found])
    builder.column("move.bytes", [m.bytes for m in found])
    builder.column("move.seconds", [m.seconds for m in found])
    builder.column("move.exposed", [m.exposed for m in found])
    hardware = estimated(module, context.target).hardware
    context.extras["moves"] = {"hardware": None if hardware is None else hardware.label}
