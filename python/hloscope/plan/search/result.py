"""``Search``: candidates of a sharding search, ranked, as text and as a page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.text.units import duration, printed, size
from ...api.capture import Capture
from ...api.files import written
from ...show.pages.front_end import opens
from ...show.pages.page import mimebundle, page
from ...show.pages.words import columns
from ..running.candidate_figures import COSTS, CandidateFigures
from ..running.front import front, scatter
from .space import Spec, canonical, quoted, spec_code

if TYPE_CHECKING:
    import pandas as pd

    from ...api.compared import Comparison

# Candidates that ``print`` shows, and that a page lists: more make it slow to open.
PRINTED = 12
LISTED = 2_000


@dataclass(frozen=True, slots=True)
class MeasuredSeconds:
    """Wall seconds of runs on attached devices; ``deviation`` divides by their number."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seconds)

    @property
    def deviation(self) -> float:
        return statistics.pstdev(self.seconds)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to shard. ``number`` is its place in the order of evaluation, not its rank.

    ``error`` says in one line why there are no figures; ``broken`` which constraints it does not
    meet. ``cost`` is infinite if it is unknown.
    """

    number: int
    mesh: Mapping[str, int]
    specs: Mapping[str, Spec]  # by group of arguments
    leaf_specs: Mapping[int, Spec]
    cost: float
    figures: CandidateFigures | None = None
    error: str = ""
    broken: tuple[str, ...] = ()
    compile_seconds: float | None = None
    from_store: bool = False
    measured: MeasuredSeconds | None = None

    @property
    def mesh_label(self) -> str:
        """ "data 2 × model 4"."""
        return " × ".join(f"{a} {n}" for a, n in self.mesh.items())

    @property
    def label(self) -> str:
        """The specs of what is sharded: "w1 P(None, "x"), w2 P("x")"."""
        parts = [
            f"{name} {spec_code(canonical(spec, self.mesh))}"
            for name, spec in self.specs.items()
            if canonical(spec, self.mesh)
        ]
        return ", ".join(parts) or "all replicated"


@dataclass(frozen=True, eq=False)
class Search:
    """The result of ``hs.search_shardings``. Iterate it for candidates, best first.

    ``space`` is how many candidates there are; ``left_out`` how many were not evaluated. ``notes``
    say what else is missing. Prints a table; the last line of a cell is a view.
    """

    candidates: tuple[Candidate, ...]
    space: int
    cost: str
    method: str  # "all" or "search"
    hardware: str
    notes: tuple[str, ...]
    cancelled: bool
    seconds: float  # wall time
    compiled: int  # candidates compiled by this run; others came from the store
    function: str
    # compiles a candidate again
    _open: Callable[[Candidate], Capture] = field(repr=False)
    _opened: dict[int, Capture] = field(default_factory=dict, repr=False)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, rank: int) -> Candidate:
        return self.candidates[rank]

    @property
    def best(self) -> Candidate:
        """The cheapest that keeps all constraints. Raises ``ValueError`` if none does."""
        first = self.candidates[0] if self.candidates else None
        if first is None or first.error or first.broken or math.isinf(first.cost):
            why = "" if first is None else f": {first.error or '; '.join(first.broken)}"
            raise ValueError(f"no candidate compiled and met the constraints{why}")
        return first

    @property
    def left_out(self) -> int:
        """How many candidates of the space were not evaluated."""
        return self.space - len(self.candidates)

    @cached_property
    def failed(self) -> tuple[Candidate, ...]:
        """Candidates without figures; each says why in ``error``."""
        return tuple(c for c in self.candidates if c.error)

    @cached_property
    def pareto(self) -> tuple[Candidate, ...]:
        """Candidates that no other beats in both modelled time and peak memory, quickest first."""
        kept = sorted((c for c in self.candidates if not c.broken), key=lambda c: c.number)
        return front(kept, lambda c: c.figures)

    def find(self, candidate: Candidate | int) -> Candidate:
        """A candidate by itself or by its ``number``. Raises ``ValueError``."""
        number = candidate if isinstance(candidate, int) else candidate.number
        for c in self.candidates:
            if c.number == number:
                return c
        raise ValueError(f"there is no candidate {number}; there are {len(self.candidates)}")

    def capture(self, candidate: Candidate | int) -> Capture:
        """The candidate as a capture, compiled again the first time.

        Raises ``ValueError`` for one that does not compile.
        """
        c = self.find(candidate)
        if c.error:
            raise ValueError(f"candidate {c.number} has no program: {c.error}")
        if c.number not in self._opened:
            self._opened[c.number] = self._open(c)
        return self._opened[c.number]

    def diff(self, a: Candidate | int, b: Candidate | int) -> Comparison:
        """The differences between the programs of two candidates."""
        from ...api.compared import diff

        return diff(self.capture(a), self.capture(b))

    def code(self, candidate: Candidate | int | None = None) -> str:
        """The candidate's specs as Python to paste; the best's by default."""
        c = self.best if candidate is None else self.find(candidate)
        axes = ", ".join(map(str, c.mesh.values()))
        names = ", ".join(map(quoted, c.mesh)) + ("," if len(c.mesh) == 1 else "")
        lines = [
            "import jax",
            "from jax.sharding import NamedSharding, PartitionSpec as P",
            "",
            # by default, make_mesh's axes are explicit and need shardings at every step
            f"mesh = jax.make_mesh(({axes}{',' if len(c.mesh) == 1 else ''}), ({names}),",
            f"                     axis_types=(jax.sharding.AxisType.Auto,) * {len(c.mesh)})",
            "specs = {",
        ]
        for name, spec in c.specs.items():
            lines.append(f"    {quoted(name)}: {spec_code(canonical(spec, c.mesh))},")
        lines += [
            "}",
            "# of each array: NamedSharding(mesh, specs[…]); * stands for any part of its path",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, candidates best first."""
        return {
            "kind": "search",
            "function": self.function,
            "space": self.space,
            "looked_at": len(self.candidates),
            "left_out": self.left_out,
            "compiled": self.compiled,
            "cost": self.cost,
            "method": self.method,
            "hardware": self.hardware,
            "cancelled": self.cancelled,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "candidates": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One plain row per candidate, best first; None is unknown."""
        best = {c.number for c in self.pareto}
        out = []
        for rank, c in enumerate(self.candidates):
            f = c.figures
            out.append(
                {
                    "rank": rank,
                    "number": c.number,
                    "mesh": dict(c.mesh),
                    "specs": {n: spec_code(s) for n, s in c.specs.items()},
                    "cost": None if math.isinf(c.cost) else c.cost,
                    "seconds": f and f.seconds,
                    "wire_bytes": f and f.wire_bytes,
                    "peak_bytes": f and f.peak_bytes,
                    "argument_bytes": f and f.argument_bytes,
                    "temp_bytes": f and f.temp_bytes,
                    "flops": f and f.flops,
                    "matmul_flops": f and f.matmul_flops,
                    "log_cost": None if f is None or math.isinf(f.log_cost) else f.log_cost,
                    "collectives": [list(x) for x in f.collectives] if f else None,
                    "useless_collectives": list(f.useless) if f else None,
                    "notes": list(f.notes) if f else [],
                    "pareto": c.number in best,
                    "broken": list(c.broken),
                    "error": c.error,
                    "compile_seconds": c.compile_seconds,
                    "from_store": c.from_store,
                    "measured_seconds": list(c.measured.seconds) if c.measured else None,
                    "measured_median": c.measured.median if c.measured else None,
                    "measured_mean": c.measured.mean if c.measured else None,
                    "measured_deviation": c.measured.deviation if c.measured else None,
                }
            )
        return out

    def to_pandas(self) -> pd.DataFrame:
        """One row per candidate, best first. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def html(self) -> str:
        """One offline page, as text."""
        return self._page({})

    def _page(self, links: dict[int, str]) -> str:
        return page(self.title, search_data(self, links), repr(self))

    def to_html(self, path: str | Path, *, pages: int = 0) -> Path:
        """Writes ``html`` to ``path`` and returns the path.

        ``pages``: that many of the best get pages of their own beside it, which the table links
        to.
        """
        links: dict[int, str] = {}
        if pages:
            at = Path(path)
            folder = at.with_name(at.stem + "-candidates")
            folder.mkdir(exist_ok=True)
            for c in [c for c in self.candidates if not c.error][:pages]:
                name = f"candidate-{c.number}.html"
                self.capture(c).to_html(folder / name)
                links[c.number] = f"{folder.name}/{name}"
        return written(path, self._page(links))

    @property
    def title(self) -> str:
        return f"Shardings of {self.function}"

    def __repr__(self) -> str:
        return text(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return mimebundle(self.title, search_data(self, {}), repr(self), opens(self, "candidate"))


def text(s: Search) -> str:
    """A search as text, for ``print``."""
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
    best = {c.number for c in s.pareto}
    rows = [heads]
    for rank, c in enumerate(s.candidates[:PRINTED]):
        cells = [f"{rank}{' *' if c.number in best else ''}", *_figures(c)]
        if measured:
            cells.insert(2, duration(c.measured.median) if c.measured else "")
        rows.append([*cells, c.mesh_label, c.label])
    out += ["", *columns(rows, "nnnn"[: 4 + measured])]
    if looked > PRINTED:
        out.append(f"… {looked - PRINTED} more")
    if best:
        out.append("* no other is both faster and smaller")
    return printed(out)


def _figures(c: Candidate) -> list[str]:
    f = c.figures
    if f is None:
        return ["", "", "", c.error[:60]]
    words = collectives_text(c)
    if c.broken:
        words = f"{'; '.join(c.broken)}; {words}"
    return [duration(f.seconds), size(f.peak_bytes), size(f.wire_bytes), words]


def collectives_text(c: Candidate) -> str:
    """ "2 all-reduce, 1 all-gather (1 of a constant)"."""
    if c.figures is None:
        return ""
    kinds: dict[str, int] = {}
    for kind, _, count, _ in c.figures.collectives:
        kinds[kind] = kinds.get(kind, 0) + count
    words = ", ".join(f"{n} {k}" for k, n in kinds.items()) or "none"
    useless = len(c.figures.useless)
    return f"{words} ({useless} of a constant)" if useless else words


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
    best = {c.number for c in s.pareto}
    points = [
        {
            "id": c.number,
            "x": c.figures.seconds,
            "y": c.figures.peak_bytes,
            "label": f"{rank}: {c.mesh_label}, {c.label}",
            "front": c.number in best,
        }
        for rank, c in enumerate(s.candidates[:LISTED])
        if c.figures is not None and c.figures.seconds is not None
    ]
    sections += scatter(points)
    sections.append(_table(s, links, best))
    if s.notes:
        sections.append({"type": "text", "title": "Notes", "text": "\n".join(s.notes)})
    if s.failed:
        words = "\n".join(f"{c.number}: {c.mesh_label}, {c.label}: {c.error}" for c in s.failed)
        sections.append({"type": "text", "title": "Without figures", "text": words[:100_000]})
    return {"title": s.title, "sections": sections}


def _table(s: Search, links: Mapping[int, str], best: set[int]) -> dict[str, Any]:
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
        "marked": [n for n, c in enumerate(shown) if c.number in best],
        "code": [s.code(c) for c in shown],
    }
    if links:
        out["links"] = [links.get(c.number) for c in shown]
    return out
