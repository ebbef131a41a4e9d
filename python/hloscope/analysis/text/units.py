"""Figures with their unit, and columns of text: a leaf everything may use."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantity(value: float | None, unit: str = "") -> str:
    """Four figures and an SI prefix: ``631.4 G``; "unknown" for None and NaN."""
    if value is None or math.isnan(value):
        return "unknown"
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".rstrip()


def size(value: float | None) -> str:
    """Bytes in binary units: ``54.0 MiB``."""
    if value is None or math.isnan(value):
        return "unknown"
    for step, prefix in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= step:
            return f"{value / step:.4g} {prefix}"
    return f"{value:.0f} B"


def duration(seconds: float | None) -> str:
    """Seconds with a prefix: ``1.23 ms``."""
    if seconds is None or math.isnan(seconds):
        return "unknown"
    for step, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= step:
            return f"{seconds / step:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns" if seconds else "0 s"


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell; the first column left, the others right."""
    widths = [max(len(r[k]) for r in (header, *rows)) for k in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = (c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))
        return "  ".join((first, *rest)).rstrip()

    return "\n".join([line(header), *(line(r) for r in rows)])


def short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
