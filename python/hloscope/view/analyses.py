"""``build_analyses``: the analyses block, what takes longer than the first picture may."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ..analysis.base.table import NO_TARGET
from ..analysis.report.summary import CONTRIBUTIONS, summarize
from ..hlo import Module, Target
from .builder import ANALYSES_MAGIC, Builder, no_collection
from .context import Context, Given
from .sections import SECTIONS

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
    with no_collection():
        summary = summarize(module, context.target, CONTRIBUTIONS[1:])
        said: list[str] = summary.pop("warnings")
        _optional(builder, context)
        if more is not None:
            more(builder, context)
        header: AnalysesContent = {
            "instructions": len(module.instructions),
            "summary": cast("MoreSummary", summary),
            "warnings": [*said, *context.warnings],
            "extras": context.extras,
        }
        return builder.finish(ANALYSES_MAGIC, header)


def _optional(b: Builder, c: Context) -> None:
    for name, add in SECTIONS:
        before, extras = b.names(), c.extras.copy()
        try:
            add(b, c)
            json.dumps(c.extras, allow_nan=False)
        except Exception as error:
            b.forget(before)
            c.extras = extras
            c.warnings.append(f"{name} could not be worked out: {type(error).__name__}: {error}")
