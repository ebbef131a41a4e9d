"""``build_view``: the View block, what the first picture needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..analysis.base.pause import uncollected
from ..analysis.base.table import NO_TARGET
from ..analysis.report.summary import CONTRIBUTIONS, summarize
from ..hlo import Module, Target
from .builder import VIEW_MAGIC, Builder
from .context import Context
from .picture import add_picture

if TYPE_CHECKING:
    from .header import Summary, ViewContent


def build_view(
    module: Module,
    target: Target | None = None,
    *,
    title: str | None = None,
    subtitle: str = "",
) -> bytes:
    """The View block, gzip'd: what the first picture needs, and nothing else.

    The same module gives the same bytes.
    """
    context = Context(module, target if target is not None else NO_TARGET)
    builder = Builder()
    with uncollected():
        picture = add_picture(builder, context)
        summary = summarize(module, context.target, CONTRIBUTIONS[:1])
        header: ViewContent = {
            **picture,
            "title": title or module.name,
            "subtitle": subtitle,
            "isScheduled": module.is_scheduled,
            "summary": cast("Summary", summary),
            "warnings": [str(w) for w in module.warnings] + context.warnings,
            "extras": {},
        }
        return builder.finish(VIEW_MAGIC, header)
