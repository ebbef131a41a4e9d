"""Measured time of each instruction on each device, from a profiler trace.

Joins by module and instruction name. On CPU a fused region may be reported under the name
of the instruction that calls it; what finds no instruction is kept apart and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ..hlo import Instruction, Module
from .cost_text import duration, grid, short

if TYPE_CHECKING:
    import pandas as pd

# their events last as long as what they run, which has events of its own
_CONTAINERS = ("while", "conditional", "call")
Floats = npt.NDArray[np.float64]


class Timed(Protocol):
    """What is needed of one row of a trace."""

    @property
    def module(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def count(self) -> int: ...


@dataclass(frozen=True, slots=True)
class MeasuredInstruction:
    """One row; seconds of one step. ``slowest`` is the device that took longest."""

    instruction: Instruction
    mean_seconds: float  # over devices
    least_seconds: float
    most_seconds: float
    slowest: int
    count: float  # events a step and device

    @property
    def spread(self) -> float:
        """How much longer the slowest device takes than the mean; 0 when all are equal."""
        return self.most_seconds / self.mean_seconds - 1 if self.mean_seconds else 0.0


@dataclass(frozen=True, eq=False)
class Measured:
    """Seconds of one step, measured: a row a device, a column an instruction.

    ``unmatched`` is what the trace has of this module under names it does not have, by name.
    """

    module: Module
    devices: tuple[int, ...]
    seconds: Floats
    counts: Floats
    steps: int
    unmatched: dict[str, float]

    @cached_property
    def mean(self) -> Floats:
        """Seconds of each instruction, the mean over devices; NaN where it was not seen."""
        seen = self.counts.sum(axis=0) > 0
        means = self.seconds.mean(axis=0) if len(self.devices) else np.zeros(seen.shape)
        return np.where(seen, means, np.nan)

    @cached_property
    def device_seconds(self) -> Floats:
        """Seconds of one step of each device; a loop or call whose inside was seen counts once."""
        seen = self.counts.sum(axis=0) > 0
        own = np.ones(len(self.module.instructions), bool)
        for i in self.module.instructions:
            if i.opcode in _CONTAINERS and seen[i.index]:
                inside = [x.index for _, c in i.called for x in c.instructions]
                own[i.index] = not seen[inside].any()
        sums: Floats = self.seconds[:, own].sum(axis=1)
        return sums

    @property
    def total_seconds(self) -> float:
        """Of one step on one device, the mean over devices."""
        return float(self.device_seconds.sum() / max(1, len(self.devices)))

    @property
    def coverage(self) -> float:
        """Part of the trace's time in this module that lands on an instruction."""
        found = float(self.seconds.sum()) * self.steps
        lost = sum(self.unmatched.values())
        return found / (found + lost) if found + lost else 0.0

    @cached_property
    def _rows(self) -> list[int]:
        mean = np.nan_to_num(self.mean)
        return [int(n) for n in np.argsort(-mean, kind="stable") if mean[n] > 0]

    def row(self, n: int) -> MeasuredInstruction:
        column = self.seconds[:, n]
        return MeasuredInstruction(
            self.module.instructions[n],
            float(column.mean()),
            float(column.min()),
            float(column.max()),
            self.devices[int(column.argmax())],
            float(self.counts[:, n].mean()),
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[MeasuredInstruction]:
        return (self.row(n) for n in self._rows)

    def to_pandas(self) -> pd.DataFrame:
        """One row an instruction that was seen, slowest first. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([self._dict(r) for r in self])

    def to_dict(self) -> list[dict[str, Any]]:
        return [self._dict(r) for r in self]

    @staticmethod
    def _dict(r: MeasuredInstruction) -> dict[str, Any]:
        return {
            "instruction": r.instruction.name,
            "opcode": r.instruction.opcode,
            "seconds": r.mean_seconds,
            "least": r.least_seconds,
            "most": r.most_seconds,
            "slowest_device": r.slowest,
            "spread": r.spread,
            "count": r.count,
        }

    def __repr__(self) -> str:
        rows = [
            (
                short(r.instruction.name),
                duration(r.mean_seconds),
                duration(r.most_seconds),
                str(r.slowest),
                f"{r.count:g}",
            )
            for _, r in zip(range(12), self, strict=False)
        ]
        head = (
            f"measured: {duration(self.total_seconds)} a step on each of {len(self.devices)}"
            f" devices, {self.steps} steps, {100 * self.coverage:.1f} % of the trace matched"
        )
        table = grid(("instruction", "mean", "slowest", "device", "runs"), rows)
        return f"{head}\n{table}"


def remember(module: Module, found: Measured) -> Measured:
    """Keeps a measurement on its module, for views made later; both are forgotten together."""
    vars(module)["_measured"] = found
    return found


def measured_of(module: Module) -> Measured | None:
    """The last measurement of a module, or None."""
    found: Measured | None = vars(module).get("_measured")
    return found


def join(module: Module, ops: Iterable[Timed], steps: int | None = None) -> Measured:
    """Times of this module's instructions, divided by ``steps``.

    None takes as steps how often a device runs an instruction of ENTRY (the median of them).
    Rows of other modules are left out; rows without a module count when the name is known.
    """
    mine = [o for o in ops if o.module in ("", module.name)]
    devices = tuple(sorted({o.device for o in mine}))
    at = {d: k for k, d in enumerate(devices)}
    n = len(module.instructions)
    seconds, counts = np.zeros((len(devices), n)), np.zeros((len(devices), n))
    unmatched: dict[str, float] = {}
    for o in mine:
        i = module.find(o.op)
        if i is None:
            if o.module:
                unmatched[o.op] = unmatched.get(o.op, 0.0) + o.seconds
            continue
        seconds[at[o.device], i.index] += o.seconds
        counts[at[o.device], i.index] += o.count
    if steps is None:
        entry = module.entry.instructions if module.entry is not None else []
        often = counts[:, [i.index for i in entry]]
        steps = round(float(np.median(often[often > 0]))) if (often > 0).any() else 1
    steps = max(1, steps)
    return Measured(module, devices, seconds / steps, counts / steps, steps, unmatched)
