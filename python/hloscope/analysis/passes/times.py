"""How long each pass took: the runs of one compile, measured, put beside the dumps of another.

A dump is left only by a pass that changed something, and by each start of a pipeline; the compile
that was measured has every run. Both compilers did the same in the same order, so the dumps are
some of the runs, in their order:

    measured   start  algsimp  dce  cse  start  algsimp  dce
    dumped     start  algsimp            start           dce      one way to match: both are known
    dumped            algsimp            start                    the same
    dumped            algsimp                                     two ways: its time is unknown
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...hlo.snapshots import TimedPass
from ..text.results import Row

# libtpu counts these over all compiles of a process
_COUNTED_BY_PROCESS = re.compile(r"^(apply-xla-transforms)-\d+$")
_OTHER = re.compile(r"[^\w\-]")
OF_DUMP = "The times are of the compile that wrote this dump, with the time of writing it."
END = "pipeline-end"
Key = tuple[str, str, str]  # pipeline, pass, the pass after it


@dataclass(frozen=True, slots=True, repr=False)
class PassRun(Row):
    """One run of a pass: ``seconds`` it took itself, without the pipelines that ran inside of it.

    ``name`` is "" for what a pipeline does before its first pass; ``upcoming`` the pass after it in
    its pipeline.
    """

    pipeline: str
    name: str
    upcoming: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PassTimes:
    """One compile, measured: every run of a pass in the order they ended, and the rest of it.

    ``rest``: what of ``total_seconds`` no pass took, by name; both are unknown, () and None, where
    only the passes were timed. ``note`` says what makes the figures
    larger than those of an ordinary compile; "" if nothing does.
    """

    runs: tuple[PassRun, ...] = field(repr=False)
    rest: tuple[tuple[str, float], ...]
    total_seconds: float | None
    note: str = ""


def runs_of(timed: Sequence[TimedPass]) -> tuple[PassRun, ...]:
    """The runs of passes that the compiler timed, in the order they ended.

    ``timed`` is in the order they began; clocks are coarse, and many begin and end at one time.
    """
    own = [t.end - t.begin for t in timed]
    inside: list[int] = []
    ended: list[int] = []
    for k, t in enumerate(timed):
        while inside and timed[inside[-1]].end <= t.begin:
            ended.append(inside.pop())
        if inside:
            own[inside[-1]] -= min(t.end, timed[inside[-1]].end) - t.begin
        if t.name:
            inside.append(k)
        else:
            ended.append(k)
    ended += reversed(inside)
    upcoming: dict[str, str] = {}  # by pipeline
    after = [END] * len(timed)
    for k in range(len(timed) - 1, -1, -1):
        after[k] = upcoming.get(timed[k].pipeline, END)
        upcoming[timed[k].pipeline] = timed[k].name or END
    return tuple(
        PassRun(timed[k].pipeline, timed[k].name, after[k], max(own[k], 0.0)) for k in ended
    )


def times_of_dump(timed: Sequence[TimedPass]) -> PassTimes | None:
    """The times that a dump of every pass has in it; None if it has none."""
    return PassTimes(runs_of(timed), (), None, OF_DUMP) if timed else None


@dataclass(frozen=True, slots=True, repr=False)
class SlowPass(Row):
    """A pass of one pipeline: ``seconds`` of all its runs, and how many ``times`` it ran.

    ``row`` is the one in ``Passes`` that took longest, -1 where none has a known time.
    """

    pipeline: str
    name: str
    seconds: float
    times: int
    row: int


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Seconds of the pass of each row, None if unknown, and of passes of its pipeline that have
    no row, next to it; ``elsewhere``: of pipelines without a row. ``row_of``: by run."""

    seconds: tuple[float | None, ...]
    others: tuple[float, ...]
    elsewhere: float
    row_of: dict[int, int]


@dataclass(frozen=True, slots=True)
class Dumped:
    """One dump, in order: which pass left it, and its row; None if nothing was another.

    ``of_steps``: the row is the last step of this very pass, which dumps what it does bit by bit.
    """

    pipeline: str
    passed: str
    upcoming: str
    row: int | None
    of_steps: bool = False

    @property
    def key(self) -> Key:
        """What a run of the same pass has as well."""
        return plain_name(self.pipeline), plain_name(self.passed), plain_name(self.upcoming)


def row_times(dumps: Sequence[Dumped], rows: int, runs: Sequence[PassRun]) -> RowTimes:
    """The times of ``rows`` rows."""
    keys = [(plain_name(r.pipeline), plain_name(r.name), plain_name(r.upcoming)) for r in runs]
    seconds: list[float | None] = [None] * rows
    others, elsewhere = [0.0] * rows, 0.0
    row_of: dict[int, int] = {}  # by run: where the passes next to it go
    dump_of = _matched([d.key for d in dumps], keys)
    for run, at in dump_of.items():
        if (its := dumps[at].row) is not None and not dumps[at].of_steps:
            row_of[run] = its
    for k, passed in enumerate(runs):
        dump = dumps[dump_of[k]] if k in dump_of else None
        row = row_of.get(k)
        if row is not None and passed.name:
            seconds[row] = passed.seconds
            continue
        if row is None:
            of_steps = dump is not None and dump.of_steps
            row = dump.row if dump is not None and of_steps else _nearest(k, keys, row_of)
        if row is None:
            elsewhere += passed.seconds
        else:
            others[row] += passed.seconds
    return RowTimes(tuple(seconds), tuple(others), elsewhere, row_of)


def plain_name(name: str) -> str:
    """A pipeline or a pass as in the name of a file, equal in every compile."""
    return _OTHER.sub("_", _COUNTED_BY_PROCESS.sub(r"\1", name))


def _matched(dumps: Sequence[Key], runs: Sequence[Key]) -> dict[int, int]:
    """The dump of a run, where the order leaves one possibility."""
    first = _places(dumps, runs)
    last = [None if at is None else len(runs) - 1 - at for at in _places(dumps[::-1], runs[::-1])]
    both = zip(first, last[::-1], strict=True)
    return {a: k for k, (a, b) in enumerate(both) if a is not None and a == b}


def _places(some: Sequence[Key], of_all: Sequence[Key]) -> list[int | None]:
    """The first place of each in ``of_all``, in order; None where it is not after the last."""
    places: dict[Key, list[int]] = {}
    for k, key in enumerate(of_all):
        places.setdefault(key, []).append(k)
    found: list[int | None] = []
    at = 0
    for key in some:
        later = places.get(key, [])
        k = bisect_left(later, at)
        found.append(later[k] if k < len(later) else None)
        at = at if found[-1] is None else later[k] + 1
    return found


def _nearest(run: int, keys: Sequence[Key], row_of: Mapping[int, int]) -> int | None:
    """The row of the nearest run of the same pipeline, a later one rather than an earlier."""
    near = [k for k in row_of if keys[k][0] == keys[run][0]]
    return row_of[min(near, key=lambda k: (abs(k - run), k < run))] if near else None
