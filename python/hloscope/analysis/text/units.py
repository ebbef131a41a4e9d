"""Figures with their unit, and columns of text; every module may import this one.

js/base/format.ts prints the same; a test compares the two. Three significant digits, without
zeros at the end; bytes in powers of 1024, the rest in powers of 1000; unknown is "unknown".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal

from ...hlo.parts import printable

BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
SI = ("", "k", "M", "G", "T", "P", "E")
SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
UNKNOWN = "unknown"
MINUS = "−"


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _digits(value: float) -> str:
    """A value ≥ 0 with three digits, rounded half up as browsers do, at most six decimals."""
    decimals, limit = 0, 99.95
    while value < limit and decimals < 6:
        decimals, limit = decimals + 1, limit / 10
    return _fixed(value, decimals)


def _fixed(value: float, decimals: int) -> str:
    if value >= 1e21:  # as browsers write it
        return repr(float(value))
    text = str(Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, base: int, units: Sequence[str], whole: bool) -> tuple[str, str]:
    """(digits, unit); ``whole``: values below ``base`` have no decimals."""
    v, power = abs(value), 0
    while v >= base and power < len(units) - 1:
        v, power = v / base, power + 1
    text = _fixed(v, 0) if whole and not power else _digits(v)
    if float(text) >= base and power < len(units) - 1:  # 1023.9996 KiB would print as 1024
        text, power = _digits(v / base), power + 1
    return (MINUS if value < 0 and text != "0" else "") + text, units[power]


def size(value: float | None) -> str:
    """Bytes: ``54 MiB``, ``1.25 GiB``."""
    if value is None or not _is_known(value):
        return UNKNOWN
    return " ".join(_scaled(value, 1024, BINARY, whole=True))


def exact_size(value: int | None, note: str = "") -> str:
    """``185 MiB (194,152,460 B)``, or with a note ``185 MiB (194,152,460 B, simulated)``."""
    beside = [note] if note else []
    if value is not None and value >= 1024:
        beside.insert(0, f"{value:,} B")
    return f"{size(value)} ({', '.join(beside)})" if beside else size(value)


def quantity(value: float | None, unit: str = "") -> str:
    """``631 GFLOP``; "B" and "s" have their own steps; without a unit it is a number."""
    if value is None or not _is_known(value):
        return UNKNOWN
    if unit == "B":
        return size(value)
    if unit == "s":
        return duration(value)
    if not unit:
        whole = value == math.floor(value) or abs(value) >= 999.5
        sign = MINUS if value < 0 else ""
        return count(value) if whole else sign + _digits(abs(value))
    text, prefix = _scaled(value, 1000, SI, whole=False)
    return f"{text} {prefix}{unit}"


def duration(seconds: float | None) -> str:
    """Seconds with a prefix: ``1.23 ms``."""
    if seconds is None or not _is_known(seconds):
        return UNKNOWN
    value = abs(seconds)
    sign = MINUS if seconds < 0 else ""
    at = next((k for k, (step, _) in enumerate(SECONDS) if value >= step), len(SECONDS) - 1)
    text = _digits(value / SECONDS[at][0])
    if text == "0":
        return "0 s"
    if at and float(text) >= 1000:  # 999.96 µs
        text, at = "1", at - 1
    return f"{sign}{text} {SECONDS[at][1]}"


def count(value: float | None) -> str:
    """``9,679``."""
    if value is None or not _is_known(value):
        return UNKNOWN
    if abs(value) >= 1e15:  # more digits than a float has
        return " ".join(_scaled(value, 1000, SI, whole=False))
    whole = math.floor(value + 0.5)
    return f"{MINUS if whole < 0 else ''}{abs(whole):,}"


def spanned(least: float, most: float, write: Callable[[float], str]) -> str:
    """``1 KiB – 2 KiB``, or one figure if both are written the same."""
    low, high = write(least), write(most)
    return high if low == high else f"{low} – {high}"


ONE_TRIP = "(1 trip)"
ONE_TRIP_MEANS = (
    "a loop of unknown trip count is counted once; it may run more often, or not at all"
)


def marked(text: str, *, is_least: bool, is_one_trip: bool) -> str:
    """A figure with what it is: "≥ 28 KiB", a lower bound; "28 KiB (1 trip)", no bound."""
    return f"{text} {ONE_TRIP}" if is_one_trip else f"≥ {text}" if is_least else text


def printed(lines: Iterable[str]) -> str:
    """Lines as one text; names are escaped, so that none breaks a line."""
    return "\n".join(map(printable, lines))


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns as wide as their widest cell; the first left-aligned, the others right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(r[k]) for r in (header, *rows)) for k in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = (c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))
        return "  ".join((first, *rest)).rstrip()

    return [line(header), *(line(r) for r in rows)]


def short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
