"""``Variants``: programs beside each other, as text and as a page: step against peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.text.units import duration, printed, quantity, size
from ...api.capture import Capture
from ...api.files import written
from ...show.pages.front_end import opens
from ...show.pages.page import mimebundle, page
from ...show.pages.words import columns
from ..running.candidate_figures import CandidateFigures
from ..running.front import front, scatter

if TYPE_CHECKING:
    import pandas as pd

    from ...api.compared import Comparison


@dataclass(frozen=True, slots=True)
class Variant:
    """One program of a comparison; ``error`` says in one line why there are no figures.

    ``code`` is what to put into the source for it, "" where it was given as it is.
    """

    name: str
    figures: CandidateFigures | None = None
    error: str = ""
    code: str = ""
    compile_seconds: float | None = None
    measured_seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Variants:
    """What ``hs.compare``, ``cap.remat_options`` and ``cap.option_sweep`` return.

    Iterate it for ``Variant``, in the order given. Prints a table; the last line of a cell is a
    view. ``cancelled``: those that were not compiled are missing.
    """

    rows: tuple[Variant, ...]
    title: str
    cancelled: bool = False
    _open: Callable[[str], Capture] | None = field(default=None, repr=False)
    _opened: dict[str, Capture] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without the programs, which stay in their process."""
        return {**self.__dict__, "_open": None, "_opened": {}}

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: int | str) -> Variant:
        """A variant by its place or its name. Raises ``LookupError``."""
        if isinstance(name, int):
            return self.rows[name]
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(r.name for r in self.rows)
        raise LookupError(f"there is no variant {name!r}; there are {names}")

    @property
    def pareto(self) -> tuple[Variant, ...]:
        """Variants that no other beats in both modelled time and peak memory, quickest first."""
        return front(self.rows, lambda v: v.figures)

    def capture(self, name: int | str) -> Capture:
        """A variant as a capture. Raises ``ValueError`` for one without a program."""
        row = self[name]
        if row.error:
            raise ValueError(f"{row.name} has no program: {row.error}")
        if self._open is None:
            raise ValueError("the programs stayed in the process that compared them")
        if row.name not in self._opened:
            self._opened[row.name] = self._open(row.name)
        return self._opened[row.name]

    def diff(self, a: int | str, b: int | str) -> Comparison:
        """The differences between the programs of two variants."""
        from ...api.compared import diff

        return diff(self.capture(a), self.capture(b))

    def code(self, name: int | str) -> str:
        """What to put into the source for a variant; "" for one that was given as it is."""
        return self[name].code

    def to_dict(self) -> dict[str, Any]:
        """Plain data; None is unknown."""
        best = set(self.pareto)
        out = []
        for v in self.rows:
            f = v.figures
            out.append(
                {
                    "name": v.name,
                    "seconds": f and f.seconds,
                    "measured_seconds": v.measured_seconds,
                    "peak_bytes": f and f.peak_bytes,
                    "wire_bytes": f and f.wire_bytes,
                    "flops": f and f.flops,
                    "bytes_accessed": f and f.bytes_accessed,
                    "instructions": f and f.instructions,
                    "compile_seconds": v.compile_seconds,
                    "pareto": v in best,
                    "code": v.code,
                    "error": v.error or None,
                }
            )
        return {"kind": "variants", "title": self.title, "cancelled": self.cancelled, "rows": out}

    def to_pandas(self) -> pd.DataFrame:
        """One row per variant. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["rows"])

    def html(self) -> str:
        """One offline page, as text."""
        return page(self.title, view(self), repr(self))

    def to_html(self, path: str | Path) -> Path:
        """Writes ``html`` to ``path`` and returns the path."""
        return written(path, self.html())

    def __repr__(self) -> str:
        return text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return mimebundle(self.title, view(self), repr(self), opens(self, "program"))


def _figures(v: Variant) -> list[Any]:
    f = v.figures
    if f is None:
        return [None] * 6
    return [f.seconds, f.peak_bytes, f.wire_bytes, f.flops, f.bytes_accessed, f.instructions]


def text(s: Variants) -> str:
    """A comparison as text, for ``print``."""
    best = set(s.pareto)
    measured = any(v.measured_seconds is not None for v in s.rows)
    heads = ["", "step", "peak memory", "wire bytes", "FLOPs", "bytes", "instructions", "compiled"]
    if measured:
        heads.append("measured")
    rows = [heads]
    for v in s.rows:
        name = f"{v.name}{' *' if v in best else ''}"
        if v.figures is None:
            rows.append([name, *[""] * (len(heads) - 1)])
            continue
        seconds, peak, wire, flops, moved, count = _figures(v)
        took = "" if v.compile_seconds is None else duration(v.compile_seconds)
        rows.append(
            [
                name, duration(seconds), size(peak), size(wire), quantity(flops, "FLOP"),
                size(moved), "" if count is None else f"{count:,}", took,
            ]
            + ([duration(v.measured_seconds) if v.measured_seconds else ""] if measured else [])
        )  # fmt: skip
    chips = {v.figures.hardware for v in s.rows if v.figures is not None and v.figures.hardware}
    on = f", step modelled on {', '.join(sorted(chips))}" if chips else ""
    many = f"{len(s.rows)} programs"
    out = [f"{many if s.title == many else f'{s.title}: {many}'}{on}"]
    if s.cancelled:
        out.append("cancelled before the end")
    out += ["", *columns(rows, "l" + "n" * (len(heads) - 1))]
    out += [f"{v.name}: {v.error}" for v in s.rows if v.error]
    if best:
        out.append("* no other is both faster and smaller")
    return printed(out)


def view(s: Variants) -> dict[str, Any]:
    """The page: the front of time against memory, the table, what has no figures."""
    best = set(s.pareto)
    points = [
        {
            "id": n,
            "x": v.figures.seconds,
            "y": v.figures.peak_bytes,
            "label": v.name,
            "front": v in best,
        }
        for n, v in enumerate(s.rows)
        if v.figures is not None and v.figures.seconds is not None
    ]
    measured = any(v.measured_seconds is not None for v in s.rows)
    failed = any(v.error for v in s.rows)
    heads: list[dict[str, str]] = [{"name": "program"}, {"name": "step, modelled", "unit": "s"}]
    heads += [{"name": "measured", "unit": "s"}] * measured
    heads += [
        {"name": "peak memory", "unit": "B"}, {"name": "wire bytes", "unit": "B"},
        {"name": "FLOPs", "unit": "FLOP"}, {"name": "bytes accessed", "unit": "B"},
        {"name": "instructions"}, {"name": "compiled in", "unit": "s"},
    ]  # fmt: skip
    heads += [{"name": "no figures"}] * failed
    note = "Marked: no other is both faster and smaller."
    if any(v.code for v in s.rows):
        note += " A click on a row shows the code to paste."
    table = {
        "type": "table",
        "title": "Programs",
        "note": note,
        "first_name": next((f"“{v.name}”" for v in s.rows if not v.error), ""),
        "columns": heads,
        "rows": [
            [v.name, f[0], *[v.measured_seconds] * measured, *f[1:], v.compile_seconds]
            + [v.error] * failed
            for v in s.rows
            for f in (_figures(v),)
        ],
        "ids": [None if v.error else n for n, v in enumerate(s.rows)],
        "marked": [n for n, v in enumerate(s.rows) if v in best],
        "code": [v.code for v in s.rows],
    }
    return {"title": s.title, "sections": [*scatter(points), table]}
