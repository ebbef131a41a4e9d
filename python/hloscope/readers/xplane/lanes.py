"""Every event of a traced device, line by line: what a timeline draws.

A lane is a line of a device's plane ("XLA Ops", "Stream #7(Kernel)"), on CPU a thread as far as
it ran operations of one device. Times are on the clock that all lines share, so that lanes are
aligned; how long an event took is by the device's own clock where it has one, as in every other
figure. They differ by millionths, which is enough to make neighbours overlap: so an event's end is
on the shared clock too.

What XProf derives from other lines repeats the same time and is left out; the number of events
left out is kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Key = tuple[str, int | None]  # (module name, program id)


_MOST = 2**61  # picoseconds: 26 days


@dataclass(frozen=True, eq=False)
class TraceLane:
    """Events of one line by start. ``start`` and ``end`` are seconds on the clock of all lines,
    ``seconds`` how long each took by the device's.

    ``text`` is an index into ``texts`` of each event's name: for an operation its HLO name.
    ``program`` is an index into ``programs``, -1 for what is not an operation. ``beside`` marks
    a lane that runs beside the operations: asynchronous ones, SparseCores.
    """

    device: int
    name: str
    beside: bool
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    seconds: npt.NDArray[np.float64]
    text: npt.NDArray[np.int64]
    program: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class TraceEvents:
    """All lanes of a trace. ``runs`` are executions of programs, (program, device, start, end) in
    seconds; ``left_out`` counts events that no lane has, by reason.
    """

    lanes: tuple[TraceLane, ...] = ()
    texts: tuple[str, ...] = ()
    programs: tuple[Key, ...] = ()
    runs: tuple[tuple[Key, int, float, float], ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.lanes))


@dataclass(slots=True)
class _Open:
    start: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    length: array[int] = field(default_factory=lambda: array("q"))
    text: array[int] = field(default_factory=lambda: array("q"))
    program: array[int] = field(default_factory=lambda: array("q"))


class LaneBuilder:
    """Collects events of one host, in picoseconds."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[int, str, bool, int], _Open] = {}
        self.texts: dict[str, int] = {}
        self.keys: dict[Key, int] = {}
        self.runs: list[tuple[Key, int, int, int]] = []
        self.left_out: dict[str, int] = {}
        self.base: int | None = None  # subtracted from all times: absolute ones do not fit 64 bits

    def _since(self, picoseconds: int) -> int:
        if self.base is None:
            self.base = picoseconds
        return max(-_MOST, min(_MOST, picoseconds - self.base))

    def ran(self, key: Key, device: int, place: tuple[int, int]) -> None:
        """An execution of a program."""
        self.runs.append((key, device, self._since(place[0]), self._since(place[1])))

    def add(
        self,
        device: int,
        line: tuple[str, bool, int],
        place: tuple[int, int],
        length: int,
        name: str,
        key: Key | None,
    ) -> None:
        """Adds an event. ``line`` is its name, whether it runs beside the others, and its number;
        ``place`` begin and end on the clock of all lines, ``length`` how long it took.
        """
        lane = self.lanes.get((device, *line))
        if lane is None:
            lane = self.lanes[device, *line] = _Open()
        lane.start.append(self._since(place[0]))
        lane.end.append(self._since(place[1]))
        lane.length.append(min(_MOST, max(0, length)))
        lane.text.append(self.texts.setdefault(name, len(self.texts)))
        at = -1 if key is None else self.keys.setdefault(key, len(self.keys))
        lane.program.append(at)

    def without(self, programs: Collection[Key], why: str) -> LaneBuilder:
        """The builder without events of ``programs``, which devices have: they are only counted."""
        drop = {self.keys[k] for k in programs if k in self.keys}
        for where, lane in list(self.lanes.items()):
            kept = [n for n, k in enumerate(lane.program) if k not in drop]
            self.skip(why, len(lane.program) - len(kept))
            if not kept:
                del self.lanes[where]
                continue
            for name in ("start", "end", "length", "text", "program"):
                column = getattr(lane, name)
                setattr(lane, name, array("q", [column[n] for n in kept]))
        self.runs = [r for r in self.runs if r[0] not in programs]
        return self

    def skip(self, why: str, count: int) -> None:
        if count:
            self.left_out[why] = self.left_out.get(why, 0) + count


def joined(hosts: Iterable[tuple[Sequence[LaneBuilder], int]]) -> TraceEvents:
    """Lanes of all hosts; each host comes with the number of its first device among all."""
    lanes: list[TraceLane] = []
    texts: dict[str, int] = {}
    programs: dict[Key, int] = {}
    runs: list[tuple[Key, int, float, float]] = []
    left_out: dict[str, int] = {}
    hosts = list(hosts)
    zero = min((b.base for made, _ in hosts for b in made if b.base is not None), default=0)
    for builders, first in hosts:
        for made in builders:
            base = float((made.base or 0) - zero)
            text_of = np.array([texts.setdefault(t, len(texts)) for t in made.texts] + [0])
            key_of = np.array([programs.setdefault(k, len(programs)) for k in made.keys] + [-1])
            for (device, name, beside, _), lane in sorted(
                made.lanes.items(), key=lambda x: (x[0][0], x[0][3])
            ):
                start = base + np.array(lane.start, np.float64)
                end = base + np.array(lane.end, np.float64)
                order = np.lexsort((-end, start))  # enclosing events before those they enclose
                lanes.append(
                    TraceLane(
                        first + device,
                        name,
                        beside,
                        start[order] * 1e-12,
                        end[order] * 1e-12,
                        np.array(lane.length, np.float64)[order] * 1e-12,
                        text_of[np.array(lane.text, np.int64)[order]],
                        key_of[np.array(lane.program, np.int64)[order]],
                    )
                )
            runs += [
                (k, first + d, (base + a) * 1e-12, (base + b) * 1e-12) for k, d, a, b in made.runs
            ]
            for why, count in made.left_out.items():
                left_out[why] = left_out.get(why, 0) + count
    lanes.sort(key=lambda lane: lane.device)
    runs.sort(key=lambda r: (r[1], r[2]))
    return TraceEvents(tuple(lanes), tuple(texts), tuple(programs), tuple(runs), left_out)


def place_ps(event: Any, line: Any, span: tuple[int, int]) -> tuple[int, int]:
    """Where an event begins and ends on the clock that all lines share, picoseconds."""
    if event.offset_ps or event.duration_ps:
        start = int(line.timestamp_ns * 1000 + event.offset_ps)
        return start, start + int(event.duration_ps)
    return span
