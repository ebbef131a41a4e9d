"""What each compiler pass did to a module: counts and their changes, and which instructions.

Counting is a scan of text, without parsing modules: 25 MB in half a second. FLOPs, bytes and
peak need a parsed module and are computed only on request (``Passes.cost``).

    number  pipeline        pass            instructions  fusions  copies  collectives
         4  simplification  algsimp          −120 → 1,041
         9  Main_fusion     tpu_fusion       +310 → 1,351      +96      −3
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from ...hlo.collective_kinds import KINDS
from ...hlo.snapshots import Snapshot
from ..text.results import Rows
from .follow import follow
from .row import COUNTED, Pass
from .steps import Steps
from .text import PassTable, table
from .times import Dumped, PassTimes, SlowPass, plain_name, row_times

if TYPE_CHECKING:
    import pandas

    from ...hlo import Module, Target

# name and opcode of an instruction line; in a shape, only the tiles of layouts are words before an
# opening bracket, and they come after a colon
_LINE = re.compile(r"^ +(?:ROOT )?%?([^\s=(){}]+) = [^\n]*? ([a-z][a-z0-9\-]*)\(", re.M)
_METADATA = re.compile(r', metadata=\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*\}')
_TABLES = re.compile(r"\n\n(?:FileNames.*?\n\n\n?)(?=%|ENTRY)", re.S)


@dataclass(frozen=True, eq=False, repr=False)
class Passes(Rows[Pass]):
    """All passes that changed the module, in order; the first row is the module before them.

    ``note`` says what is missing, such as passes that needed too much memory to keep. ``times``:
    the compile that was measured, None if none was; ``others`` are the seconds of passes that
    changed nothing, at the row of their pipeline that is nearest, ``elsewhere_seconds`` those of
    pipelines that have no row.
    """

    rows: tuple[Pass, ...]
    snapshots: tuple[Snapshot, ...] = field(repr=False)
    note: str = ""
    times: PassTimes | None = field(default=None, repr=False)
    others: tuple[float, ...] = field(default=(), repr=False)
    elsewhere_seconds: float = field(default=0.0, repr=False)
    _costs: dict[Any, dict[str, Any]] = field(default_factory=dict, repr=False)
    _dumps: tuple[Dumped, ...] = field(default=(), repr=False)
    _row_of_run: dict[int, int] = field(default_factory=dict, repr=False)

    COLUMNS = (
        "pipeline", "pass", "seconds", *COUNTED, *(f"+{what}" for what in COUNTED)
    )  # fmt: skip

    @overload
    def __getitem__(self, at: int | str) -> Pass: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Pass, ...]: ...
    def __getitem__(self, at: int | str | slice) -> Pass | tuple[Pass, ...]:
        """A pass by position, or the first one with a name. Raises ``LookupError``."""
        if not isinstance(at, str):
            return self.rows[at]
        key = at
        found = [r for r in self.rows if r.name == key]
        if not found:
            names = ", ".join(dict.fromkeys(r.name for r in self.rows if r.name))
            raise LookupError(f"no pass {key!r} changed this module; there are {names[:400]}")
        return found[0]

    def text(self, row: Pass | int) -> str:
        """The module as HLO text after a pass."""
        return self.snapshots[row if isinstance(row, int) else row.index].text()

    def module(self, row: Pass | int) -> Module:
        """The module after a pass, parsed."""
        return self.snapshots[row if isinstance(row, int) else row.index].module()

    def cost(self, row: Pass | int, target: Target | None = None) -> dict[str, Any]:
        """FLOPs and bytes accessed after a pass, per device, and the peak if it is scheduled.

        ``shapes`` is "global" before the program was partitioned over its devices: then the
        figures are for all of them together.
        A figure is None if it is not known: a peak before scheduling, FLOPs of custom calls
        without a model. Raises ``ReadError`` if the dump is gone.
        """
        from ...hlo import Target as Unknown
        from ..comms.partitions import shapes
        from ..memory.summary import costs, peaks

        target = target or Unknown()
        at = row if isinstance(row, int) else row.index
        key = at, target.device_kind, target.hardware, len(target.devices)
        known = self._costs.get(key)
        if known is None:
            module = self.module(row)
            found = costs(module, target)
            peak = peaks(module, target).get("peak_live_bytes") if module.is_scheduled else None
            known = self._costs[key] = {
                "flops": found.get("flops"),
                "bytes_accessed": found.get("bytes_accessed"),
                "peak_bytes": peak,
                "shapes": shapes(module, target),
            }
        return dict(known)

    def known_cost(self, row: int) -> dict[str, Any] | None:
        """``cost`` of a row if it was computed before, for any target."""
        return next((dict(c) for key, c in self._costs.items() if key[0] == row), None)

    def at(self, number: int) -> int:
        """The row that shows the module as in the dump of this number."""
        return max((r.index for r in self.rows if r.number <= number), default=0)

    def made(self, name: str) -> Pass | None:
        """The pass in which an instruction of this name first appeared; None if in none."""
        return self._made.get(name.lstrip("%"))

    @cached_property
    def steps(self) -> Steps:
        """The instructions through all passes; computed on first use."""
        return self.follow()

    def follow(self, progress: Callable[[int, int], None] | None = None) -> Steps:
        """``steps``, with ``progress`` (passes done, passes in all), which may raise to stop."""
        known: Steps | None = self.__dict__.get("steps")
        if known is None:
            known = follow([s.text for s in self.snapshots], progress)
            self.__dict__["steps"] = known
        return known

    @cached_property
    def _made(self) -> dict[str, Pass]:
        out: dict[str, Pass] = {}
        for row in self.rows:
            for name in row.appeared:
                out.setdefault(name, row)
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be worked out of the snapshots again."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def timed(self, times: PassTimes) -> Passes:
        """The same, with the times of a compile that was measured."""
        found = row_times(self._dumps, len(self.rows), times.runs)
        rows = tuple(replace(r, seconds=s) for r, s in zip(self.rows, found.seconds, strict=True))
        timed = replace(
            self, rows=rows, times=times, others=found.others,
            elsewhere_seconds=found.elsewhere, _row_of_run=found.row_of,
        )  # fmt: skip
        if "steps" in self.__dict__:
            timed.__dict__["steps"] = self.steps
        return timed

    def parts(self) -> tuple[tuple[str, float], ...]:
        """Where the time of the measured compile went, in seconds; () if none was measured."""
        if self.times is None:
            return ()
        changed = sum(r.seconds or 0.0 for r in self.rows)
        idle = sum(self.others) + self.elsewhere_seconds
        return (("passes of this list", changed), ("other passes", idle), *self.times.rest)

    def slowest(self) -> tuple[SlowPass, ...]:
        """The passes of the measured compile, longest first, also those that changed nothing."""
        took: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for k, run in enumerate(self.times.runs if self.times is not None else ()):
            if run.name:
                row = self._row_of_run.get(k, -1)
                took.setdefault((run.pipeline, run.name), []).append((run.seconds, row))
        found = []
        for (pipeline, name), runs in took.items():
            longest = max((run for run in runs if run[1] >= 0), default=(0.0, -1))
            whole = sum(seconds for seconds, _ in runs)
            found.append(SlowPass(pipeline, name, whole, len(runs), longest[1]))
        return tuple(sorted(found, key=lambda s: -s.seconds))

    def _totals(self) -> dict[str, Any]:
        told = self.times
        return {
            "note": self.note,
            "compile_seconds": None if told is None else told.total_seconds,
            "parts": dict(self.parts()),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """One row per pass: counts, and changes in columns named ``+instructions`` and so on."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "pipeline": r.pipeline,
                    "pass": r.title,
                    "seconds": r.seconds,
                    **r.counts,
                    **{f"+{k}": v for k, v in r.change.items()},
                }
                for r in self.rows
            ],
            columns=list(self.COLUMNS),
        )

    def __str__(self) -> str:
        return table(PassTable(self.rows, self.note, self.times, self.others, self.parts()))


def passes(
    snapshots: Sequence[Snapshot],
    note: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Passes:
    """Compares each snapshot with the one before; unchanged ones are left out.

    ``progress`` is called with the number done and the number of all, and may raise to stop.
    """
    rows: list[Pass] = []
    kept: list[Snapshot] = []
    before: dict[str, str] = {}
    counts = dict.fromkeys(COUNTED, 0)
    text_before = bare_before = ""
    operations: frozenset[int] | None = None
    names = ran(snapshots)
    dumps: list[Dumped] = []
    for k, snapshot in enumerate(snapshots):
        if progress is not None:
            progress(k, len(snapshots))
        text = snapshot.text()
        left = snapshot.pipeline, snapshot.passed, snapshot.upcoming
        if rows and text == text_before:
            dumps.append(Dumped(*left, *_without_row(snapshot, kept[-1], rows[-1])))
            continue
        dumps.append(Dumped(*left, len(rows)))
        bare = _bare(text)
        name = names[k]
        found = dict(_LINE.findall(text))
        now = _counts(_LINE.findall(text))
        lost: tuple[int, ...] = ()
        if operations is not None and snapshot.operations is not None:
            lost = tuple(sorted(operations - snapshot.operations))
        operations = snapshot.operations
        rows.append(
            Pass(
                len(rows),
                snapshot.number,
                snapshot.pipeline,
                name,
                now,
                {what: now[what] - counts[what] for what in COUNTED} if rows else {},
                tuple(n for n in found if n not in before) if rows else (),
                tuple(n for n in before if n not in found),
                lost,
                bool(rows) and bare == bare_before,
            )
        )
        kept.append(snapshot)
        before, counts, text_before, bare_before = found, now, text, bare
    return Passes(tuple(rows), tuple(kept), note, _dumps=tuple(dumps))


def _without_row(snapshot: Snapshot, last: Snapshot, row: Pass) -> tuple[int | None, bool]:
    """The row that shows what a dump equal to the one before is of, and whether by its steps.

    Work of a pass that runs a pipeline of its own is seen where that pipeline starts.
    """
    if snapshot.passed and not last.passed and row.name == snapshot.passed:
        return row.index, False
    of_steps = plain_name(row.pipeline) == plain_name(snapshot.passed)
    return (row.index if of_steps else None), of_steps


def ran(snapshots: Sequence[Snapshot]) -> list[str]:
    """The pass whose work each snapshot shows; "" for the first, or if unknown.

    A pass that runs a pipeline of its own has changed the module before that pipeline starts:

        outer: after_shardy-xla.before_some-pass          passes that change nothing leave no dump
        inner: after_pipeline-start.before_dce            what changed here was done by the pass
        inner: after_dce.…                                still running: not some-pass but
        outer: after_spmd-partitioning.…                  the one that ends next in its pipeline
    """
    out = []
    for k, s in enumerate(snapshots):
        name = s.passed
        if not name and k > 0:
            before = snapshots[k - 1]
            outer = {x.pipeline for x in snapshots[:k]} - {s.pipeline, ""}
            if before.upcoming == "pipeline-end":
                outer.discard(before.pipeline)
            else:
                outer = {before.pipeline} - {""}
            later = (x.passed for x in snapshots[k + 1 :] if x.passed and x.pipeline in outer)
            name = next(later, "")
        out.append(name)
    return out


def _bare(text: str) -> str:
    return _METADATA.sub("", _TABLES.sub("\n", text, count=1))


def _counts(found: list[tuple[str, str]]) -> dict[str, int]:
    opcodes = Counter(opcode for _, opcode in found)
    kinds = {k for kind in KINDS for k in (kind, f"{kind}-start")}
    return {
        "instructions": len(found),
        "fusions": opcodes["fusion"],
        "copies": opcodes["copy"] + opcodes["copy-start"],
        "transposes": opcodes["transpose"],
        "collectives": sum(n for o, n in opcodes.items() if o in kinds),
    }
