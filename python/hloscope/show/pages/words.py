"""Columns for the texts of planning."""

from __future__ import annotations

from collections.abc import Sequence

from ...hlo.parts import printable


def columns(rows: Sequence[Sequence[str]], right: str = "") -> list[str]:
    """Rows as aligned lines; ``right`` has an "n" for a column of numbers."""
    if not rows:
        return []
    rows = [[printable(cell) for cell in row] for row in rows]
    width = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    kinds = right.ljust(len(width))
    out = []
    for row in rows:
        cells = (
            cell.rjust(w) if kind == "n" else cell.ljust(w)
            for cell, w, kind in zip(row, width, kinds, strict=True)
        )
        out.append("  ".join(cells).rstrip())
    return out
