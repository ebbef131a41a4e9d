"""The card of each collective. How it is found is imported where there is something to find."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...hlo import Module, StackFrame, Target
from ...hlo.texts.places import whole_place
from ..base.table import per_devices
from ..comms.collective import Collective
from ..comms.collectives import listed
from .compiler_messages import compiler_messages

if TYPE_CHECKING:
    from .provenance_card import Why


def reasons(module: Module, target: Target) -> tuple[Why | None, ...]:
    """The card of each collective; all None without the program before partitioning."""
    return _reasons(module, target)


@per_devices
def _reasons(module: Module, target: Target) -> tuple[Why | None, ...]:
    rows = listed(module, target)
    if target.before_partitioning is None:
        return (None,) * len(rows)
    from .provenance import Provenance

    answers = Provenance(target, rows)
    if target.asked_lines is not None:  # tables have the card's line
        return tuple(answers.why(row) for row in rows)
    return tuple(_beside_row(answers.why(row), row) for row in rows)


def asked_lines(module: Module, target: Target) -> tuple[tuple[StackFrame, ...], ...]:
    """For each collective the line of its card and its callers, if tables have another; else ()."""
    rows = listed(module, target)
    return tuple(map(_asked_at, reasons(module, target), rows))


def _asked_at(card: Why | None, row: Collective) -> tuple[StackFrame, ...]:
    if card is None or not card.is_known or not card.line or card.line == row.line:
        return row.asked
    return tuple(map(_frame, (card.line, *card.callers)))


def _frame(place: str) -> StackFrame:
    file, _, line = place.rpartition(":")
    return StackFrame(file, int(line))


def explain(module: Module, target: Target, row: Collective) -> Why:
    """The card of one collective of the module, with the compiler's messages about it."""
    rows = listed(module, target)
    card = reasons(module, target)[row.index]
    if card is None:
        from .provenance import Provenance

        card = _beside_row(Provenance(target, rows).why(rows[row.index]), row)
    members = set(row.members)
    said = (m for m in compiler_messages(module, target) if members & set(m.instructions))
    return replace(card, collective=f"{row.name} over {row.axes_or_groups}", messages=tuple(said))


def _beside_row(card: Why, row: Collective) -> Why:
    """The card with the line that tables show for the row, if that differs from its own."""
    if not card.line or not row.line or row.line == card.line:
        return card
    how = f"inferred: {row.inferred}" if row.inferred else "the line XLA gave it"
    return replace(card, listed=f"{whole_place(row.line)}, {how}")
