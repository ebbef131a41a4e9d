"""A sharding search as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analysis.text.units import duration, printed, size
from ...show.pages.words import columns
from ..running.figures import COSTS

if TYPE_CHECKING:
    from .result import Candidate, Search

ROWS = 12


def text(s: Search) -> str:
    """What ``print`` shows."""
    looked = len(s.candidates)
    of = f"all {looked}" if looked == s.space else f"{looked} of {s.space:,}"
    out = [
        f"{s.title}: {of} candidates, {s.compiled} compiled in {duration(s.seconds)}; "
        f"ranked by {COSTS[s.cost][0]}" + (f", modelled on {s.hardware}" if s.hardware else "")
    ]
    if s.left_out:
        out.append(f"{s.left_out:,} candidates were not looked at")
    if s.cancelled:
        out.append("cancelled before the end")
    if s.failed:
        out.append(f"{len(s.failed)} without figures, such as: {s.failed[0].error}")
    out += s.notes
    measured = any(c.measured for c in s.candidates)
    heads = ["", "time", "peak memory", "wire bytes", "collectives", "mesh", "specs"]
    if measured:
        heads.insert(2, "measured median")
    front = {c.number for c in s.pareto}
    rows = [heads]
    for rank, c in enumerate(s.candidates[:ROWS]):
        cells = [f"{rank}{' *' if c.number in front else ''}", *_figures(c)]
        if measured:
            cells.insert(2, duration(c.measured.median) if c.measured else "")
        rows.append([*cells, c.mesh_label, c.label])
    out += ["", *columns(rows, "nnnn"[: 4 + measured])]
    if looked > ROWS:
        out.append(f"… {looked - ROWS} more")
    if front:
        out.append("* no other is both faster and smaller")
    return printed(out)


def _figures(c: Candidate) -> list[str]:
    f = c.figures
    if f is None:
        return ["", "", "", c.error[:60]]
    said = collectives_text(c)
    if c.broken:
        said = f"{'; '.join(c.broken)}; {said}"
    return [duration(f.seconds), size(f.peak_bytes), size(f.wire_bytes), said]


def collectives_text(c: Candidate) -> str:
    """ "2 all-reduce, 1 all-gather (1 of a constant)"."""
    if c.figures is None:
        return ""
    kinds: dict[str, int] = {}
    for kind, _, count, _ in c.figures.collectives:
        kinds[kind] = kinds.get(kind, 0) + count
    said = ", ".join(f"{n} {k}" for k, n in kinds.items()) or "none"
    useless = len(c.figures.useless)
    return f"{said} ({useless} of a constant)" if useless else said
