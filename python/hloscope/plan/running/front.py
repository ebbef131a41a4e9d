"""Step against peak: which candidates no other beats on both, and the picture of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .candidate_figures import CandidateFigures

T = TypeVar("T")


def front(rows: Iterable[T], figures: Callable[[T], CandidateFigures | None]) -> tuple[T, ...]:
    """Rows that no other beats in both modelled time and peak memory, quickest first."""
    known = [
        (f.seconds, f.peak_bytes, n, row)
        for n, row in enumerate(rows)
        if (f := figures(row)) is not None and f.seconds is not None
    ]
    known.sort(key=lambda k: k[:3])
    out: list[T] = []
    least: float | None = None
    for _, peak, _, row in known:
        if least is None or peak < least:
            out.append(row)
            least = peak
    return tuple(out)


def scatter(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The section of a page; none without points (id, x in seconds, y in bytes, label, front)."""
    if not points:
        return []
    note = "The line joins those that no other beats on both."
    if sum(bool(p["front"]) for p in points) == 1:
        note = "No other beats the marked one on both."
    return [
        {
            "type": "scatter",
            "title": "Time against memory",
            "note": note,
            "x": {"name": "modelled step time", "unit": "s"},
            "y": {"name": "peak memory", "unit": "B"},
            "points": list(points),
        }
    ]
