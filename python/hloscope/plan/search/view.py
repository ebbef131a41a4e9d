"""A sharding search as a ``PlanView`` of js/plan/view.ts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...analysis.text.units import duration
from ..running.figures import COSTS
from .text import collectives_text

if TYPE_CHECKING:
    from ...show.pages.plain import Answers
    from .result import Search

LISTED = 2_000


def search_data(s: Search, links: Mapping[int, str]) -> dict[str, Any]:
    """The page: what was evaluated, the front of time against memory, the ranked table."""
    looked = len(s.candidates)
    facts = [
        ["candidates", f"{looked:,} of {s.space:,}"],
        ["not looked at", f"{s.left_out:,}"],
        ["compiled", f"{s.compiled:,} in {duration(s.seconds)}"],
        ["without figures", str(len(s.failed))],
        ["ranked by", COSTS[s.cost][0]],
        ["modelled on", s.hardware or "no chip"],
    ]
    if s.cancelled:
        facts.append(["cancelled", "before the end"])
    sections: list[dict[str, Any]] = [{"type": "facts", "rows": facts}]
    front = {c.number for c in s.pareto}
    points = [
        {
            "id": c.number,
            "x": c.figures.seconds,
            "y": c.figures.peak_bytes,
            "label": f"{rank}: {c.mesh_label}, {c.label}",
            "front": c.number in front,
        }
        for rank, c in enumerate(s.candidates[:LISTED])
        if c.figures is not None and c.figures.seconds is not None
    ]
    if points:
        sections.append(
            {
                "type": "scatter",
                "title": "Time against memory",
                "note": "The line joins those that no other beats on both.",
                "x": {"name": "modelled step time", "unit": "s"},
                "y": {"name": "peak memory", "unit": "B"},
                "points": points,
            }
        )
    sections.append(_table(s, links, front))
    if s.notes:
        sections.append({"type": "text", "title": "Notes", "text": "\n".join(s.notes)})
    if s.failed:
        said = "\n".join(f"{c.number}: {c.mesh_label}, {c.label}: {c.error}" for c in s.failed)
        sections.append({"type": "text", "title": "Without figures", "text": said[:100_000]})
    return {"title": s.title, "sections": sections}


def _table(s: Search, links: Mapping[int, str], front: set[int]) -> dict[str, Any]:
    shown = s.candidates[:LISTED]
    measured = any(c.measured for c in shown)
    columns: list[dict[str, str]] = [
        {"name": "rank"}, {"name": "mesh"}, {"name": "specs"},
        {"name": "time, modelled", "unit": "s"},
    ]  # fmt: skip
    if measured:
        columns += [
            {"name": "measured, median", "unit": "s"},
            {"name": "mean", "unit": "s"},
            {"name": "deviation", "unit": "s"},
        ]
    columns += [
        {"name": "peak memory", "unit": "B"}, {"name": "wire bytes", "unit": "B"},
        {"name": "FLOPs", "unit": "FLOP"}, {"name": "collectives"}, {"name": "not kept"},
    ]  # fmt: skip
    if s.cost in ("log", "custom"):
        columns.insert(3, {"name": COSTS[s.cost][0]})
    rows = []
    for rank, c in enumerate(shown):
        f = c.figures
        row: list[Any] = [rank, c.mesh_label, c.label, f.seconds if f else None]
        if measured:
            m = c.measured
            row += [m.median, m.mean, m.deviation] if m else ["", "", ""]
        row += [f.peak_bytes, f.wire_bytes, f.flops] if f else [None, None, None]
        row += [collectives_text(c), "; ".join(c.broken) or c.error]
        if s.cost in ("log", "custom"):
            row.insert(3, c.cost)
        rows.append(row)
    more = len(s.candidates) - len(shown)
    out = {
        "type": "table",
        "title": "Candidates, best first",
        "note": "Marked: no other is both faster and smaller."
        + (f" {more:,} more are not listed." if more else ""),
        "columns": columns,
        "rows": rows,
        "ids": [None if c.error else c.number for c in shown],
        "marked": [n for n, c in enumerate(shown) if c.number in front],
        "code": [s.code(c) for c in shown],
    }
    if links:
        out["links"] = [links.get(c.number) for c in shown]
    return out


def answer(s: Search) -> Answers:
    """Opens a candidate's capture, or the comparison of two, as a page."""

    def answers(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
        ids = [int(i) for i in values.get("ids", ())]
        if what == "open" and len(ids) == 1:
            return {"html": str(s.capture(ids[0]).to_html())}
        if what == "diff" and len(ids) == 2:
            return {"html": str(s.diff(*ids).to_html())}
        raise ValueError("select one candidate to open it, two to compare them")

    return answers
