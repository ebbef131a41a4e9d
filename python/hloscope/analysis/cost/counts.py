"""FLOPs, bytes and transfers of a program, before any chip is chosen.

    flops/              FLOPs of one execution, without called computations
    bytes_accessed.py   bytes of one execution, fusions at their boundary
    runs.py             how often each computation runs
       └─▶ Counts: per instruction, in total, and beside XLA's own figures

Only *units* are summed: instructions of executed computations that are not containers. The
figures of a container (while, call, conditional, async-start) include its contents.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module, Target
from ...hlo.opcodes import CONTROL
from ..base.collectives.async_opcodes import wrapped
from ..base.loops.trips import most_trips, runs_at_least_once
from ..base.memory_spaces import main_spaces, memory_space, platform
from ..base.table import per_devices, table
from ..flops.flops import Work, count_work
from ..flops.matrix_unit import filled_work
from ..text.results import Row
from .assumptions import FLOPS_PER_BYTE_OF_BRANCH, UNKNOWN_CYCLES
from .bytes_accessed import bytes_accessed
from .roofline.executed import find_transfers
from .roofline.transfers import Transfer
from .runs import (
    CallGraph,
    Role,
    Runs,
    branches_by_work,
    call_graph,
    count_runs,
    inclusive_sums,
    trip_counts,
)

Floats = npt.NDArray[np.float64]
C = TypeVar("C", bound="Counts")


@dataclass(frozen=True, slots=True, repr=False)
class XlaComparison(Row):
    """One of XLA's own totals beside ours, and the parts of the difference."""

    quantity: str
    xla: float | None  # None: the capture has no cost analysis of XLA
    ours: float
    loops: float  # ours beyond one trip per loop; XLA counts every body once
    custom_calls: float  # ours for custom calls; XLA counts -1 for each
    branches: float  # ours of the branches that count, beyond those with most of this quantity
    other: float | None  # the rest: ours - xla - loops - custom_calls - branches


@dataclass(frozen=True, eq=False)
class Counts:
    """What a program does on one device, whatever the chip.

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
    work: Work  # of one execution, without called computations
    execution: Runs
    matmul_dtype: tuple[str, ...]  # of most of the matrix FLOPs inside; "" if there are none

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
        """Transcendental functions (exp, log, tanh, …) that one execution evaluates."""
        return self._total(self.transcendentals)

    @cached_property
    def total_matmul_flops(self) -> float:
        """The part of ``total_flops`` in dots, convolutions and custom-call matmuls."""
        return self._total(self.matmul_flops)

    @cached_property
    def total_matrix_flops(self) -> float:
        """``total_matmul_flops`` plus what kernel authors declare: timed on the matrix unit."""
        return self._total(self.matrix_flops)

    def filled_flops(self, side: int) -> Floats:
        """``matrix_flops`` with what small dimensions leave empty in blocks of ``side``."""
        if not side:
            return self.matrix_flops
        own = filled_work(self.module, self.work, side)
        if own is self.work.matrix_flops or (own == self.work.matrix_flops).all():
            return self.matrix_flops
        return inclusive_sums(self.module, self.execution.calls, own, self.execution.trips)

    @cached_property
    def total_bytes(self) -> float:
        """Bytes accessed by one execution on one device."""
        return self._total(self.bytes)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Executed collectives as steps and bytes on the wire."""
        return find_transfers(self.module, self.target, self.execution.calls.executed)

    @property
    def unknown_trip_counts(self) -> tuple[str, ...]:
        """Names of loops that are counted once because their trip count is unknown."""
        return tuple(i.name for i in self.execution.unknown)

    @cached_property
    def may_not_run(self) -> tuple[str, ...]:
        """Names of those of ``unknown_trip_counts`` that may run 0 times.

        With one of them, totals are no lower bound: they count one trip.
        """
        return tuple(i.name for i in self.execution.unknown if not runs_at_least_once(i))

    @cached_property
    def most_trips(self) -> tuple[int | None, ...]:
        """How often each of ``unknown_trip_counts`` may run at most; None where nothing says."""
        return tuple(map(most_trips, self.execution.unknown))

    @cached_property
    def unknown_flops(self) -> tuple[Instruction, ...]:
        """Executed instructions whose FLOPs are unknown, such as custom calls."""
        rows = np.flatnonzero(self.is_unit & np.isnan(self.flops))
        return tuple(self.module.instructions[n] for n in rows)

    @cached_property
    def estimated_cycles(self) -> dict[int, int]:
        """XLA:TPU's ``estimated_cycles`` of one execution by instruction, where it has them."""
        return {n: c for n, c in self._written_cycles.items() if c < UNKNOWN_CYCLES}

    @cached_property
    def _written_cycles(self) -> dict[int, int]:
        out: dict[int, int] = {}
        for i in self.module.instructions:
            if "estimated_cycles" in i.attribute_text:
                m = _CYCLES.search(i.attribute_text)
                if m:
                    out[i.index] = int(m.group(1))
        return out

    @property
    def unknown_cycles(self) -> int:
        """Number of executed instructions for which XLA writes that it has no estimate."""
        written = self._written_cycles.items()
        return sum(c >= UNKNOWN_CYCLES and bool(self.is_unit[n]) for n, c in written)

    @cached_property
    def total_estimated_cycles(self) -> float | None:
        """Sum over units × runs, without ``unknown_cycles``; None if the dump has no estimates."""
        if self.module.entry is None:
            return None
        cycles = [c * self.runs[n] for n, c in self.estimated_cycles.items() if self.is_unit[n]]
        return float(sum(cycles)) if cycles else None

    @cached_property
    def xla(self) -> tuple[XlaComparison, ...]:
        """XLA's own cost analysis beside ours: flops, transcendentals, bytes accessed."""
        given = self.target.cost_analysis
        module, calls = self.module, self.execution.calls
        owner = table(module).computation
        once = count_runs(module, calls, self.execution.taken, {}).runs[owner]
        is_call = table(module).by_opcode(lambda o: o == "custom-call", bool)
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
            # XLA takes the branch with most of each quantity
            most = branches_by_work(module, calls, unit, {})
            as_xla = count_runs(module, calls, most, {}).runs[owner]
            every = float((unit * as_xla).sum())
            custom = float((unit * as_xla)[is_call].sum())
            if key != "transcendentals":
                custom += float(as_xla[is_call & self.is_unit].sum())  # XLA's -1 each
            xla = float(given[key]) if key in given else None
            rest = None if xla is None else every - custom - xla
            out.append(XlaComparison(key, xla, ours, ours - single, custom, single - every, rest))
        return tuple(out)

    def running(self: C, execution: Runs) -> C:
        """The same counts if computations run as often as ``execution`` says."""
        runs = execution.runs[table(self.module).computation]
        return replace(self, runs=runs, execution=execution)


_CYCLES = re.compile(r'"estimated_cycles"\s*:\s*"?(\d{1,20})')


def count(module: Module, target: Target, trips: Mapping[str, int] | None = None) -> Counts:
    """Count FLOPs and bytes of every instruction; ``trips`` sets trip counts by name of the loop.

    Raises ``ValueError`` for a loop name that the module does not have.
    """
    t = table(module)
    work = count_work(module)
    calls = call_graph(module)
    accessed = bytes_accessed(module, calls.executed)
    spaces = any(memory_space(leaf) for s in t.shapes for leaf in s.leaves())
    main = main_spaces(platform(module, target))
    in_main = bytes_accessed(module, calls.executed, only=main) if spaces else accessed
    heaviest = np.nan_to_num(work.flops) + np.nan_to_num(accessed) * FLOPS_PER_BYTE_OF_BRANCH
    by_loop = trip_counts(module, trips or {})
    taken = branches_by_work(module, calls, heaviest, by_loop)
    execution = count_runs(module, calls, taken, by_loop)
    container = t.by_opcode(lambda o: o in CONTROL or _names_again(o), bool)

    def inclusive(own: Floats) -> Floats:
        return inclusive_sums(module, calls, own, by_loop)

    flops = inclusive(work.flops)
    flops[_with_unknown_inside(work.flops, calls, t.computation)] = np.nan
    return Counts(
        module=module,
        target=target,
        runs=execution.runs[t.computation],
        flops=flops,
        transcendentals=inclusive(work.transcendentals),
        matmul_flops=inclusive(work.matmul_flops),
        matrix_flops=inclusive(work.matrix_flops),
        bytes=inclusive(accessed),
        main_bytes=inclusive(in_main),
        is_unit=calls.executed[t.computation] & ~container,
        work=work,
        execution=execution,
        matmul_dtype=_matmul_dtypes(module, calls, work),
    )


@per_devices
def counted(module: Module, target: Target) -> Counts:
    """``count``, computed once for all chips; ``target`` may be one with another chip."""
    return count(module, target)


def _matmul_dtypes(module: Module, calls: CallGraph, work: Work) -> tuple[str, ...]:
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
    """Whether it is a later half of an asynchronous operation that its start counts whole."""
    half = wrapped(opcode)
    return half is not None and half[1] != "start"


def _with_unknown_inside(
    flops: Floats, calls: CallGraph, computation: npt.NDArray[np.int64]
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
