"""Cost of every instruction and of the whole program: FLOPs, bytes, modelled seconds.

    counts.py      FLOPs, bytes and transfers, whatever the chip
    roofline/      seconds on a chip
    branches.py    least and most over the branches of conditionals
    timeline.py    when each instruction runs
       └─▶ Cost: rows by instruction, totals, and beside XLA's own figures

Only *units* take time: instructions of executed computations that are not containers. The
figures of a container (while, call, conditional, async-start) include its contents; totals sum
over units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...hardware import Hardware
from ...hlo import Instruction, Module, Target
from ...hlo.texts.places import short_place
from ..base.dialects import needs_hlo
from ..base.lines.lines import lines
from ..base.pause import uncollected
from ..base.table import per_target
from ..comms.collectives import collectives
from ..comms.partitions import whose
from ..text.results import Made, Row, Rows
from ..text.units import duration, grid, printed, quantity, short
from .assumptions import NEGLIGIBLE_SHARE
from .branches import branch_ranges, slowest_branches, wire_runs
from .chip import chip_of
from .counts import Counts, count, counted
from .roofline.roofline import Roofline, model
from .timeline import Timeline, timeline

if TYPE_CHECKING:
    pass

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, repr=False)
class InstructionCost(Row):
    """One row. Figures are for all executions of the instruction; ``runs`` is their number.

    NaN means unknown. ``seconds`` is modelled; ``step_seconds`` is the part during which nothing
    else runs: these add up to the step's time, ``seconds`` do not. Where ``seconds`` is None,
    ``step_seconds`` is the least that its bytes and FLOPs take. ``estimated_cycles`` is
    XLA:TPU's own estimate for one execution, None if the dump has none.
    """

    instruction: Instruction
    runs: float
    flops: float
    transcendentals: float
    bytes_accessed: float
    seconds: float | None
    step_seconds: float | None
    bound: str  # see ``Roofline.bound``; "" when no time is modelled
    estimated_cycles: int | None
    card_line: str = ""  # of a collective that another line asks for

    @property
    def line(self) -> str:
        """ "file:line" of the instruction, of its card for a collective, or of what it serves
        (``inferred``); '' if unknown."""
        if self.card_line:
            return self.card_line
        at = lines(self.instruction.module).of(self.instruction)
        return "" if at is None else f"{at.file}:{at.line}"

    @property
    def inferred(self) -> str:
        """How the line was inferred if the instruction has none: "layout for `dot.89`"."""
        return lines(self.instruction.module).why(self.instruction)

    def to_dict(self) -> dict[str, Any]:
        """Its values as plain data."""
        i = self.instruction
        return {
            "instruction": i.name,
            "opcode": i.opcode,
            "op_name": i.op_name,
            "runs": self.runs,
            "flops": self.flops,
            "transcendentals": self.transcendentals,
            "bytes_accessed": self.bytes_accessed,
            "intensity": self.intensity,
            "seconds": self.seconds,
            "step_seconds": self.step_seconds,
            "bound": self.bound,
            "estimated_cycles": self.estimated_cycles,
            "line": self.line,
            "inferred": self.inferred,
        }

    @property
    def intensity(self) -> float:
        """FLOPs per byte accessed; NaN if no bytes are accessed."""
        return self.flops / self.bytes_accessed if self.bytes_accessed else float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class Cost(Rows[InstructionCost], Counts):
    """What ``cap.cost()`` returns. Iterate it for rows, most expensive first; it prints as a table.

    Columns have one row per instruction of the module: ``flops``, ``transcendentals``,
    ``matmul_flops`` and ``bytes`` are for one execution, called computations included; ``runs``
    is the number of executions. ``roofline`` has the modelled seconds, None without a chip.
    """

    roofline: Roofline | None = None

    @cached_property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """(least, most) of each total that depends on which branches of conditionals run.

        Keys are "flops", "bytes_accessed", "transcendentals" and "seconds"; {} if none depends. The
        totals themselves count the branches that take most time, or do most work without a chip.
        """
        return branch_ranges(self, self.roofline) if self.module.entry is not None else {}

    @cached_property
    def wire_runs(self) -> Floats:
        """``runs`` if each conditional takes the branch that sends most."""
        return wire_runs(self)

    @cached_property
    def wire(self) -> Floats:
        """Bytes that one device sends at each start of a transfer, all executions; NaN if unknown.

        If branches differ, those that send most count.
        """
        sent = np.zeros(len(self.runs))
        for t in self.transfers:
            sent[t.start] += t.wire_bytes
        return np.where(self.wire_runs > 0, sent * self.wire_runs, 0.0)

    @property
    def hardware(self) -> Hardware | None:
        """The chip on which seconds are modelled, its figures per device; None without one."""
        return self.roofline.hardware if self.roofline is not None else None

    @cached_property
    def timeline(self) -> Timeline | None:
        """The modelled step as events on lanes; None if no chip is known."""
        return None if self.roofline is None else timeline(self, self.roofline)

    def on(self, hardware: Hardware) -> Cost:
        """The same cost with modelled seconds on ``hardware``; branches are those that count."""
        return _with_seconds(self, hardware)

    def row(self, instruction: Instruction | int) -> InstructionCost:
        """The row of one instruction, container or not."""
        n = instruction if isinstance(instruction, int) else instruction.index
        runs = float(self.runs[n])
        r = self.roofline
        asked = collectives(self.module, self.target).by_instruction.get(n)
        return InstructionCost(
            self.module.instructions[n],
            runs,
            float(self.flops[n]) * runs,
            float(self.transcendentals[n]) * runs,
            float(self.bytes[n]) * runs,
            None if r is None or np.isnan(r.seconds[n]) else float(r.seconds[n]) * runs,
            None if r is None or np.isnan(r.step_seconds[n]) else float(r.step_seconds[n]),
            "" if r is None else r.bound(n),
            self.estimated_cycles.get(n),
            asked.line if asked is not None and asked.asked else "",
        )

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        r = self.roofline
        key = self.flops * self.runs
        if r is not None:  # what takes unknown time before all
            key = np.where(np.isnan(r.seconds), np.nan, r.step_seconds)
        bytes_ = self.bytes * self.runs
        rows = np.flatnonzero(self.is_unit & (self.runs > 0))
        some = rows[
            (np.nan_to_num(self.flops[rows], nan=1) > 0)
            | (self.bytes[rows] > 0)
            | (self.transcendentals[rows] > 0)
        ]
        return some[np.lexsort((some, -bytes_[some], -np.nan_to_num(key[some], nan=np.inf)))]

    COLUMNS = (
        "instruction", "opcode", "op_name", "runs", "flops", "transcendentals", "bytes_accessed",
        "intensity", "seconds", "step_seconds", "bound", "estimated_cycles", "line", "inferred",
    )  # fmt: skip

    def _all(self) -> Sequence[InstructionCost]:
        return Made(self._order.tolist(), self.row)

    def _totals(self) -> dict[str, Any]:
        return self.totals()

    def totals(self) -> dict[str, Any]:
        """Totals as plain data: what ``summary --json`` shows."""
        out: dict[str, Any] = {
            "flops": _whole(self.total_flops),
            "matmul_flops": _whole(self.total_matmul_flops),
            "transcendentals": _whole(self.total_transcendentals),
            "bytes_accessed": _whole(self.total_bytes),
            "trip_counts_unknown": list(self.unknown_trip_counts),
            "trip_counts_may_be_zero": list(self.may_not_run),
            "flops_unknown": [i.name for i in self.unknown_flops],
            "branches_left_out": [
                self.module.computations[c].name for c in self.execution.branches_left_out
            ],
            "estimated_cycles": self.total_estimated_cycles,
        }
        for name in ("flops", "transcendentals", "bytes_accessed"):
            if name in self.ranges:
                out[f"{name}_least"], out[f"{name}_most"] = map(_whole, self.ranges[name])
        if self.roofline is not None and self.module.entry is not None:
            out |= self.roofline.to_dict()
            if "seconds" in self.ranges:
                least, most = self.ranges["seconds"]
                out["modelled_seconds"] |= {"total_least": least, "total_most": most}
        return out

    def __str__(self) -> str:
        return _text(self)


def _whole(value: float) -> int | float | None:
    if value != value:
        return None
    return int(value) if value == int(value) else value


def _text(cost: Cost, rows: int = 12) -> str:
    """Totals, XLA's own beside ours, and the most expensive instructions."""
    out = [f"cost of {cost.module.name}, {whose(cost.module, cost.target)}, one execution"]
    out.append(
        f"  {quantity(cost.total_flops, 'FLOP')} ({quantity(cost.total_matmul_flops, 'FLOP')} in"
        f" matmuls and convolutions), {quantity(cost.total_transcendentals)} transcendentals,"
        f" {quantity(cost.total_bytes, 'B')} accessed"
    )
    declared = cost.total_matrix_flops - cost.total_matmul_flops
    if declared > 0:
        out.append(
            f"  {quantity(declared, 'FLOP')} declared by the authors of kernels, timed as matmuls"
        )
    if cost.ranges:
        units = {"flops": "FLOP", "bytes_accessed": "B", "seconds": "s"}
        said = {"bytes_accessed": "bytes accessed", "flops": "FLOPs", "seconds": "modelled"}
        each = (
            f"{said.get(k, k)} {quantity(a, units.get(k, ''))} – {quantity(b, units.get(k, ''))}"
            for k, (a, b) in cost.ranges.items()
        )
        out.append(f"  depending on which branches of conditionals run: {', '.join(each)}")
    for x in cost.xla:
        if x.xla is not None:
            unit = {"flops": "FLOP", "bytes accessed": "B"}.get(x.quantity, "")
            parts = [
                f"{quantity(v, unit)} {w}"
                for v, w in (
                    (x.loops, "loops"),
                    (x.custom_calls, "custom calls"),
                    (x.branches, "other branches"),
                )
                if v
            ]
            if x.other and abs(x.other) > NEGLIGIBLE_SHARE * max(abs(x.xla), 1):
                parts.append(f"{quantity(x.other, unit)} other")
            because = f" (ours adds {', '.join(parts)})" if parts else " (the same)"
            out.append(f"  XLA's own {x.quantity}: {quantity(x.xla, unit)}{because}")
    if cost.total_estimated_cycles is not None:
        unknown = cost.unknown_cycles
        without = f", without {unknown:,} that it has no estimate for" if unknown else ""
        out.append(f"  XLA's estimated cycles: {cost.total_estimated_cycles:,.0f}{without}")
    if cost.module.entry is None:
        out.append("  cut off before ENTRY: these figures are for one run of what is there")
    elif cost.roofline is not None:
        some, zero = bool(cost.unknown_trip_counts), bool(cost.may_not_run)
        told = cost.roofline.text(is_least=some and not zero, is_one_trip=zero)
        out += [f"  {t}" for t in told]
    if cost.unknown_trip_counts:
        out.append(
            "  counted once, trip count unknown: "
            + ", ".join(
                name if most is None else f"{name} (at most {most:,})"
                for name, most in zip(cost.unknown_trip_counts, cost.most_trips, strict=True)
            )
            + (
                f" (no bound: {', '.join(cost.may_not_run)} may run 0 times)"
                if cost.may_not_run
                else " (a lower bound: each runs at least once)"
            )
            + "; set it with cap.cost(trips={name: count})"
        )
    if cost.unknown_flops:
        names = ", ".join(i.name for i in cost.unknown_flops[:5])
        out.append(f"  FLOPs unknown for {len(cost.unknown_flops)}: {names}")
    known = lines(cost.module)
    body = [
        (
            short(r.instruction.name),
            f"{r.runs:g}",
            quantity(r.flops, "FLOP"),
            quantity(r.bytes_accessed, "B"),
            "" if math.isnan(r.intensity) else quantity(r.intensity),
            _in_step(r),
            "" if r.seconds is None else duration(r.seconds),
            r.bound,
            short_place(*_place(r.card_line)) if r.card_line else known.text(r.instruction),
        )
        for _, r in zip(range(rows), cost, strict=False)
    ]
    head = "instruction runs FLOPs bytes FLOP/B".split()
    out += grid((*head, "in step", "alone", "bound", "line"), body)
    if len(cost) > rows:
        out.append(f"… and {len(cost) - rows} more")
    return printed(out)


def _in_step(row: InstructionCost) -> str:
    if row.step_seconds is None:
        return ""
    least = "≥ " if row.seconds is None and row.bound == "unknown" else ""
    return f"{least}{duration(row.step_seconds)}"


def _place(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number)


def _with_seconds(counts: Counts, hardware: Hardware | None) -> Cost:
    columns = {f.name: getattr(counts, f.name) for f in fields(Counts)}
    return Cost(**columns, roofline=None if hardware is None else model(counts, hardware))


@per_target
def estimated(module: Module, target: Target) -> Cost:
    """``estimate`` on the target's chip, computed once per module and target."""
    return estimate(module, target, hardware=chip_of(target))


@uncollected()
def estimate(
    module: Module,
    target: Target | None = None,
    *,
    hardware: Hardware | None = None,
    trips: Mapping[str, int] | None = None,
) -> Cost:
    """Count FLOPs and bytes, and model seconds on ``hardware`` if given.

    ``trips`` sets trip counts by name of the loop. Raises ``ValueError`` for a module that is
    not HLO and for a loop name that the module does not have.
    """
    if module.dialect != "hlo":
        raise ValueError(needs_hlo("cost", module, target))
    target = target or Target()
    # frozen, but for what is worked out on demand, which another target may say otherwise
    counts = (
        count(module, target, trips) if trips else replace(counted(module, target), target=target)
    )
    return _with_seconds(
        counts if hardware is None else slowest_branches(counts, hardware), hardware
    )
