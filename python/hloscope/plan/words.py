"""Numbers in words for planning's texts: binary bytes, SI for the rest; unknown is unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(value: float | None) -> str:
    """ "1.5 GiB"; "unknown" for None and NaN."""
    if value is None or not math.isfinite(value):
        return "unknown"
    power = 0
    v = float(value)
    while abs(v) >= 1024 and power < len(_BINARY) - 1:
        v /= 1024
        power += 1
    return f"{v:.4g} {_BINARY[power]}" if power else f"{v:.0f} B"


def seconds_text(value: float | None) -> str:
    """ "1.5 ms"; "unknown" for None and NaN."""
    if value is None or not math.isfinite(value):
        return "unknown"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale or value == 0:
            return f"{value / scale:.4g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def si_text(value: float | None, unit: str) -> str:
    """ "1.5 GFLOP"."""
    if value is None or not math.isfinite(value):
        return "unknown"
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def columns(rows: Sequence[Sequence[str]], right: str = "") -> list[str]:
    """Rows as aligned lines; ``right`` has an "n" for a column of numbers."""
    if not rows:
        return []
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
