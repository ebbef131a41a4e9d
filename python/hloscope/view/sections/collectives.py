"""Logical collectives, phases, and why each is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from ...analysis.base.phases.names import phase_names
from ...analysis.base.phases.phases import phases
from ...analysis.base.table import csr
from ...analysis.comms.apparent import apparent
from ...analysis.comms.collective import Collective
from ...analysis.comms.collectives import Collectives, collectives
from ...analysis.why.cards import reasons
from ...analysis.why.provenance_card import Why
from ...hlo.collective_kinds import OF_PERMUTES
from ..builder import Builder
from ..context import Context

if TYPE_CHECKING:
    from ..header import GroupSet, OriginKind, WhyCard

WRITTEN = ("unknown", "user", "partitioner", "autodiff")


def add(builder: Builder, context: Context) -> None:
    """Writes ``collective.*`` when there are any, and ``phase.*`` when the module marks phases."""
    phase = phases(context.module)
    if phase.any():
        builder.column("phase.of", phase)
        context.extras["phases"] = list(phase_names(context.module))
    found = collectives(context.module, context.target)
    if not found.rows:
        return
    _rows(builder, found)
    cards = _cards(context)
    groups, sets = _groups(found)
    builder.column("collective.why", [cards[1][r.index] for r in found])
    builder.column("collective.group_set", groups)
    context.extras["phases"] = list(phase_names(context.module))
    context.extras["collectives"] = {
        "written": list(WRITTEN),
        "why": cards[0],
        "groups": sets,
        "assumes": {r.kind: r.assumes for r in found if r.assumes},
        "ofPermutes": list(OF_PERMUTES),
    }


def _rows(b: Builder, found: Collectives) -> None:
    rows = found.rows
    names = phase_names(rows[0].instruction.module)
    b.column("collective.kind", [r.kind for r in rows])
    b.column("collective.instruction", [r.instruction.index for r in rows])
    b.column("collective.anchor", [r.anchor.index for r in rows])
    b.column("collective.axes", [r.axes_or_groups for r in rows])
    b.column("collective.on_axes", [r.axes is not None for r in rows])
    b.column("collective.types", [r.element_types for r in rows])
    b.column("collective.group_size", [r.group_size for r in rows])
    b.column("collective.payload", [r.payload_bytes for r in rows])
    b.column("collective.wire", [_or_nan(r.wire_bytes) for r in rows])
    known = [None if r.is_unknown else r.counted for r in rows]
    b.column("collective.executions", list(map(_or_nan, known)))
    if any(r.may_not_run for r in rows):
        b.column("collective.may_not_run", [r.may_not_run for r in rows])
    if any(r.branches for r in rows):
        each = [[(x.conditional, x.number, x.of) for x in r.branches] for r in rows]
        b.column("collective_branch.offsets", np.cumsum([0, *map(len, each)]))
        for k, name in enumerate(("conditional", "number", "of")):
            b.column(f"collective_branch.{name}", [x[k] for row in each for x in row])
    b.column("collective.phase", [names.index(r.phase) for r in rows])
    b.column("collective.written", [WRITTEN.index(r.written_by) for r in rows])
    b.column("collective.moves", [r.moved for r in rows])
    b.column(
        "collective.moves_argument",
        [bool(r.moves and r.moves.kind == "argument" and not r.is_combined) for r in rows],
    )
    b.column("collective.line", [r.line for r in rows])
    b.column("collective.op_name", [r.op_name for r in rows])
    b.column("collective.shows", [apparent(r) for r in rows])
    if found.num_slices:
        b.column("collective.network", [r.network for r in rows])
    members = csr([r.members for r in rows])
    b.relation("collective_member", members.offsets, members.values)
    b.column("collective_part.offsets", np.cumsum([0, *(len(r.parts) for r in rows)]))
    b.column("collective_part.shape", [p.shape for r in rows for p in r.parts])
    b.column("collective_part.bytes", [p.bytes for r in rows for p in r.parts])
    named = [p.moves.name if p.moves else "" for r in rows for p in r.parts]
    b.column("collective_part.moves", named)


def _or_nan(value: int | None) -> float:
    return float("nan") if value is None else float(value)


def _cards(context: Context) -> tuple[list[WhyCard], list[int]]:
    """Distinct why cards, and the card of each row (-1: nothing to say)."""
    cards: dict[Why, int] = {}
    of = [
        -1 if card is None else cards.setdefault(card, len(cards))
        for card in reasons(context.module, context.target)
    ]
    return [_card(c) for c in cards], of


def _card(card: Why) -> WhyCard:
    return {
        "unknown": card.unknown,
        "opName": card.op_name,
        "opcode": card.opcode,
        "shape": card.shape,
        "line": card.line,
        "listed": card.listed,
        "operand": card.operand,
        "had": card.had,
        "needs": card.needs,
        "callers": list(card.callers),
        "others": list(card.others),
        "origins": [
            {
                "axis": o.axis,
                "of": o.of,
                "kind": cast("OriginKind", o.kind),
                "name": o.name,
                "line": o.line,
                "stack": list(o.stack),
                "via": list(o.via),
            }
            for o in card.origins
        ],
    }


def _groups(found: Collectives) -> tuple[list[int], list[GroupSet]]:
    """Distinct device groups or pairs, and which of them each row runs over."""
    sets: list[GroupSet] = []
    known: dict[tuple[str, object], int] = {}
    of = []
    for row in found.rows:
        of.append(_group_set(row, known, sets))
    return of, sets


def _group_set(row: Collective, known: dict[tuple[str, object], int], sets: list[GroupSet]) -> int:
    if row.groups is None:
        return -1
    rows = row.groups.rows()
    key = row.groups.key
    if key not in known:
        known[key] = len(sets)
        sets.append({"pairs": row.groups.pairs is not None, "rows": rows})
    return known[key]
