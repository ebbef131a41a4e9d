"""Edges along which a value changes its sharding, in the module shown.

Before partitioning, values are annotated: the edges are those of ``Shardings.transitions``.
After it, the change is a collective: the edge goes from the value it moves to the op that runs
it, with the shardings of its card; if the card is unknown there is no edge.
"""

from __future__ import annotations

import re

from ...hlo import Instruction, Module, Target, walk
from ...hlo.collective_kinds import KINDS, kind_of
from ..base.operands import ONE_ARRAY
from ..base.table import NO_TARGET, per_devices
from ..comms.collective import Collective
from ..comms.collectives import collectives
from ..comms.sharding import Transition, shardings
from .cards import reasons
from .provenance import Provenance
from .provenance_card import Why

# Reductions make one value from many partial ones; they do not change a value's sharding.
_MOVES = tuple(k.name for k in KINDS.values() if k.reshards)
# What a card says of a value that only changes its sharding.
_BECOMES = re.compile(r"(?:needed|carried|returned) as ")


def transitions(module: Module, target: Target | None = None) -> tuple[Transition, ...]:
    """Every such edge that is known, in program order."""
    return _made(module, target if target is not None else NO_TARGET)


@per_devices
def _made(module: Module, target: Target) -> tuple[Transition, ...]:
    annotated = shardings(module, target).transitions
    if annotated:
        return annotated
    out: dict[Transition, None] = {}
    answers: Provenance | None = None
    for row, card in zip(collectives(module, target), reasons(module, target), strict=True):
        if card is None or not card.is_known or row.kind not in _MOVES:
            continue
        sources = moved(row)
        cards = [card] * len(sources)
        # The pieces of an all-to-all are one value; combined collectives move several.
        if len(row.parts) > 1 and not kind_of(row.kind).exchanges:
            answers = answers or Provenance(target)
            cards = answers.parts(row)
        for source, each in zip(sources, cards, strict=False):
            if source is not None and each.is_known:
                out[Transition(source, row.anchor, each.had, _after(each))] = None
    return tuple(out)


def moved(row: Collective) -> list[Instruction | None]:
    """For each operand of the collective, the operand of the op that runs it; None if unclear.

    A fusion around it can have more operands, for its other ops.
    """
    taken = set(row.anchor.operands)
    return [_taken(operand, taken) for operand in row.instruction.operands]


def _taken(operand: Instruction, taken: set[Instruction]) -> Instruction | None:
    way = (p.instruction for p in walk.path(operand, ONE_ARRAY))
    return next((i for i in way if i in taken), None)


def _after(card: Why) -> str:
    changed = _BECOMES.match(card.needs)
    if changed is not None:
        return card.needs[changed.end() :]
    return f"{card.opcode} with {card.needs}"
