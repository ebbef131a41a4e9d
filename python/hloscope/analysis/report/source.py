"""FLOPs, modelled seconds, wire bytes and live bytes of every source line.

Each instruction's cost goes to every line of its Python stack, each once, so a line shows
what everything below it costs (``total``) and what it costs itself (``own``: the innermost
line outside installed packages):

    loss = model(x)                 total 12 ms   own  0
      h = jnp.tanh(x @ w1)          total 12 ms   own 12 ms
        …/jax/_src/numpy/…          library: folded

FLOPs go to the line of the instruction inside a fusion that does them; time and bytes are
the fusion's, and go to its own line, or to its heaviest part's where it has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...hlo import FrameTable, Module, Target
from ..base.frames import is_library
from ..cost.cost import Cost, estimated
from ..cost.cost_lines import cost_lines
from ..cost.cost_pause import uncollected
from ..memory.memory import Memory, analysed
from ..text.units import duration, grid, quantity, size

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
FIGURES = ("flops", "bytes_accessed", "seconds", "wire_bytes", "live_bytes")


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over instructions; ``seconds`` is 0 where no chip is known."""

    flops: float = 0.0
    bytes_accessed: float = 0.0
    seconds: float = 0.0  # modelled
    wire_bytes: float = 0.0
    live_bytes: float = 0.0  # at the simulated peak


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line. ``instructions`` are indices of units and buffers whose stack has it."""

    file: str
    line: int
    function: str
    text: str | None  # None when the file was not readable at capture
    is_library: bool
    total: Figures
    own: Figures
    instructions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Source:
    """What ``cap.source`` returns. Iterate it for the person's own lines, most expensive first."""

    lines: tuple[SourceLine, ...]  # libraries' too, in order of file and line
    unattributed: Figures  # of instructions without a line
    has_seconds: bool
    sources: dict[str, str]

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

    def __iter__(self) -> Iterator[SourceLine]:
        return iter(self.own_lines)

    def __len__(self) -> int:
        return len(self.own_lines)

    @property
    def files(self) -> tuple[str, ...]:
        """Files with at least one line, the person's own first."""
        seen = dict.fromkeys(x.file for x in self.lines if not x.is_library)
        return tuple(seen | dict.fromkeys(x.file for x in self.lines))

    def to_pandas(self) -> pd.DataFrame:
        """One row a line, libraries included. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"file": x.file, "line": x.line, "function": x.function, "library": x.is_library}
                | {name: getattr(x.total, name) for name in FIGURES}
                | {f"own_{name}": getattr(x.own, name) for name in FIGURES}
                | {"text": x.text}
                for x in self.lines
            ]
        )

    def to_dict(self) -> list[dict[str, Any]]:
        """One plain dict a line of the person's own."""
        return [
            {"file": x.file, "line": x.line, "function": x.function}
            | {name: getattr(x.total, name) for name in FIGURES}
            for x in self.own_lines
        ]

    def __repr__(self) -> str:
        rows = [
            (
                f"{x.file.rsplit('/', 1)[-1]}:{x.line}",
                quantity(x.total.flops, "FLOP"),
                duration(x.total.seconds) if self.has_seconds else "",
                size(x.total.wire_bytes),
                size(x.total.live_bytes),
                (x.text or "").strip()[:60],
            )
            for x in self.own_lines[:20]
        ]
        lost = self.unattributed
        rows.append(
            (
                "no line known",
                quantity(lost.flops, "FLOP"),
                duration(lost.seconds) if self.has_seconds else "",
                size(lost.wire_bytes),
                size(lost.live_bytes),
                "what no line accounts for",
            )
        )
        head = ("line", "FLOPs", "modelled", "wire", "live at peak", "source")
        return grid(head, rows)


@uncollected
def attribute(module: Module, cost: Cost, memory: Memory) -> Source:
    """Sums the figures of ``cost`` and ``memory`` over source lines."""
    frames, _ = module.source_frames()
    frame, flops = cost_lines(module, cost)
    columns = _columns(module, cost, flops)
    stacks = _Stacks(frames)
    count = len(frames.frames) + 1
    live = memory.liveness
    held = live.live_at(memory.peak_point, memory.main_spaces)
    bytes_held = np.bincount(memory.frames[held], live.size[held], count)
    by_frame = np.vstack([np.bincount(frame, c, count) for c in columns] + [bytes_held])
    touched = np.flatnonzero(by_frame.any(axis=0))
    zero = np.zeros(len(FIGURES))
    total: dict[tuple[str, int], Floats] = {}
    own: dict[tuple[str, int], Floats] = {}
    names: dict[tuple[str, int], str] = {}
    members: dict[tuple[str, int], list[int]] = {}
    rows_of: dict[int, list[int]] = {}
    some = np.flatnonzero(np.vstack(columns).any(axis=0))
    for n, f in zip(some.tolist(), frame[some].tolist(), strict=True):
        rows_of.setdefault(f, []).append(n)
    makers = live.defined_by[held]
    for n, f in zip(makers.tolist(), memory.frames[held].tolist(), strict=True):
        rows_of.setdefault(f, []).append(n)
    unattributed = np.zeros(len(FIGURES))
    for f in touched.tolist():
        values = by_frame[:, f]
        places = stacks.places(f)
        if not places:
            unattributed += values
            continue
        mine = next((p for p in places if not is_library(p[0])), next(iter(places)))
        own[mine] = own.get(mine, zero) + values
        for place, function in places.items():
            total[place] = total.get(place, zero) + values
            names.setdefault(place, function)
            members.setdefault(place, []).extend(rows_of.get(f, ()))
    sources = dict(cost.target.sources)
    texts = {file: text.splitlines() for file, text in sources.items()}
    lines = []
    for file, line in sorted(total):
        known = texts.get(file, [])
        place = (file, line)
        lines.append(
            SourceLine(
                file,
                line,
                names[place],
                known[line - 1] if 0 < line <= len(known) else None,
                is_library(file),
                Figures(*map(float, total[place])),
                Figures(*map(float, own.get(place, zero))),
                tuple(sorted(set(members[place]))),
            )
        )
    return Source(
        tuple(lines), Figures(*map(float, unattributed)), cost.roofline is not None, sources
    )


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
    """FIGURES but live bytes by instruction, over all executions."""
    n = len(module.instructions)
    runs = np.where(cost.is_unit, cost.runs, 0.0)
    seconds = np.zeros(n)
    r = cost.roofline
    if r is not None:
        seconds = np.nan_to_num(r.step_seconds)
    wire = np.zeros(n)
    for t in cost.transfers:
        wire[t.start] += t.wire_bytes * cost.runs[t.start]
    return [flops, np.nan_to_num(cost.bytes) * runs, seconds, wire]


def source(module: Module, target: Target) -> Source:
    """Lines of the module, with time on the target's own chip."""
    return attribute(module, estimated(module, target), analysed(module, target))
