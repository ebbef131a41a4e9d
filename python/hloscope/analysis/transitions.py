"""Edges along which a value changes its sharding, in the module that is looked at.

Before partitioning, values are annotated: the edges are those of ``Shardings.transitions``.
After it, the change is a collective: the edge goes from what it moves to the op that runs it,
with the shardings of its card; where the card is unknown there is no edge.
"""

from __future__ import annotations

from ..hlo import Module, Target
from .collectives import collectives
from .provenance import reasons
from .provenance_card import Why
from .sharding import Transition, shardings
from .table import NO_TARGET, per_target

# Reductions make one value of many partial ones: no change of one value's sharding.
_MOVES = ("all-gather", "all-to-all", "collective-permute")
_COPIED = "needed as "


def transitions(module: Module, target: Target | None = None) -> tuple[Transition, ...]:
    """Every such edge that is known, in program order."""
    return _made(module, target if target is not None else NO_TARGET)


@per_target
def _made(module: Module, target: Target) -> tuple[Transition, ...]:
    annotated = shardings(module, target).transitions
    if annotated:
        return annotated
    out: list[Transition] = []
    for row, card in zip(collectives(module, target), reasons(module, target), strict=True):
        if card is None or not card.is_known or row.kind not in _MOVES:
            continue
        operands = tuple(dict.fromkeys(row.anchor.operands))
        # The pieces of an all-to-all are one value; of others, several could be any of them.
        if len(operands) == 1 or row.kind == "all-to-all":
            out += [Transition(o, row.anchor, card.had, _after(card)) for o in operands]
    return tuple(out)


def _after(card: Why) -> str:
    if card.needs.startswith(_COPIED):
        return card.needs.removeprefix(_COPIED)
    return f"{card.opcode} with {card.needs}"
