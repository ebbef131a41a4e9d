"""Counts and bytes of a module, as ``hloscope summary --json`` prints them.

Each contribution adds keys to one plain dict; sizes are dense bytes, per device unless
``shapes`` is "global": a program for several devices that is not partitioned yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..base.pause import uncollected
from ..base.table import table
from ..comms.partitions import partitions, shapes
from ..comms.summary import collectives_summary, shardings_summary
from ..findings.rules import findings
from ..memory.summary import costs, peaks
from ..why.compiler_messages import compiler_messages

if TYPE_CHECKING:
    from ...hlo import Module, Target

Contribution = Callable[["Module", "Target"], dict[str, Any]]


def counts(module: Module, target: Target) -> dict[str, Any]:
    """Counts of instructions, computations, fusions and so on."""
    entry = module.entry
    # In a dump that was cut before ENTRY these are unknown, not 0.
    parameters = entry.parameters if entry is not None else None
    root = entry.root if entry is not None else None
    opcodes = Counter(module.opcodes_list)
    fusions = table(module).where("fusion").tolist()
    kinds = Counter(module.instructions[n].fusion_kind or "unknown" for n in fusions)
    return {
        "module": module.name,
        "computations": len(module.computations),
        "instructions": len(module.instructions),
        "entry_instructions": len(entry.instructions) if entry is not None else 0,
        "fusions": dict(sorted(kinds.items())),
        "opcodes": dict(sorted(opcodes.items(), key=lambda kv: (-kv[1], kv[0]))),
        "parameters": None if parameters is None else len(parameters),
        "parameter_bytes": None
        if parameters is None
        else sum(p.shape.byte_size for p in parameters),
        "output_bytes": None if root is None else root.shape.byte_size,
        # Before partitioning a program for several devices still has its global shapes.
        "shapes": shapes(module, target),
        "partitions": partitions(module),
        "replicas": module.replica_count,
        "warnings": [str(w) for w in module.warnings],
    }


def worth_saying(module: Module, target: Target) -> dict[str, Any]:
    """The findings' titles; no key for a module that is not HLO or has no ENTRY."""
    if module.dialect != "hlo" or module.entry is None:
        return {}
    return {
        "findings": [
            {"rule": f.rule, "title": f.title, "line": f.line or None, "share": f.share}
            for f in findings(module, target)
        ]
    }


def said(module: Module, target: Target) -> dict[str, Any]:
    """The compiler's messages; no key for a dump, where they are unknown."""
    found = compiler_messages(module, target)
    if not found and not target.jax_version:
        return {}
    return {"compiler_messages": [m.to_dict() for m in found]}


# In the order their keys are printed; an analysis adds its totals with one line.
CONTRIBUTIONS: tuple[tuple[str, Contribution], ...] = (
    ("counts", counts),
    ("collectives", collectives_summary),
    ("shardings", shardings_summary),
    ("cost", costs),
    ("memory", peaks),
    ("findings", worth_saying),
    ("compiler messages", said),
)


@uncollected()
def summarize(
    module: Module,
    target: Target,
    contributions: tuple[tuple[str, Contribution], ...] | None = None,
) -> dict[str, Any]:
    """The contributions' keys (default all); one that fails adds a warning instead of its keys."""
    out: dict[str, Any] = {}
    failed: list[str] = []
    for name, contribution in CONTRIBUTIONS if contributions is None else contributions:
        try:
            out.update(contribution(module, target))
        except Exception as error:
            failed.append(f"{name} could not be worked out: {type(error).__name__}: {error}")
    out["warnings"] = [*out.get("warnings", []), *failed]
    return out
