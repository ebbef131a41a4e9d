"""Measured time of each instruction on each device, from a profiler trace.

``join.py`` makes it. On CPU a fused region may be reported under the name of the
instruction that calls it; what matches no instruction is kept apart and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...hlo import Computation, Instruction, Module, opcodes
from ...hlo.texts.listed import listed
from ..text.results import Made, Row, Rows
from ..text.units import duration, grid, printed, short
from .events import MeasuredEvents

if TYPE_CHECKING:
    pass

# their events last as long as what they run, which has its own events
_CONTAINERS = opcodes.LOOPS | opcodes.BRANCHES | {"call"}
Floats = npt.NDArray[np.float64]
_FAR = 0.05  # share of the wall time: beyond it the sum of operations is not the time of a step


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredInstruction(Row):
    """One row; seconds per step. ``slowest`` is the device that took longest.

    ``self_seconds`` leaves out what ran inside, such as the body of a while;
    ``flight_seconds`` is from start to done of an asynchronous op, in parallel with others.
    """

    instruction: Instruction
    mean_seconds: float  # over devices
    self_seconds: float  # over devices
    flight_seconds: float  # over devices
    least_seconds: float
    most_seconds: float
    slowest: int
    count: float  # events per step and device

    def to_dict(self) -> dict[str, Any]:
        """Its values as plain data."""
        return {
            "instruction": self.instruction.name,
            "opcode": self.instruction.opcode,
            "seconds": self.mean_seconds,
            "self_seconds": self.self_seconds,
            "flight_seconds": self.flight_seconds,
            "least": self.least_seconds,
            "most": self.most_seconds,
            "slowest_device": self.slowest,
            "spread": self.spread,
            "count": self.count,
        }

    @property
    def spread(self) -> float:
        """How much longer than the mean the slowest device takes, as a share; 0 if equal."""
        return self.most_seconds / self.mean_seconds - 1 if self.mean_seconds else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Measured(Rows[MeasuredInstruction]):
    """Measured seconds per step: one row per device, one column per instruction.

    ``flight`` is from start to done of asynchronous ops, NaN on a device that recorded none if
    others did; ``wall`` from the start to the end of a step on each device, NaN if not in the
    trace.

    ``unmatched`` is what the trace has of this program under names that the module lacks, by name;
    ``other_programs`` what else ran; ``unnamed`` kernels of no HLO op: seconds of all steps and
    devices. ``notes`` tell the user what may be wrong with the join. ``events`` is the trace
    itself, event by event.
    """

    module: Module
    devices: tuple[int, ...]
    seconds: Floats
    counts: Floats
    steps: int
    unmatched: Mapping[str, float]
    self_seconds: Floats
    flight: Floats
    other_programs: Mapping[str, float] = field(default_factory=dict)
    unnamed: Mapping[str, float] = field(default_factory=dict)
    device_names: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wall: Floats = field(default_factory=lambda: np.zeros(0))
    events: MeasuredEvents = field(default_factory=MeasuredEvents)

    @cached_property
    def flight_mean(self) -> Floats:
        """``flight`` of each instruction, the mean over the devices that recorded any."""
        rows = self.flight[~np.isnan(self.flight).any(axis=1)]
        return rows.mean(axis=0) if len(rows) else np.zeros(self.flight.shape[1])

    @property
    def wall_seconds(self) -> float:
        """From the start to the end of a step, the mean over devices; NaN if unknown."""
        known = self.wall[~np.isnan(self.wall)]
        return float(known.mean()) if len(known) else float("nan")

    @cached_property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Whether an instruction ran on some device."""
        found: npt.NDArray[np.bool_] = self.counts.sum(axis=0) > 0
        return found

    @cached_property
    def mean(self) -> Floats:
        """Seconds of each instruction, the mean over devices; NaN if it was not seen."""
        means = self.seconds.mean(axis=0) if len(self.devices) else np.zeros(self.seen.shape)
        return np.where(self.seen, means, np.nan)

    @cached_property
    def step_seconds(self) -> Floats:
        """What each instruction adds to a step of each device; ``seconds`` do not sum to it.

        Self times; for a loop or call whose contents run on other threads, only what the contents
        do not account for.
        """
        own = self.self_seconds.copy()
        inside: dict[int, Floats] = {}

        def within(computation: Computation) -> Floats:
            found = inside.get(computation.index)
            if found is None:
                inside[computation.index] = np.zeros(len(self.devices))  # a cycle in a cut dump
                found = np.zeros(len(self.devices))
                for i in computation.instructions:
                    found = found + self.self_seconds[:, i.index]
                    if i.opcode in _CONTAINERS:
                        for _, c in i.called:
                            found = found + within(c)
                inside[computation.index] = found
            return found

        for i in self.module.instructions:
            if i.opcode in _CONTAINERS and self.seen[i.index]:
                held = sum((within(c) for _, c in i.called), np.zeros(len(self.devices)))
                rest = np.maximum(0.0, self.seconds[:, i.index] - held)
                own[:, i.index] = np.minimum(own[:, i.index], rest)
        return own

    @cached_property
    def device_seconds(self) -> Floats:
        """Seconds of one step on each device."""
        sums: Floats = self.step_seconds.sum(axis=1)
        return sums

    @property
    def total_seconds(self) -> float:
        """Seconds of one step on one device, the mean over devices."""
        return float(self.device_seconds.sum() / max(1, len(self.devices)))

    @property
    def flight_seconds(self) -> float:
        """Asynchronous ops from start to done, one step, the mean over the devices that recorded
        them."""
        return float(self.flight_mean.sum())

    @property
    def coverage(self) -> float:
        """Share of the program's time in the trace that belongs to an instruction: of its steps
        from start to end if the trace has them, else of what ran."""
        found = float(self.device_seconds.sum()) * self.steps
        whole = found + sum(self.unmatched.values())
        if len(self.wall) and not np.isnan(self.wall).any():
            whole = max(whole, float(self.wall.sum()) * self.steps)
        return min(1.0, round(found / whole, 12)) if whole else 0.0

    @cached_property
    def _rows(self) -> list[int]:
        mean = np.nan_to_num(self.mean)
        return [int(n) for n in np.argsort(-mean, kind="stable") if mean[n] > 0]

    def row(self, n: int) -> MeasuredInstruction:
        column = self.seconds[:, n]
        return MeasuredInstruction(
            self.module.instructions[n],
            float(column.mean()),
            float(self.self_seconds[:, n].mean()),
            float(self.flight_mean[n]),
            float(column.min()),
            float(column.max()),
            self.devices[int(column.argmax())],
            float(self.counts[:, n].mean()),
        )

    COLUMNS = (
        "instruction", "opcode", "seconds", "self_seconds", "flight_seconds", "least", "most",
        "slowest_device", "spread", "count",
    )  # fmt: skip

    def _all(self) -> Sequence[MeasuredInstruction]:
        return Made(self._rows, self.row)

    def _totals(self) -> dict[str, Any]:
        return self.summary()

    def remarks(self) -> tuple[str, ...]:
        """``notes``, and what of the trace is not in the figures; one sentence each."""
        out = list(self.notes)
        wall = self.wall_seconds
        if wall > 0 and abs(self.total_seconds / wall - 1) > _FAR:
            shown = f"a step takes {duration(wall)} from start to end"
            if self.total_seconds > wall:
                out.append(f"{shown}: operations ran side by side, and their times add up to more")
            else:
                rest = duration(wall - self.total_seconds)
                out.append(f"{shown}: {rest} of it is not covered by any operation")
        for what, seconds in (
            ("under names that this program does not have", self.unmatched),
            ("of other programs", self.other_programs),
            ("in kernels and copies that belong to no HLO operation", self.unnamed),
        ):
            if seconds:
                longest = sorted(seconds.items(), key=lambda x: -x[1])
                names = listed([f"{short(name)} {duration(s)}" for name, s in longest])
                total = duration(sum(seconds.values()))
                out.append(f"not in these figures: {total} {what} ({names})")
        return tuple(out)

    def summary(self) -> dict[str, float | int | None]:
        """Its part of ``hloscope summary --json``."""
        wall = self.wall_seconds
        return {
            "seconds_a_step": self.total_seconds,
            "wall_seconds_a_step": None if np.isnan(wall) else wall,
            "steps": self.steps,
            "devices": len(self.devices),
            "coverage": self.coverage,
        }

    def __str__(self) -> str:
        rows = [
            (
                short(r.instruction.name),
                duration(r.mean_seconds),
                duration(r.self_seconds),
                duration(r.most_seconds),
                str(r.slowest),
                f"{r.count:g}",
            )
            for _, r in zip(range(12), self, strict=False)
        ]
        lines = [
            f"measured: {duration(self.total_seconds)} a step on each of {len(self.devices)}"
            f" devices, {self.steps} steps; {100 * self.coverage:.1f} % of this program's time"
            " in the trace is on an instruction"
        ]
        if self.flight_seconds:
            lines.append(f"asynchronous, beside it: {duration(self.flight_seconds)} a step")
        lines += self.remarks()
        lines += grid(("instruction", "mean", "self", "slowest", "device", "runs"), rows)
        return printed(lines)
