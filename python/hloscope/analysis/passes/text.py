"""``Passes`` as a table in plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text.units import duration, printed
from .row import COUNTED, Pass
from .times import PassTimes

_TIME = 10


@dataclass(frozen=True)
class PassTable:
    """What is printed of ``Passes``; ``parts`` of the compile that was measured."""

    rows: tuple[Pass, ...]
    note: str
    times: PassTimes | None
    others: tuple[float, ...]
    parts: tuple[tuple[str, float], ...]


def table(passes: PassTable) -> str:
    """One line per pass, pipelines as headings; times where a compile was measured."""
    rows = passes.rows
    width = max([len(r.title) for r in rows] + [4]) + 2
    if passes.times is not None:
        width = max([width, *(len(r.pipeline) + 2 for r in rows)])
    lines = [*_compile(passes), "pass".ljust(width) + _time(passes, "time")]
    lines[-1] += "".join(c.rjust(15) for c in COUNTED)
    for pipeline, of_it in _stretches([r for r in rows if not r.only_metadata]):
        if pipeline:
            took = _time(passes, _duration(_seconds(passes, of_it)))
            lines.append(pipeline.ljust(width) + took if took else pipeline)
        for row in of_it:
            took = _time(passes, _duration(row.seconds))
            cells = "".join(_cell(row, c) for c in COUNTED)
            lines.append("  " + row.title.ljust(width - 2) + took + cells)
    folded = sum(r.only_metadata for r in rows)
    if folded:
        lines.append(f"{folded} passes changed nothing but metadata")
    if passes.times is not None and passes.times.note:
        lines.append(passes.times.note)
    if passes.note:
        lines.append(passes.note)
    return printed(lines)


def _compile(passes: PassTable) -> list[str]:
    if passes.times is None:
        return []
    parts = ", ".join(f"{duration(s)} {what}" for what, s in passes.parts if s)
    total = passes.times.total_seconds
    head = "passes" if total is None else f"compiled in {duration(total)}"
    return [f"{head}, measured once: {parts}"]


def _stretches(rows: Sequence[Pass]) -> list[tuple[str, list[Pass]]]:
    """Passes of one pipeline that follow one another."""
    found: list[tuple[str, list[Pass]]] = []
    for row in rows:
        if not found or found[-1][0] != row.pipeline:
            found.append((row.pipeline, []))
        found[-1][1].append(row)
    return found


def _seconds(passes: PassTable, rows: Sequence[Pass]) -> float | None:
    """Of a stretch, with passes that have no row and those that changed only metadata."""
    first, last, pipeline = rows[0].index, rows[-1].index, rows[0].pipeline
    known = [
        (row.seconds or 0.0) + others
        for row, others in zip(passes.rows, passes.others or (0.0,) * len(passes.rows), strict=True)
        if first <= row.index <= last and row.pipeline == pipeline
        and (row.seconds is not None or others)
    ]  # fmt: skip
    return sum(known) if known else None


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _time(passes: PassTable, text: str) -> str:
    return "" if passes.times is None else text.rjust(_TIME)


def _cell(row: Pass, what: str) -> str:
    now, change = row.counts[what], row.change.get(what, 0)
    if not row.change:
        return f"{now:,}".rjust(15)
    if not change:
        return "".rjust(15)
    return f"{change:+,} → {now:,}".rjust(15)
