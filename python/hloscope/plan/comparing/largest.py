"""``hs.largest``: the largest batch, or any whole number, whose program fits; by bisection.

1 ─ 2 ─ 4 ─ 8 ─ 16 ✗     doubled until it does not fit
             12 ─ 14 ✗ ─ 13   then halved between the last two

With several workers as many numbers are tried at once, and the rest is cut into more parts.
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
from ...hlo.changes import Changes
from ...show.pages.page import mimebundle, page
from ...show.pages.words import columns
from ..running.candidate_figures import CandidateFigures, from_plain
from ..running.options import ProofOptions
from ..running.programs import make_jobs
from ..running.running import Job, Runner, SearchCancelled

if TYPE_CHECKING:
    import pandas as pd

# How ``compiling`` says that XLA found no room on the device, and Python none in the process.
_NO_MEMORY, _OF_PROCESS = "out of memory: ", "out of memory: MemoryError"
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

    ``rows`` are all that were tried, smallest first. At the peak of the largest, ``live`` are the
    values that hold most memory, (name, bytes), and ``categories`` are what all of them are of.
    ``compiled_for`` is the platform whose peaks these are.
    ``capture`` is the largest that fits, None where another process compiled it. ``cancelled``: a
    larger one may fit.
    """

    number: int
    limit_bytes: int
    rows: tuple[TriedSize, ...]
    live: tuple[tuple[str, int], ...]
    compiled_for: str
    title: str
    capture: Capture | None = field(default=None, repr=False)
    cancelled: bool = False
    categories: tuple[tuple[str, int], ...] = ()

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
            "cancelled": self.cancelled,
            "live": [list(x) for x in self.live],
            "categories": [list(x) for x in self.categories],
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
    options: ProofOptions | None = None,
    **given: Any,
) -> Largest:
    """The largest number whose program fits, by compiling; nothing runs.

    step: a jitted or plain function. args_of: number → its arguments, a tuple; shapes will do.
    fits: a chip such as "v5e", or bytes: "12GiB".
    lowest, multiple_of, highest: where to begin, what the number is a multiple of, the most.
    options: ``hs.ProofOptions``: where it is compiled, by default in this process; several
        ``workers`` compile several numbers at once; a ``store`` keeps what was found.
    given: of ``hs.capture``: with ``topology`` the peaks are those of that TPU, else those of
        this process's platform.

    It is taken that a larger number needs more memory. Ctrl+C, or a ``progress`` that returns
    False, ends it with what is known by then (``cancelled``). Raises ``ValueError`` for a size that
    is none, ``HardwareError`` for an unknown chip, and ``CaptureError`` for a number whose program
    cannot be compiled.

        >>> hs.largest(step, lambda n: (params, batch_of(n)), fits="v5e", topology="v5e:2x2")
    """
    limit, chip = _limit(fits)
    if multiple_of < 1 or lowest < 1:
        raise ValueError("lowest and multiple_of are at least 1")
    if chip and "hardware" not in given:
        given["hardware"] = chip
    sizes = _Sizes(step, args_of, multiple_of, limit, given, options or ProofOptions())
    most = MOST if highest is None else highest // multiple_of
    try:
        low = _searched(sizes, -(-lowest // multiple_of), most, highest is not None)
    except (KeyboardInterrupt, SearchCancelled):
        sizes.cancelled = True
        low = max((k for k, row in sizes.tried.items() if row.fits), default=0)
    finally:
        sizes.runner.close()
    live, categories, platform = sizes.live.get(low, ((), (), ""))
    name = getattr(step, "__name__", type(step).__name__)
    return Largest(
        low * multiple_of, limit, tuple(sizes.tried[k] for k in sorted(sizes.tried)), live,
        platform, f"Largest {name}", sizes.captures.get(low), sizes.cancelled, categories,
    )  # fmt: skip


def _searched(sizes: _Sizes, first: int, most: int, is_bounded: bool) -> int:
    """The largest multiple that fits, 0 if none does; ``most`` is tried where it is given."""
    low, high, k = 0, 0, first
    while k <= most and not high:
        ahead = [k << n for n in range(sizes.at_once) if k << n <= most]
        low, high = sizes.between(ahead, low, high)
        k = ahead[-1] * 2
        if k > most > low and is_bounded and not high:
            k = most
    while low and high - low > 1:
        parts = min(sizes.at_once, high - low - 1) + 1
        inside = [low + (high - low) * n // parts for n in range(1, parts)]
        low, high = sizes.between(inside, low, high)
    return low


_Sized = tuple[tuple[str, int], ...]


class _Sizes:
    """Programs of several sizes, compiled as jobs; ``at_once`` of them at a time.

    A number k stands for ``k * multiple_of``.
    """

    def __init__(
        self, step: Any, args_of: Callable[[int], Any], multiple_of: int, limit: int,
        given: dict[str, Any], options: ProofOptions,
    ) -> None:  # fmt: skip
        self.step, self.args_of, self.multiple_of = step, args_of, multiple_of
        self.limit, self.given, self.options = limit, given, options
        self.at_once = options.threads if options.executor is None else options.workers or 1
        self.runner = Runner(options)
        self.tried: dict[int, TriedSize] = {}
        self.live: dict[int, tuple[_Sized, _Sized, str]] = {}
        self.captures: dict[int, Capture] = {}  # those that this process compiled and that fit
        self.cancelled = False

    def between(self, numbers: list[int], low: int, high: int) -> tuple[int, int]:
        """Tries some: the largest that fits, and the least above it that does not, or ``high``."""
        jobs = [self._job(k) for k in numbers]
        for k, answer in zip(numbers, self.runner.run(jobs), strict=True):
            assert answer is not None  # a cancel raises
            self._keep(k, answer)
        for k in numbers:
            if not self.tried[k].fits:
                return low, k
            low = k
        return low, high

    def _job(self, k: int) -> Job:
        from ...capturing import capture

        args = self.args_of(k * self.multiple_of)
        given = {**self.given, "stage": "stablehlo"}
        cap = capture(self.step, *(args if isinstance(args, tuple) else (args,)), **given)
        self.captures[k] = cap
        (job,) = make_jobs(cap, [Changes()], self.options, want="live")
        return job

    def _keep(self, k: int, answer: dict[str, Any]) -> None:
        from ...capturing import CaptureError

        number, error = k * self.multiple_of, str(answer.get("error", ""))
        cap = self.captures.pop(k)
        if error:
            is_device = not answer.get("is_lost") and not error.startswith(_OF_PROCESS)
            self.tried[k] = TriedSize(number, False, None, error)
            if error.startswith(_NO_MEMORY) and is_device:
                return
            raise CaptureError(f"{number:,}: {error}")
        made = from_plain(answer["figures"])
        does = not answer["does_not_fit"] and made.peak_bytes <= self.limit
        self.tried[k] = TriedSize(number, does, made)
        if does:
            live, of = (  # results of an older store have no categories
                tuple((str(name), int(b)) for name, b in answer.get(key, ()))
                for key in ("live", "categories")
            )
            self.live[k] = live, of, str(answer["compiled_for"])
            is_here = not self.options.isolate and self.options.executor is None
            if is_here and not answer.get("from_store"):
                self.captures = {k: cap.at("optimized")}


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


def _number(s: Largest) -> str:
    if not s.number:
        return "unknown: it was cancelled" if s.cancelled else "none"
    return f"at least {s.number:,}" if s.cancelled else f"{s.number:,}"


def _text(s: Largest) -> str:
    head = f"{s.title}: {_number(s)}" if s.number or s.cancelled else f"{s.title}: none fits"
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
        of = ", ".join(f"{name} {size(b)}" for name, b in s.categories if b)
        held = ", ".join(f"{name} ({size(b)})" for name, b in s.live)
        out += ["", *([f"live at the limit: {of}"] if of else []), f"the largest of it: {held}"]
    return printed(out)


def _view(s: Largest) -> dict[str, Any]:
    known = [(r, r.figures.peak_bytes, r.seconds_per_item) for r in s.rows if r.figures is not None]
    sections: list[dict[str, Any]] = [{"type": "facts", "rows": [
        ["largest that fits", _number(s)],
        ["memory", size(s.limit_bytes)],
        ["peaks of", s.compiled_for or "no program"],
        *[[f"live: {name}", size(b)] for name, b in s.categories or s.live if b],
    ]}]  # fmt: skip
    for title, unit, at in (("Peak memory", "B", 1), ("Modelled time per item", "s", 2)):
        points = [
            {
                "id": row[0].number, "x": row[0].number, "y": row[at],
                "label": f"{row[0].number:,}", "front": row[0].fits,
            }
            for row in known if row[at] is not None
        ]  # fmt: skip
        if points:
            sections.append({
                "type": "scatter", "title": title, "note": "The line joins those that fit.",
                "x": {"name": "number", "unit": ""},
                "y": {"name": title.lower(), "unit": unit}, "points": points,
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
