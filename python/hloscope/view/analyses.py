"""``build_analyses``: the analyses block, what takes longer than the first picture may."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ..analysis.base.pause import uncollected
from ..analysis.base.table import NO_TARGET
from ..analysis.report.summary import CONTRIBUTIONS, summarize
from ..hardware import find
from ..hlo import Module, Target
from .builder import ANALYSES_MAGIC, Builder
from .context import Context, Given
from .sections import OF_CHIP, SECTIONS, Section

if TYPE_CHECKING:
    from .header import AnalysesContent, MoreSummary


def build_analyses(
    module: Module,
    target: Target | None = None,
    more: Callable[[Builder, Context], None] | None = None,
    given: Given | None = None,
) -> bytes:
    """The analyses block, gzip'd: what takes longer than the first picture may.

    Modelled seconds and bounds are here: the View of a step of 9,679 instructions takes 93 ms, they
    take 65 more, and nothing in the first picture shows them; colours by time come with this block.
    ``more`` adds columns to this one block, which no other View of the module gets;
    ``given`` is what the person gave the capture.
    """
    context = Context(module, target if target is not None else NO_TARGET, given=given or Given())
    builder = Builder()
    with uncollected():
        summary = summarize(module, context.target, CONTRIBUTIONS[1:])
        said: list[str] = summary.pop("warnings")
        _optional(builder, context, SECTIONS)
        if more is not None:
            more(builder, context)
        header: AnalysesContent = {
            "instructions": len(module.instructions),
            "summary": cast("MoreSummary", summary),
            "warnings": [*said, *context.warnings],
            "extras": context.extras,
        }
        return builder.finish(ANALYSES_MAGIC, header)


class OtherChips:
    """What the analyses say instead when time is modelled on another chip; gzip'd.

    Columns, extras and summary that are the same as in ``build_analyses`` of ``target`` are left
    out; ``without`` names columns and extras that it has and a chip has not. What they are compared
    with is worked out once for all chips.
    """

    def __init__(self, module: Module, target: Target, given: Given | None = None) -> None:
        self._module, self._target, self._given = module, target, given or Given()
        with uncollected():
            self._known, self._own, self._summary = self._of(target)

    def _of(self, target: Target) -> tuple[Builder, Context, dict[str, Any]]:
        context, builder = Context(self._module, target, given=self._given), Builder()
        summary = summarize(self._module, target, CONTRIBUTIONS[1:])
        _optional(builder, context, OF_CHIP)
        return builder, context, summary

    def on(self, chip: str) -> bytes:
        """Raises ``HardwareError`` for an unknown chip."""
        other = replace(self._target, hardware=find(chip).id)
        with uncollected():
            builder, context, summary = self._of(other)
            said: list[str] = summary.pop("warnings")
            gone = self._known.names() - builder.names()
            gone |= self._own.extras.keys() - context.extras.keys()
            builder.forget(builder.names() - builder.same_as(self._known))
            header: AnalysesContent = {
                "instructions": len(self._module.instructions),
                "summary": cast(
                    "MoreSummary", {k: v for k, v in summary.items() if self._summary.get(k) != v}
                ),
                "warnings": [*said, *context.warnings],
                "extras": context.extras,
                "without": sorted(gone),
            }
            return builder.finish(ANALYSES_MAGIC, header)


def build_for_chip(module: Module, target: Target, chip: str, given: Given | None = None) -> bytes:
    """The block of one chip, as ``OtherChips`` has it."""
    return OtherChips(module, target, given).on(chip)


def _optional(b: Builder, c: Context, sections: Iterable[tuple[str, Section]]) -> None:
    for name, add in sections:
        before, extras = b.names(), c.extras.copy()
        try:
            add(b, c)
            json.dumps(c.extras, allow_nan=False)
        except Exception as error:
            b.forget(before)
            c.extras = extras
            c.warnings.append(f"{name} could not be worked out: {type(error).__name__}: {error}")
