"""``Passes`` as a table in plain text."""

from __future__ import annotations

from collections.abc import Sequence

from ..text.units import printed
from .row import COUNTED, Pass


def table(rows: Sequence[Pass], note: str) -> str:
    """One line per pass, pipelines as headings."""
    width = max([len(r.title) for r in rows] + [4]) + 2
    head = "pass".ljust(width) + "".join(c.rjust(15) for c in COUNTED)
    lines = [head]
    pipeline = None
    folded = 0
    for row in rows:
        if row.only_metadata:
            folded += 1
            continue
        if row.pipeline != pipeline:
            pipeline = row.pipeline
            if pipeline:
                lines.append(pipeline)
        lines.append("  " + row.title.ljust(width - 2) + "".join(_cell(row, c) for c in COUNTED))
    if folded:
        lines.append(f"{folded} passes changed nothing but metadata")
    if note:
        lines.append(note)
    return printed(lines)


def _cell(row: Pass, what: str) -> str:
    now, change = row.counts[what], row.change.get(what, 0)
    if not row.change:
        return f"{now:,}".rjust(15)
    if not change:
        return "".rjust(15)
    return f"{change:+,} → {now:,}".rjust(15)
