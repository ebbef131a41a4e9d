"""``hs.largest``: the largest batch, or any whole number, whose program fits; by bisection.

1 ─ 2 ─ 4 ─ 8 ─ 16 ✗     doubled until it does not fit
             12 ─ 14 ✗ ─ 13   then halved between the last two
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.check.sizes import parse_size
from ...analysis.text.units import duration, printed, size
from ...api.capture import Capture
from ...api.files import written
from ...hardware import HardwareError, find
from ...show.pages.page import mimebundle, page
from ...show.pages.words import columns
from ..running.candidate_figures import CandidateFigures, figures
from ..running.compiling import line_of_error

if TYPE_CHECKING:
    import pandas as pd

# Doubling further than this means that memory does not grow with the number.
MOST = 1 << 40


@dataclass(frozen=True, slots=True)
class TriedSize:
    """A number that was tried. ``fits``; ``error`` says why it has no figures."""

    number: int
    fits: bool
    figures: CandidateFigures | None = None
    error: str = ""

    @property
    def seconds_per_item(self) -> float | None:
        """Modelled step time over the number; None where unknown."""
        f = self.figures
        return None if f is None or f.seconds is None else f.seconds / self.number


@dataclass(frozen=True, eq=False)
class Largest:
    """What ``hs.largest`` returns. ``number`` is the largest that fits, 0 if none does.

    ``rows`` are all that were tried, smallest first; ``live`` what holds the most memory at the
    peak of the largest, (name, bytes). ``compiled_for`` is the platform whose peaks these are.
    """

    number: int
    limit_bytes: int
    rows: tuple[TriedSize, ...]
    live: tuple[tuple[str, int], ...]
    compiled_for: str
    title: str
    capture: Capture | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the program, which stays in its process."""
        return {**self.__dict__, "capture": None}

    def to_dict(self) -> dict[str, Any]:
        """Plain data; None is unknown."""
        return {
            "kind": "largest",
            "number": self.number,
            "limit_bytes": self.limit_bytes,
            "compiled_for": self.compiled_for,
            "live": [list(x) for x in self.live],
            "rows": [
                {
                    "number": r.number,
                    "fits": r.fits,
                    "peak_bytes": r.figures and r.figures.peak_bytes,
                    "seconds": r.figures and r.figures.seconds,
                    "seconds_per_item": r.seconds_per_item,
                    "error": r.error or None,
                }
                for r in self.rows
            ],
        }

    def to_pandas(self) -> pd.DataFrame:
        """One row per number that was tried. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["rows"])

    def html(self) -> str:
        """One offline page, as text."""
        return page(self.title, _view(self), repr(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def __repr__(self) -> str:
        return _text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return mimebundle(self.title, _view(self), repr(self))


def largest(
    step: Any,
    args_of: Callable[[int], Any],
    *,
    fits: str | int,
    lowest: int = 1,
    multiple_of: int = 1,
    highest: int | None = None,
    **options: Any,
) -> Largest:
    """The largest number whose program fits, by compiling; nothing runs.

    step: a jitted or plain function. args_of: number → its arguments, a tuple; shapes will do.
    fits: a chip such as "v5e", or bytes: "12GiB".
    lowest, multiple_of, highest: where to begin, what the number is a multiple of, the most.
    options: of ``hs.capture``: with ``topology`` the peaks are those of that TPU, else those of
        this process's platform.

    It is taken that a larger number needs more memory. Raises ``ValueError`` for a size that is
    none, and ``HardwareError`` for an unknown chip.

        >>> hs.largest(step, lambda n: (params, batch_of(n)), fits="v5e", topology="v5e:2x2")
    """
    from ...capturing import capture

    limit, chip = _limit(fits)
    if multiple_of < 1 or lowest < 1:
        raise ValueError("lowest and multiple_of are at least 1")
    if chip and "hardware" not in options:
        options["hardware"] = chip
    tried: dict[int, TriedSize] = {}
    best: Capture | None = None
    first = -(-lowest // multiple_of)

    def attempt(k: int) -> bool:
        nonlocal best
        number = k * multiple_of
        try:
            args = args_of(number)
            cap = capture(step, *(args if isinstance(args, tuple) else (args,)), **options)
            made = figures(cap)
        except Exception as error:
            said = line_of_error(error)
            tried[k] = TriedSize(number, False, None, said)
            if "out of memory" in said:
                return False
            raise
        does = not cap.does_not_fit and made.peak_bytes <= limit
        tried[k] = TriedSize(number, does, made)
        if does:
            best = cap
        return does

    most = MOST if highest is None else highest // multiple_of
    low, high = 0, 0
    k = first
    while k <= most and attempt(k):
        low, k = k, k * 2
        if k > most > low and highest is not None:
            k = most
    high = k
    while low and high - low > 1 and high <= most:
        middle = (low + high) // 2
        low, high = (middle, high) if attempt(middle) else (low, middle)
    live: tuple[tuple[str, int], ...] = ()
    platform = ""
    if best is not None:
        live = tuple((v.name, int(v.bytes)) for v in best.memory.live_at_peak[:6])
        platform = best.target.device_kind or best.target.platform
    name = getattr(step, "__name__", type(step).__name__)
    rows = tuple(tried[n] for n in sorted(tried))
    return Largest(low * multiple_of, limit, rows, live, platform, f"Largest {name}", best)


def _limit(fits: str | int) -> tuple[int, str]:
    """(bytes, chip) of what it is to fit."""
    if isinstance(fits, int):
        return fits, ""
    try:
        chip = find(fits)
    except HardwareError:
        if not fits[:1].isdigit():
            raise
        return parse_size(fits), ""
    return int(chip.memory_bytes), chip.id


def _text(s: Largest) -> str:
    head = f"{s.title}: {s.number:,}" if s.number else f"{s.title}: none fits"
    out = [f"{head} in {size(s.limit_bytes)}; peaks of {s.compiled_for or 'no program'}", ""]
    rows = [["", "peak memory", "step, modelled", "per item", ""]]
    for r in s.rows:
        f = r.figures
        rows.append(
            [
                f"{r.number:,}",
                size(f.peak_bytes) if f else "",
                duration(f.seconds) if f else "",
                duration(r.seconds_per_item),
                "fits" if r.fits else r.error or "does not fit",
            ]
        )
    out += columns(rows, "nnnnl")
    if s.live:
        held = ", ".join(f"{name} ({size(b)})" for name, b in s.live)
        out += ["", f"live at the limit: {held}"]
    return printed(out)


def _view(s: Largest) -> dict[str, Any]:
    points = [
        {
            "id": r.number,
            "x": r.seconds_per_item,
            "y": r.figures.peak_bytes,
            "label": f"{r.number:,}",
            "front": r.fits,
        }
        for r in s.rows
        if r.figures is not None and r.seconds_per_item is not None
    ]
    sections: list[dict[str, Any]] = [{"type": "facts", "rows": [
        ["largest that fits", f"{s.number:,}" if s.number else "none"],
        ["memory", size(s.limit_bytes)],
        ["peaks of", s.compiled_for or "no program"],
        *[[f"live: {name}", size(b)] for name, b in s.live],
    ]}]  # fmt: skip
    if points:
        sections.append({
            "type": "scatter", "title": "Time per item against memory",
            "note": "The line joins those that fit.",
            "x": {"name": "modelled time per item", "unit": "s"},
            "y": {"name": "peak memory", "unit": "B"}, "points": points,
        })  # fmt: skip
    sections.append({
        "type": "table", "title": "Tried",
        "columns": [
            {"name": "number"}, {"name": "peak memory", "unit": "B"},
            {"name": "step, modelled", "unit": "s"}, {"name": "per item", "unit": "s"},
            {"name": "fits"},
        ],
        "rows": [
            [
                r.number, r.figures.peak_bytes if r.figures else None,
                r.figures.seconds if r.figures else None, r.seconds_per_item,
                "yes" if r.fits else r.error or "no",
            ]
            for r in s.rows
        ],
    })  # fmt: skip
    return {"title": s.title, "sections": sections}
