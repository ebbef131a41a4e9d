"""Where the time of a compile went: HLO passes, code generation, and around the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..analysis.passes.times import PassRun, PassTimes, runs_of
from ..analysis.text.results import Row, Rows
from ..analysis.text.units import duration, printed
from ..hlo.snapshots import TimedPass
from ..hlo.target import SlowToCompile
from ..hlo.texts.places import whole_place

PASS, PIPELINE, CODE, AROUND = "HLO pass", "pipeline", "code generation", "around the compiler"
REST = "code generation and writing a dump"
_SHOWN = 15


@dataclass(frozen=True, slots=True, repr=False)
class CompileStep(Row):
    """Seconds that one part of the compiler took itself, without what ran inside of it.

    ``kind``: "HLO pass", "pipeline" (between its passes), "code generation", "around the compiler",
    or "code generation and writing a dump" where that is all one (libtpu); ``pipeline`` the HLO
    pipeline it ran in, "" outside of one; ``times`` how often.
    """

    kind: str
    name: str
    pipeline: str
    seconds: float
    times: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "pipeline": self.pipeline,
            "seconds": self.seconds,
            "times": self.times,
        }

    def __str__(self) -> str:
        inside = f" in {self.pipeline}" if self.pipeline else ""
        return f"{self.name}{inside}: {duration(self.seconds)} ({self.kind}, ×{self.times:,})"


@dataclass(frozen=True, eq=False, repr=False)
class CompileTime(Rows[CompileStep]):
    """One compile, measured; the rows, longest first, add up to ``total_seconds``.

    ``kernels``: code generation of single fusions on other threads, which ran during the rows and
    is not part of the total. ``slow``: what XLA itself reported as slow. ``runs``: every run of a
    pass, in the order they ended.
    """

    rows: tuple[CompileStep, ...]
    total_seconds: float
    kernels: tuple[CompileStep, ...] = field(default=(), repr=False)
    slow: tuple[SlowToCompile, ...] = field(default=(), repr=False)
    runs: tuple[PassRun, ...] = field(default=(), repr=False)

    COLUMNS = ("kind", "name", "pipeline", "seconds", "times")

    def seconds_of(self, kind: str) -> float:
        """Seconds of all rows of a kind, such as "HLO pass"."""
        return sum(row.seconds for row in self.rows if row.kind == kind)

    def of_passes(self) -> PassTimes:
        """The same as ``Passes`` has it."""
        took = sum(r.seconds for r in self.runs)
        between = self.seconds_of(PASS) + self.seconds_of(PIPELINE) - took
        rest = [("between passes", between)]
        rest += [(kind, self.seconds_of(kind)) for kind in (CODE, REST, AROUND)]
        known = tuple((what, seconds) for what, seconds in rest if seconds > 0)
        return PassTimes(self.runs, known, self.total_seconds)

    def _totals(self) -> dict[str, Any]:
        return {
            "total_seconds": self.total_seconds,
            "kernels": [k.to_dict() for k in self.kernels],
            "slow": [
                {
                    "what": s.what,
                    "instruction": s.instruction,
                    "seconds": s.seconds,
                    "line": f"{s.frame.file}:{s.frame.line}" if s.frame else None,
                }
                for s in self.slow
            ],
        }

    def __str__(self) -> str:
        kinds = {kind: self.seconds_of(kind) for kind in (PASS, PIPELINE, CODE, REST, AROUND)}
        parts = [f"{duration(s)} {kind}" for kind, s in kinds.items() if s]
        lines = [f"compiled in {duration(self.total_seconds)}, measured once: {', '.join(parts)}"]
        for row in self.rows[:_SHOWN]:
            share = row.seconds / self.total_seconds if self.total_seconds else 0.0
            inside = f"  ({row.pipeline})" if row.pipeline and row.kind == PASS else ""
            times = f" ×{row.times:,}" if row.times > 1 else ""
            lines.append(f"  {duration(row.seconds):>9}  {share:5.1%}  {row.name}{times}{inside}")
        rest = self.rows[_SHOWN:]
        if rest:
            left = sum(row.seconds for row in rest)
            lines.append(f"  {duration(left):>9}  {len(rest):,} others")
        for slow in self.slow:
            at = whole_place(f"{slow.frame.file}:{slow.frame.line}") if slow.frame else ""
            lines.append(
                f"XLA reports: {slow.what}, {duration(slow.seconds)}: {slow.instruction}"
                + (f" at {at}" if at else "")
            )
        if self.kernels:
            longest = self.kernels[0]
            count = len(self.kernels)
            fusions = f"{count:,} fusions" if count > 1 else "one fusion"
            lines.append(
                f"code of {fusions} was made on other threads meanwhile, the longest of"
                f" {longest.name}, {duration(longest.seconds)}"
            )
        return printed(lines)


def pass_runs(timed: Sequence[TimedPass]) -> tuple[PassRun, ...]:
    """The runs of passes by when they began and ended, as ``CompileTime`` has them."""
    return runs_of(timed)
