"""Cost of every instruction and of the whole program: FLOPs, bytes, modelled seconds.

    flops.py        one execution, without called computations
    cost_bytes.py   one execution, fusions at their boundary
    cost_runs.py    how often each computation runs
    roofline.py     seconds on a chip
       └─▶ Cost: per instruction, in total, and beside XLA's own figures

Only *units* take time: instructions of executed computations that are not containers. The
figures of a container (while, call, conditional, async-start) include its contents; totals sum
over units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...hardware import Hardware, choose, find
from ...hlo import Instruction, Module, Target
from ..base.dialects import needs_hlo
from ..base.lines.lines import lines
from ..base.memory_spaces import main_spaces, memory_space, platform
from ..base.table import per_target, table
from .branches import branch_ranges, wire_runs
from .bytes_accessed import bytes_accessed
from .flops import flops as flops_module
from .pause import uncollected
from .runs import Calls, Role, Runs, call_graph, count_runs, inclusive_sums
from .text import cost_table

if TYPE_CHECKING:
    import pandas as pd

    from .roofline.collectives import Transfer
    from .roofline.roofline import Roofline
    from .timeline import Timeline

Floats = npt.NDArray[np.float64]
CONTAINERS = frozenset(
    "while call conditional async-start async-update async-done call-start call-update "
    "call-done".split()
)


@dataclass(frozen=True, slots=True)
class InstructionCost:
    """One row. Figures are for all executions of the instruction; ``runs`` is their number.

    NaN means unknown. ``seconds`` is modelled; ``step_seconds`` is the part during which nothing
    else runs: these add up to the step's time, ``seconds`` do not. ``estimated_cycles`` is
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

    @property
    def line(self) -> str:
        """ "file:line" of the instruction, or of what it serves (``inferred``); '' if unknown."""
        at = lines(self.instruction.module).of(self.instruction)
        return "" if at is None else f"{at.file}:{at.line}"

    @property
    def inferred(self) -> str:
        """How the line was inferred if the instruction has none: "layout for `dot.89`"."""
        return lines(self.instruction.module).why(self.instruction)

    @property
    def intensity(self) -> float:
        """FLOPs per byte accessed; NaN if no bytes are accessed."""
        return self.flops / self.bytes_accessed if self.bytes_accessed else float("nan")


@dataclass(frozen=True, slots=True)
class XlaComparison:
    """One of XLA's own totals beside ours, and the parts of the difference."""

    quantity: str
    xla: float | None  # None: the capture has no cost analysis of XLA
    ours: float
    loops: float  # ours beyond one trip per loop; XLA counts every body once
    custom_calls: float  # ours for custom calls; XLA counts -1 for each
    other: float | None  # the rest: ours - xla - loops - custom_calls


@dataclass(frozen=True, eq=False)
class Cost:
    """What ``cap.cost()`` returns. Iterate it for rows, most expensive first; it prints as a table.

    Columns have one row per instruction of the module: ``flops``, ``transcendentals``,
    ``matmul_flops`` and ``bytes`` are for one execution, called computations included; ``runs``
    is the number of executions.
    """

    module: Module
    target: Target
    runs: Floats
    flops: Floats
    transcendentals: Floats
    matmul_flops: Floats
    matrix_flops: Floats  # plus what kernel authors declare: timed on the matrix unit
    bytes: Floats
    main_bytes: Floats  # the part of ``bytes`` in main memory, as opposed to VMEM and the like
    is_unit: npt.NDArray[np.bool_]
    work: flops_module.Work  # of one execution, without called computations
    execution: Runs
    matmul_dtype: tuple[str, ...]  # of most of the matrix FLOPs inside; "" if there are none
    roofline: Roofline | None = None

    def _total(self, column: Floats) -> float:
        if self.module.entry is None:
            return float("nan")  # the dump was cut off before its program
        unit = self.is_unit
        return float(np.nansum(column[unit] * self.runs[unit]))

    @cached_property
    def total_flops(self) -> float:
        """FLOPs of one execution on one device, without transcendentals.

        Like the other totals, NaN for a dump that was cut off before its ENTRY.
        """
        return self._total(self.flops)

    @cached_property
    def total_transcendentals(self) -> float:
        return self._total(self.transcendentals)

    @cached_property
    def total_matmul_flops(self) -> float:
        """The part of ``total_flops`` in dots, convolutions and custom-call matmuls."""
        return self._total(self.matmul_flops)

    @cached_property
    def total_matrix_flops(self) -> float:
        """``total_matmul_flops`` plus what kernel authors declare: timed on the matrix unit."""
        return self._total(self.matrix_flops)

    @cached_property
    def total_bytes(self) -> float:
        """Bytes accessed by one execution on one device."""
        return self._total(self.bytes)

    @cached_property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """(least, most) of each total that depends on which branches of conditionals run.

        Keys are "flops", "bytes_accessed", "transcendentals" and "seconds"; {} if none depends. The
        totals themselves count the branches with most work.
        """
        return branch_ranges(self) if self.module.entry is not None else {}

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
        return self.roofline.hardware if self.roofline is not None else None

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Executed collectives as steps and bytes on the wire."""
        from .roofline.roofline import find_transfers

        if self.roofline is not None:
            return self.roofline.transfers
        return find_transfers(self.module, self.target, self.execution.calls.executed)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The modelled step as events on lanes; None if no chip is known."""
        from .timeline import timeline

        return timeline(self)

    def on(self, hardware: Hardware) -> Cost:
        """The same cost with modelled seconds on ``hardware``."""
        from .roofline.roofline import model

        return replace(self, roofline=model(self, hardware))

    @property
    def unknown_trip_counts(self) -> tuple[str, ...]:
        """Names of loops that are counted once because their trip count is unknown."""
        return tuple(i.name for i in self.execution.unknown)

    @cached_property
    def unknown_flops(self) -> tuple[Instruction, ...]:
        """Executed instructions whose FLOPs are unknown, such as custom calls."""
        rows = np.flatnonzero(self.is_unit & np.isnan(self.flops))
        return tuple(self.module.instructions[n] for n in rows)

    @cached_property
    def estimated_cycles(self) -> dict[int, int]:
        """XLA:TPU's ``estimated_cycles`` of one execution, by instruction index."""
        out: dict[int, int] = {}
        for i in self.module.instructions:
            if "estimated_cycles" in i.attribute_text:
                m = _CYCLES.search(i.attribute_text)
                if m:
                    out[i.index] = int(m.group(1))
        return out

    @cached_property
    def total_estimated_cycles(self) -> float | None:
        """Sum over units × runs; None if the dump has no estimates."""
        if self.module.entry is None:
            return None
        found = [c * self.runs[n] for n, c in self.estimated_cycles.items() if self.is_unit[n]]
        return float(sum(found)) if found else None

    def row(self, instruction: Instruction | int) -> InstructionCost:
        """The row of one instruction, container or not."""
        n = instruction if isinstance(instruction, int) else instruction.index
        runs = float(self.runs[n])
        r = self.roofline
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
        )

    @cached_property
    def _order(self) -> npt.NDArray[np.int64]:
        r = self.roofline
        key = self.flops * self.runs if r is None else r.step_seconds
        bytes_ = self.bytes * self.runs
        rows = np.flatnonzero(self.is_unit & (self.runs > 0))
        some = rows[
            (np.nan_to_num(self.flops[rows], nan=1) > 0)
            | (self.bytes[rows] > 0)
            | (self.transcendentals[rows] > 0)
        ]
        return some[np.lexsort((some, -bytes_[some], -np.nan_to_num(key[some], nan=np.inf)))]

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[InstructionCost]:
        return (self.row(int(n)) for n in self._order)

    @cached_property
    def xla(self) -> tuple[XlaComparison, ...]:
        """XLA's own cost analysis beside ours: flops, transcendentals, bytes accessed."""
        given = self.target.cost_analysis
        once = count_runs(
            self.module, self.execution.calls, np.nan_to_num(self.flops), once=True
        ).runs[table(self.module).computation]
        calls = table(self.module).by_opcode(lambda o: o == "custom-call", bool)
        out = []
        for key, column in (
            ("flops", self.flops),
            ("transcendentals", self.transcendentals),
            ("bytes accessed", self.bytes),
        ):
            # inclusive columns already include loops; units contain none
            unit = np.nan_to_num(column) * self.is_unit
            ours = float((unit * self.runs).sum())
            single = float((unit * once).sum())
            custom = float((unit * once)[calls].sum())
            if key != "transcendentals":
                custom += float(once[calls & self.is_unit].sum())  # XLA's -1 each
            xla = float(given[key]) if key in given else None
            rest = None if xla is None else single - custom - xla
            out.append(XlaComparison(key, xla, ours, ours - single, custom, rest))
        return tuple(out)

    def to_dict(self) -> dict[str, Any]:
        """Totals as plain data: what ``summary --json`` shows."""
        out: dict[str, Any] = {
            "flops": _whole(self.total_flops),
            "matmul_flops": _whole(self.total_matmul_flops),
            "transcendentals": _whole(self.total_transcendentals),
            "bytes_accessed": _whole(self.total_bytes),
            "trip_counts_unknown": list(self.unknown_trip_counts),
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

    def to_pandas(self) -> pd.DataFrame:
        """One row per executed instruction with a cost, most expensive first. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "instruction": r.instruction.name,
                    "opcode": r.instruction.opcode,
                    "op_name": r.instruction.op_name,
                    "runs": r.runs,
                    "flops": r.flops,
                    "transcendentals": r.transcendentals,
                    "bytes_accessed": r.bytes_accessed,
                    "intensity": r.intensity,
                    "seconds": r.seconds,
                    "step_seconds": r.step_seconds,
                    "bound": r.bound,
                    "estimated_cycles": r.estimated_cycles,
                    "line": r.line,
                    "inferred": r.inferred,
                }
                for r in self
            ]
        )

    def __repr__(self) -> str:
        return cost_table(self)


_CYCLES = re.compile(r'"estimated_cycles"\s*:\s*"?(\d{1,15})')


def _whole(value: float) -> int | float | None:
    if value != value:
        return None
    return int(value) if value == int(value) else value


@per_target
def estimated(module: Module, target: Target) -> Cost:
    """``estimate`` on the target's chip, computed once per module and target."""
    return estimate(module, target, hardware=chip_of(target))


def chip_of(target: Target) -> Hardware | None:
    """The chip the user chose, else the one of the device kind; None if unknown."""
    if target.hardware:
        return find(target.hardware)
    return choose(target.device_kind, target.platform)


@uncollected
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
    t = table(module)
    work = flops_module.count(module)
    calls = call_graph(module)
    accessed = bytes_accessed(module, calls.executed)
    spaces = any(memory_space(leaf) for s in t.shapes for leaf in s.leaves())
    main = main_spaces(platform(module, target))
    in_main = bytes_accessed(module, calls.executed, only=main) if spaces else accessed
    execution = count_runs(
        module, calls, np.nan_to_num(work.flops) + np.nan_to_num(accessed) * 1e-3, trips=trips
    )
    container = t.by_opcode(lambda o: o in CONTAINERS or _names_again(o), bool)
    is_unit = calls.executed[t.computation] & ~container
    own_flops = _with_unknown_inside(work.flops, calls, t.computation)
    matrix = work.matrix_flops
    columns = [
        inclusive_sums(module, calls, c, execution.trips)[0]
        for c in (work.flops, work.transcendentals, work.matmul_flops, matrix, accessed, in_main)
    ]
    columns[0][own_flops] = np.nan
    cost = Cost(
        module=module,
        target=target,
        runs=execution.runs[t.computation],
        flops=columns[0],
        transcendentals=columns[1],
        matmul_flops=columns[2],
        matrix_flops=columns[3],
        bytes=columns[4],
        main_bytes=columns[5],
        is_unit=is_unit,
        work=work,
        execution=execution,
        matmul_dtype=_matmul_dtypes(module, calls, work),
    )
    return cost if hardware is None else cost.on(hardware)


def _matmul_dtypes(module: Module, calls: Calls, work: flops_module.Work) -> tuple[str, ...]:
    """Operand type of most matrix FLOPs of each instruction, fused instructions included."""
    heaviest: dict[int, tuple[float, str]] = {}  # by computation
    own = [d if k else "" for k, d in zip(work.kind, work.dtype, strict=True)]
    computation = table(module).computation
    for n in np.flatnonzero(np.nan_to_num(work.matrix_flops) > 0).tolist():
        c, own[n] = int(computation[n]), work.dtype[n]
        heaviest[c] = max(heaviest.get(c, (0.0, "")), (float(work.matrix_flops[n]), own[n]))
    for c in calls.order:
        for e in calls.below[c]:
            if e.role is Role.FUSED and e.callee in heaviest:
                own[e.caller] = heaviest[e.callee][1]
                heaviest[c] = max(heaviest.get(c, (0.0, "")), heaviest[e.callee])
    return tuple(own)


def _names_again(opcode: str) -> bool:
    return opcode.endswith(("-update", "-done")) and not opcode.startswith(
        ("all-", "collective-", "copy-", "send", "recv")
    )


def _with_unknown_inside(
    flops: Floats, calls: Calls, computation: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Instructions whose own FLOPs, or those of something fused into them, are unknown."""
    unknown = np.isnan(flops)
    some = np.zeros(len(calls.below), bool)
    some[computation[unknown]] = True
    if some.any():
        for c in calls.order:
            for e in calls.below[c]:
                if e.role is Role.FUSED and some[e.callee]:
                    unknown[e.caller] = True
                    some[c] = True
    return unknown
