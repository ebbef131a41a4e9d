"""FLOPs, modelled seconds, wire bytes and live bytes for each source line.

The cost of each instruction goes to every line of its Python stack, each once, so a line shows
the cost of everything that it calls (``total``) and its own cost (``own``: as the innermost line
outside installed packages):

    loss = model(x)                 total 12 ms   own  0
      h = jnp.tanh(x @ w1)          total 12 ms   own 12 ms
        …/jax/_src/numpy/…          library: folded

FLOPs go to the line of the instruction inside a fusion that does them; time and bytes are those
of the fusion, and go to its own line. An instruction without a line counts for the line of what
it serves (``base.lines``); ``inferred`` is that part of a line. What belongs to no line is
``unattributed``: that and the ``own`` of all lines sum to the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...hlo import FrameTable, Module, Target
from ...hlo.texts.places import short_place
from ..base.lines.frames import is_library
from ..base.lines.lines import lines
from ..base.pause import uncollected
from ..cost.cost import Cost, estimated
from ..cost.lines import cost_lines
from ..memory.memory import Memory, analysed
from ..text.results import Row, Rows, plain
from ..text.units import duration, grid, quantity, size

if TYPE_CHECKING:
    pass

Floats = npt.NDArray[np.float64]
FIGURES = ("flops", "bytes_accessed", "seconds", "wire_bytes", "live_bytes")
_CALLED = {
    "flops": "FLOPs", "bytes_accessed": "bytes accessed", "seconds": "modelled time",
    "wire_bytes": "wire bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Figures(Row):
    """Sums over instructions; ``seconds`` is 0 if no chip is known."""

    flops: float = 0.0
    bytes_accessed: float = 0.0
    seconds: float = 0.0  # modelled
    wire_bytes: float = 0.0
    live_bytes: float = 0.0  # at the simulated peak


@dataclass(frozen=True, slots=True, repr=False)
class SourceLine(Row):
    """One line. ``instructions``: indices of units and makers of buffers on it."""

    file: str
    line: int
    function: str
    text: str | None  # None if the file was not readable at capture
    is_library: bool
    total: Figures
    own: Figures
    inferred: Figures  # the part of ``own`` from instructions without a line of their own
    instructions: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Its figures as plain data."""
        return (
            {"file": self.file, "line": self.line, "function": self.function}
            | {"library": self.is_library}
            | {name: getattr(self.total, name) for name in FIGURES}
            | {f"own_{name}": getattr(self.own, name) for name in FIGURES}
            | {f"inferred_{name}": getattr(self.inferred, name) for name in FIGURES}
            | {"text": self.text}
        )


@dataclass(frozen=True, eq=False, repr=False)
class Source(Rows[SourceLine]):
    """What ``cap.source`` returns. Iterate it for the user's own lines, most expensive first."""

    lines: tuple[SourceLine, ...]  # with those of libraries, in order of file and line
    unattributed: Figures  # of instructions without a line
    has_seconds: bool
    sources: dict[str, str]
    # Figure → number of operations without a known value: in no sum, but the bounds of times are.
    unknown: dict[str, int]

    @cached_property
    def own_lines(self) -> tuple[SourceLine, ...]:
        """Lines outside installed packages, most expensive first."""
        mine = [x for x in self.lines if not x.is_library]
        return tuple(sorted(mine, key=self._key))

    def _key(self, x: SourceLine) -> tuple[float, float, str, int]:
        return (
            -x.own.seconds if self.has_seconds else -x.own.flops,
            -x.total.flops,
            x.file,
            x.line,
        )

    @property
    def inferred(self) -> Figures:
        """The inferred part of all ``own``."""
        return Figures(*(sum(getattr(x.inferred, f) for x in self.lines) for f in FIGURES))

    @property
    def files(self) -> tuple[str, ...]:
        """Files with at least one line, the user's own first."""
        seen = dict.fromkeys(x.file for x in self.lines if not x.is_library)
        return tuple(seen | dict.fromkeys(x.file for x in self.lines))

    COLUMNS = (
        "file", "line", "function", "library", *FIGURES, *(f"own_{name}" for name in FIGURES),
        *(f"inferred_{name}" for name in FIGURES), "text",
    )  # fmt: skip

    def _all(self) -> tuple[SourceLine, ...]:
        return self.own_lines

    def _totals(self) -> dict[str, Any]:
        """Beside the lines: figures that no line accounts for, inferred and unknown ones."""
        return {
            "unattributed": plain(self.unattributed),
            "inferred": plain(self.inferred),
            "unknown": dict(self.unknown),
        }

    def __str__(self) -> str:
        rows = [
            (
                short_place(x.file, x.line),
                quantity(x.total.flops, "FLOP"),
                duration(x.total.seconds) if self.has_seconds else "",
                size(x.total.wire_bytes),
                size(x.total.live_bytes),
                self._share(x),
                (x.text or "").strip()[:60],
            )
            for x in self.own_lines[:20]
        ]
        more = len(self.own_lines) - len(rows)
        if more > 0:
            lines = f"and {more:,} more line{'s' * (more > 1)}"
            rows.append((lines, "", "", "", "", "", "all of them: .lines"))
        lost = self.unattributed
        rows.append(
            (
                "no line known",
                quantity(lost.flops, "FLOP"),
                duration(lost.seconds) if self.has_seconds else "",
                size(lost.wire_bytes),
                size(lost.live_bytes),
                "",
                "what no line accounts for",
            )
        )
        head = ("line", "FLOPs", "modelled", "wire", "live at peak", "inferred", "source")
        if not any(r[-2] for r in rows):
            made = grid((*head[:-2], head[-1]), [(*r[:-2], r[-1]) for r in rows])
        else:
            made = grid(head, rows)
        of = {k: f"{n:,} operation{'s' * (n > 1)}" for k, n in self.unknown.items()}
        left_out = [f"{_CALLED[k]} of {words}" for k, words in of.items() if k != "seconds"]
        said = [f"left out, being unknown: {', '.join(left_out)}"] if left_out else []
        if "seconds" in of:
            unknown = of["seconds"]
            said.append(f"modelled time of {unknown} is unknown: at least what its bytes take")
        return "\n".join([*made, *said])

    def _share(self, x: SourceLine) -> str:
        """The inferred share of a line: "98 %"; "" for nothing."""
        for name in ("seconds", "flops", "bytes_accessed", "live_bytes"):
            own, inferred = getattr(x.own, name), getattr(x.inferred, name)
            if own > 0 and (name != "seconds" or self.has_seconds):
                return f"{100 * inferred / own:.0f} %" if inferred >= 0.005 * own else ""
        return ""


@uncollected()
def attribute(module: Module, cost: Cost, memory: Memory) -> Source:
    """Sums the figures of ``cost`` and ``memory`` over source lines."""
    frames, _ = module.source_frames()
    frame, flops = cost_lines(module, cost)
    known = lines(module)
    guessed = known.inferred & (frame == known.frame)
    columns = _columns(module, cost, flops)
    stacks = _Stacks(frames)
    count = len(frames.frames) + 1
    live = memory.liveness
    held = live.live_at(memory.peak_point, memory.main_spaces)
    makers = live.defined_by[held]

    def by_frame(use: npt.NDArray[np.bool_]) -> Floats:
        some, sizes = use[makers], live.size[held]
        bytes_held = np.bincount(memory.frames[held][some], sizes[some], count)
        summed = [np.bincount(frame[use], c[use], count) for c in columns]
        return np.vstack([*summed, bytes_held])

    by_guess = by_frame(guessed)
    by_all = by_guess + by_frame(~guessed)
    sums = _Sums()
    rows_of: dict[int, list[int]] = {}
    some = np.flatnonzero(np.vstack(columns).any(axis=0))
    for n, f in zip(some.tolist(), frame[some].tolist(), strict=True):
        rows_of.setdefault(f, []).append(n)
    for n, f in zip(makers.tolist(), memory.frames[held].tolist(), strict=True):
        rows_of.setdefault(f, []).append(n)
    for f in np.flatnonzero(by_all.any(axis=0)).tolist():
        sums.add(stacks.places(f), by_all[:, f], by_guess[:, f], rows_of.get(f, ()))
    sources = dict(cost.target.sources)
    found = sums.lines({file: text.splitlines() for file, text in sources.items()})
    unknown = _unknown(cost)
    return Source(found, _figures(sums.unattributed), cost.roofline is not None, sources, unknown)


def _unknown(cost: Cost) -> dict[str, int]:
    """Figure → number of operations that run without a known value; left out if 0."""
    ran = cost.is_unit & (cost.runs > 0)
    columns = {"flops": cost.flops, "bytes_accessed": cost.bytes, "wire_bytes": cost.wire}
    if cost.roofline is not None:
        columns["seconds"] = cost.roofline.seconds
    counts = {name: int(np.isnan(columns[name][ran]).sum()) for name in FIGURES if name in columns}
    return {name: n for name, n in counts.items() if n}


class _Sums:
    """Figures by (file, line) while they are summed."""

    def __init__(self) -> None:
        self.unattributed = np.zeros(len(FIGURES))
        self._zero = np.zeros(len(FIGURES))
        self._total: dict[tuple[str, int], Floats] = {}
        self._own: dict[tuple[str, int], Floats] = {}
        self._inferred: dict[tuple[str, int], Floats] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._members: dict[tuple[str, int], list[int]] = {}

    def add(
        self,
        places: dict[tuple[str, int], str],
        values: Floats,
        inferred: Floats,
        members: Iterable[int],
    ) -> None:
        """Adds one stack's figures to each of its lines."""
        if not places:
            self.unattributed += values
            return
        mine = next((p for p in places if not is_library(p[0])), next(iter(places)))
        self._own[mine] = self._own.get(mine, self._zero) + values
        self._inferred[mine] = self._inferred.get(mine, self._zero) + inferred
        for place, function in places.items():
            self._total[place] = self._total.get(place, self._zero) + values
            self._names.setdefault(place, function)
            self._members.setdefault(place, []).extend(members)

    def lines(self, texts: dict[str, list[str]]) -> tuple[SourceLine, ...]:
        """In order of file and line."""
        out = []
        for place in sorted(self._total):
            file, line = place
            known = texts.get(file, [])
            out.append(
                SourceLine(
                    file,
                    line,
                    self._names[place],
                    known[line - 1] if 0 < line <= len(known) else None,
                    is_library(file),
                    _figures(self._total[place]),
                    _figures(self._own.get(place, self._zero)),
                    _figures(self._inferred.get(place, self._zero)),
                    tuple(sorted(set(self._members[place]))),
                )
            )
        return tuple(out)


def _figures(values: Floats) -> Figures:
    return Figures(*map(float, values))


class _Stacks:
    """Stacks of frame ids as {(file, line): function}, innermost first; 0 and bad ids are empty."""

    def __init__(self, frames: FrameTable) -> None:
        self.frames = frames

    def places(self, frame: int) -> dict[tuple[str, int], str]:
        out: dict[tuple[str, int], str] = {}
        for f in self.frames.stack(frame):
            out.setdefault((f.file, f.line), f.function or "")
        return out


def _columns(module: Module, cost: Cost, flops: Floats) -> list[Floats]:
    """FIGURES except live bytes, by instruction, over all executions."""
    n = len(module.instructions)
    runs = np.where(cost.is_unit, cost.runs, 0.0)
    seconds = np.zeros(n)
    r = cost.roofline
    if r is not None:
        seconds = np.nan_to_num(r.step_seconds)
    return [flops, np.nan_to_num(cost.bytes) * runs, seconds, np.nan_to_num(cost.wire)]


def source(module: Module, target: Target) -> Source:
    """Lines of the module, with time on the target's own chip."""
    return attribute(module, estimated(module, target), analysed(module, target))
