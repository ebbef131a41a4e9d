"""The events of a trace, each with its instruction: the measured timeline.

Lanes, times and names are those of the trace; nothing is divided by steps here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class TracedLane(Protocol):
    """What is needed of one line of a trace; seconds."""

    @property
    def device(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def beside(self) -> bool: ...
    @property
    def start(self) -> Floats: ...
    @property
    def end(self) -> Floats: ...
    @property
    def seconds(self) -> Floats: ...
    @property
    def text(self) -> Ints: ...
    @property
    def program(self) -> Ints: ...
    def __len__(self) -> int: ...


class TracedEvents(Protocol):
    """What is needed of a trace's events."""

    @property
    def lanes(self) -> Sequence[TracedLane]: ...
    @property
    def texts(self) -> Sequence[str]: ...
    @property
    def programs(self) -> Sequence[tuple[str, int | None]]: ...
    @property
    def runs(self) -> Sequence[tuple[tuple[str, int | None], int, float, float]]: ...
    @property
    def left_out(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, eq=False)
class MeasuredLane:
    """One line of a device, by start: ``start`` and ``end`` in seconds since the first event of
    all lanes, ``seconds`` by the device's own clock; ``instruction`` is an index, -1 for what is
    not of this program; ``text`` an index into ``texts``.
    """

    device: int
    device_name: str
    name: str
    beside: bool  # asynchronous operations, in parallel with the others
    start: Floats
    end: Floats
    seconds: Floats
    instruction: Ints
    text: Ints

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, eq=False)
class MeasuredEvents:
    """All events of the devices in a trace. ``runs`` are this program's executions: (device,
    start, seconds); ``left_out`` counts events of the trace that are not here, by place.
    """

    lanes: tuple[MeasuredLane, ...] = ()
    texts: tuple[str, ...] = ()
    runs: tuple[tuple[int, float, float], ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.lanes))


def joined(
    module: Module,
    events: TracedEvents,
    names: Mapping[int, str],
    match: Any = None,
) -> MeasuredEvents:
    """The events with their instructions. ``match`` says which programs on which devices are the
    module's; without it those with its name are.
    """
    found = [module.find(t) for t in events.texts]
    plain = np.array([-1 if i is None else i.index for i in found] + [-1], np.int64)
    begun = np.array([-1 if i is None else start_of(i).index for i in found] + [-1], np.int64)
    mine: Collection[Any] = match.rows if match is not None else ()
    first = min((float(x.start[0]) for x in events.lanes if len(x)), default=0.0)
    lanes = []
    for x in events.lanes:
        own = [
            (*key, x.device) in mine if match is not None else key[0] in ("", module.name)
            for key in events.programs
        ]
        is_mine = np.array([*own, False])[x.program]
        of = (begun if x.beside else plain)[x.text]
        lanes.append(
            MeasuredLane(
                x.device,
                names.get(x.device, str(x.device)),
                x.name,
                x.beside,
                x.start - first,
                x.end - first,
                x.seconds,
                np.where(is_mine, of, -1),
                x.text,
            )
        )
    runs = tuple(
        (device, max(0.0, start - first), max(0.0, end - start))
        for key, device, start, end in events.runs
        if ((*key, device) in mine if match is not None else key[0] == module.name)
    )
    return MeasuredEvents(tuple(lanes), tuple(events.texts), runs, dict(events.left_out))


def start_of(i: Instruction) -> Instruction:
    """The start of an asynchronous op; some traces name its done."""
    while i.opcode.endswith(("-done", "-update")) and i.operands:
        i = i.operands[0]
    return i
