"""Modelled seconds on a chip: not measured, from the few assumptions stated here.

An instruction takes as long as its scarcest resource (Williams, Waterman, Patterson 2009,
"Roofline"), a collective as the alpha-beta model says (``transfers.py``):

    seconds = max( matmul FLOPs, with what blocks of a systolic unit are filled up by,
                   / peak of the operand type, or all on the vector units if that is quicker,
                   other FLOPs + transcendentals / peak of the vector units,
                   bytes accessed in main memory / its bandwidth )
    seconds = steps · latency + bytes / bandwidth of a link, near and far in parallel

Instructions run one after another, but copies to VMEM and to the host run in parallel to all of
them (``copies.py``): they use the bandwidth that the others leave, and cost time only for
the rest.

An asynchronous collective runs in parallel to what is scheduled between its start and its done,
one transfer at a time on the wire (there are two: the far one, for exchanges between slices, is
separate):

    schedule   start ─ fusion ─ fusion ─ done            compute  ████████▒▒▒
    wire             ███████████████████                 ▒ exposed: the done waits

Peaks are vendors' figures; real programs reach only part of them, so times are lower bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ....hardware import Hardware
from ....hlo import Instruction, Module
from ....hlo.collective_kinds import is_collective
from ...base.table import table
from ...text.units import duration, marked
from ..assumptions import BLOCK_SIZES, NEGLIGIBLE_SHARE
from ..chip import for_target
from ..copies import copies
from ..counts import Counts
from .executed import slice_of
from .transfers import Transfer

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
BOUNDS = ("", "compute", "vector", "memory", "collective", "unknown", "copy")
_NOTHING, _COMPUTE, _VECTOR, _MEMORY, _COLLECTIVE, _UNKNOWN, _COPY = range(len(BOUNDS))


@dataclass(frozen=True, eq=False)
class Roofline:
    """Modelled seconds; columns have one row per instruction and are for one execution.

    ``seconds`` of a unit is NaN if a rate or its FLOPs are unknown; it is 0 for instructions that
    are not units. ``least`` is then what is known of it: the time of its bytes, and of its matrix
    FLOPs at the chip's fastest rate for any type; 0 for all others. ``exposed`` is how long a done
    waits for its transfer, in the row of the done.
    """

    hardware: Hardware
    seconds: Floats
    bound_by: npt.NDArray[np.int8]  # index into BOUNDS
    transfers: tuple[Transfer, ...]
    transfer_seconds: Floats  # one row per transfer
    exposed: Floats
    runs: Floats
    unmodelled: tuple[Instruction, ...]
    least: Floats
    copy_seconds: float = 0.0  # of asynchronous copies, if nothing else ran
    copy_wait_seconds: float = 0.0  # the part that other instructions leave no room for
    assumed_slice: tuple[int, ...] = ()  # if the devices' positions are unknown

    def bound(self, n: int) -> str:
        """ "compute", "vector", "memory", "collective", "copy", "unknown" or ""."""
        return BOUNDS[self.bound_by[n]]

    def _sum(self, *bounds: str) -> float:
        chosen = np.isin(self.bound_by, [BOUNDS.index(b) for b in bounds])
        return float(np.nansum(self.seconds[chosen] * self.runs[chosen]))

    @cached_property
    def compute_seconds(self) -> float:
        """Time of instructions bound by the matrix or vector units."""
        return self._sum("compute", "vector")

    @cached_property
    def memory_seconds(self) -> float:
        """Time of instructions bound by memory bandwidth."""
        return self._sum("memory")

    @cached_property
    def collective_seconds(self) -> float:
        """Time on the wire, hidden or not."""
        starts = np.array([t.start for t in self.transfers], np.int64)
        return float((self.transfer_seconds * self.runs[starts]).sum()) if len(starts) else 0.0

    @cached_property
    def exposed_seconds(self) -> float:
        """The part of ``collective_seconds`` during which nothing else runs."""
        return float((self.exposed * self.runs).sum())

    @property
    def overlapped_seconds(self) -> float:
        return max(0.0, self.collective_seconds - self.exposed_seconds)

    @cached_property
    def step_seconds(self) -> Floats:
        """What each instruction adds to ``total_seconds``, all executions; NaN if unknown.

        Of one whose ``seconds`` are unknown it is the ``least``, if anything of it is known.
        The only per-instruction seconds that may be summed; ``seconds`` overlap. A transfer adds
        the time waited for it, in the row of its start, and an asynchronous copy its share of
        ``copy_wait_seconds``.
        """
        beside = np.isin(self.bound_by, (_COLLECTIVE, _COPY))
        alone = ~beside & (self.runs > 0)
        out = np.where(alone, self.seconds * self.runs, 0.0)
        for t, waited in zip(self.transfers, self.waited_seconds.tolist(), strict=True):
            out[t.start] += waited
        out[(self.bound_by == _COLLECTIVE) & np.isnan(self.seconds) & (self.runs > 0)] = np.nan
        out = np.where(self.least > 0, self.least * self.runs, out)
        if self.copy_seconds > 0:
            moved = np.where(self.bound_by == _COPY, self.seconds * self.runs, 0.0)
            out += moved * (self.copy_wait_seconds / self.copy_seconds)
        return out

    @cached_property
    def waited_seconds(self) -> Floats:
        """Seconds waited for each transfer, all executions; those of one done share by length."""
        wire: dict[int, float] = {}
        for t, s in zip(self.transfers, self.transfer_seconds.tolist(), strict=True):
            wire[t.done] = wire.get(t.done, 0.0) + s
        return np.array([
            float(self.exposed[t.done] * self.runs[t.done]) * (s / wire[t.done] if s else 0.0)
            for t, s in zip(self.transfers, self.transfer_seconds.tolist(), strict=True)
        ])  # fmt: skip

    @property
    def total_seconds(self) -> float:
        """Compute, memory, exposed communication and copies of one execution.

        Of instructions whose time is unknown it holds the least that they take: ``is_least``.
        """
        busy = self.compute_seconds + self.memory_seconds + self.least_seconds
        return busy + self.exposed_seconds + self.copy_wait_seconds

    @cached_property
    def least_seconds(self) -> float:
        """The least that instructions of unknown time take, all executions."""
        return float((self.least * self.runs).sum())

    @cached_property
    def is_least(self) -> bool:
        """Whether ``total_seconds`` is a lower bound even of the model: some time is unknown."""
        return any(self.runs[i.index] > 0 for i in self.unmodelled) or bool(self.unknown_transfers)

    @cached_property
    def unknown_transfers(self) -> int:
        """Number of executed collectives whose time is unknown."""
        of = self.bound_by == _COLLECTIVE
        return int((of & np.isnan(self.seconds) & (self.runs > 0)).sum())

    @property
    def known_seconds(self) -> float | None:
        """``total_seconds``; None if it is 0 only because the time of instructions is unknown."""
        unknown = any(self.runs[i.index] > 0 for i in self.unmodelled)
        return None if unknown and not self.total_seconds else self.total_seconds

    def to_dict(self) -> dict[str, Any]:
        sent, waited = (
            None if self.unknown_transfers and not s else s
            for s in (self.collective_seconds, self.exposed_seconds)
        )
        least: dict[str, Any] = {"communication_is_least": True} if self.unknown_transfers else {}
        if self.least_seconds:
            least |= {"of_unknown_at_least": self.least_seconds}
        if self.is_least:
            least |= {"total_is_least": True}
        return {
            "hardware": self.hardware.id,
            "modelled_seconds": {
                "compute": self.compute_seconds,
                "memory": self.memory_seconds,
                "collective": sent,
                "exposed": waited,
                "copies": self.copy_wait_seconds,
                "total": self.known_seconds,
            }
            | least,
            "not_modelled": [i.name for i in self.unmodelled],
        }

    def text(self, *, is_least: bool = False, is_one_trip: bool = False) -> list[str]:
        """A few lines for the reader; what the total is where loops have no known trip count."""
        found = self.to_dict()["modelled_seconds"]
        total = duration(found["total"])
        if found["total"] is not None:
            is_least |= self.is_least
            total = marked(total, is_least=is_least, is_one_trip=is_one_trip)
        lines = [
            f"modelled on {self.hardware.label}: {total}"
            f" = compute {duration(self.compute_seconds)} + memory"
            f" {duration(self.memory_seconds)} + exposed communication"
            f" {duration(found['exposed'])}"
            + (f" + copies {duration(self.copy_wait_seconds)}" if self.copy_wait_seconds else "")
            + (
                f" + at least {duration(self.least_seconds)} of what is not modelled"
                if self.least_seconds
                else ""
            )
        ]
        hidden = self.copy_seconds - self.copy_wait_seconds
        if self.copy_seconds and hidden > NEGLIGIBLE_SHARE * self.copy_seconds:
            lines.append(f"copies to and from VMEM and the host beside it: {duration(hidden)}")
        if self.assumed_slice:
            shape = "×".join(map(str, self.assumed_slice))
            lines.append(f"the devices' places on the torus are unknown: {shape} is assumed")
        if self.overlapped_seconds > NEGLIGIBLE_SHARE * self.collective_seconds:
            lines.append(
                f"communication hidden behind compute: {duration(self.overlapped_seconds)}"
            )
        if self.unmodelled:
            lines.append(
                f"of unknown time, counted by what is known of it: {len(self.unmodelled):,}"
            )
        return lines


def reach(hardware: Hardware) -> int:
    """Index into ``Transfer.levels`` for the chip's near link: blocks of 2**k devices, or all."""
    group = hardware.links[0].group if hardware.links else 0
    return BLOCK_SIZES if not group else min(BLOCK_SIZES, group.bit_length() - 1)


def transfer_time(hardware: Hardware, t: Transfer) -> float:
    """Seconds of one execution; NaN if the chip has no interconnect."""
    if not hardware.links:
        return float("nan")
    near, far = hardware.links[0], hardware.links[-1]
    level = t.levels[reach(hardware)]
    steps, sent = level.torus if near.kind == "torus" else level.switch
    far_steps, far_sent = level.far
    return (
        steps * near.latency
        + far_steps * far.latency
        + max(sent / near.bytes_per_second, far_sent / far.bytes_per_second)
    )


@dataclass(frozen=True, eq=False)
class _Alone:
    """Seconds of one execution of each unit if nothing else ran, and of its memory traffic.

    ``least``: of a unit whose seconds are unknown, those of its resources that are known.
    """

    seconds: Floats
    bound_by: npt.NDArray[np.int8]
    memory: Floats
    least: Floats


def _alone(counts: Counts, hardware: Hardware) -> _Alone:
    """The scarcest resource of each unit: matrix units, vector units or memory."""
    n = len(counts.module.instructions)
    dtypes = sorted(set(counts.matmul_dtype))
    rates = np.array([hardware.matmul_rate(d) or np.nan for d in dtypes], np.float64)
    rate = rates[np.searchsorted(dtypes, counts.matmul_dtype)] if n else np.zeros(0)
    filled = counts.filled_flops(hardware.matrix_side)
    matmul = np.divide(filled, rate, out=np.zeros(n), where=filled > 0)
    if hardware.vector and hardware.matrix_side:  # tiny products are quicker there
        full = np.divide(counts.matrix_flops, rate, out=np.zeros(n), where=filled > 0)
        on_vectors = np.maximum(full, counts.matrix_flops / hardware.vector)
        matmul = np.minimum(matmul, on_vectors)
    other = counts.flops - counts.matrix_flops + counts.transcendentals
    vector = other / hardware.vector if hardware.vector else np.where(np.isnan(other), np.nan, 0.0)
    memory = counts.main_bytes / hardware.memory_bandwidth
    stacked = np.vstack([matmul, vector, memory])  # in the order of BOUNDS from _COMPUTE
    seconds = stacked.max(axis=0, initial=0.0)
    scarcest = np.where(seconds > 0, stacked.argmax(axis=0) + _COMPUTE, _NOTHING)
    bound = np.where(np.isnan(seconds), _UNKNOWN, scarcest)
    # no type is multiplied faster than the fastest one
    fastest = max(hardware.matmul.values(), default=np.inf)
    known = np.nan_to_num(np.vstack([stacked, counts.matrix_flops / fastest]))
    least = np.where(np.isnan(seconds) & counts.is_unit, known.max(axis=0, initial=0.0), 0.0)
    return _Alone(
        np.where(counts.is_unit, seconds, 0.0),
        np.where(counts.is_unit, bound, _NOTHING).astype(np.int8),
        memory,
        least,
    )


def model(counts: Counts, hardware: Hardware) -> Roofline:
    """Modelled seconds of every unit on ``hardware``.

    Collectives and asynchronous copies run in parallel to the rest: a collective takes the time
    of its transfer, and a copy that of the bandwidth or link that it uses.
    """
    hardware = for_target(hardware, counts.target)
    module, runs = counts.module, counts.runs
    transfers = counts.transfers
    wire = np.array([transfer_time(hardware, t) for t in transfers], np.float64)
    alone = _alone(counts, hardware)
    seconds, bound = alone.seconds, alone.bound_by
    moved = copies(module)
    is_copy = moved.is_copy & counts.is_unit
    collective = table(module).by_opcode(is_collective, bool)
    # a collective is its transfer; fusions around one still compute
    seconds[collective | is_copy] = 0.0
    bound[collective | is_copy] = _NOTHING
    least = np.where(collective | is_copy, 0.0, alone.least)
    exposed = exposed_seconds(module, np.nan_to_num(seconds) + least, transfers, wire)
    busy = np.nan_to_num(seconds) + least
    for t, s in zip(transfers, wire, strict=True):
        if collective[t.start]:
            seconds[t.start], bound[t.start] = s, _COLLECTIVE
    link = hardware.host_bandwidth or hardware.memory_bandwidth
    on_host = np.vstack([moved.from_host, moved.to_host]) / link
    copying = np.where(is_copy, np.maximum(alone.memory, on_host.max(axis=0)), 0.0)
    seconds[is_copy] = copying[is_copy]
    bound[copying > 0] = _COPY
    # Copies have the bandwidth that computation leaves over, and the host link for the whole step.
    waited = float((exposed * runs).sum())
    beside = counts.is_unit & ~is_copy & ~collective
    left = np.where(beside, np.maximum(0.0, busy - np.nan_to_num(alone.memory)), 0.0)
    too_little = float((np.where(is_copy, alone.memory, 0.0) * runs).sum() - (left * runs).sum())
    over_link = float((np.where(is_copy, on_host, 0.0) * runs).sum(axis=1).max())
    torus = bool(hardware.links) and hardware.links[0].kind == "torus"
    assumed = torus and not all(t.torus_is_known for t in transfers)
    return Roofline(
        hardware=hardware,
        seconds=seconds,
        bound_by=bound,
        transfers=transfers,
        transfer_seconds=np.nan_to_num(wire),
        exposed=exposed,
        runs=runs,
        unmodelled=tuple(module.instructions[k] for k in np.flatnonzero(np.isnan(seconds))),
        least=least,
        copy_seconds=float((copying * runs).sum()),
        copy_wait_seconds=max(
            0.0, too_little - waited, over_link - float((busy * runs).sum()) - waited
        ),
        assumed_slice=slice_of(module, counts.target) if assumed else (),
    )


def exposed_seconds(
    module: Module,
    seconds: Floats,
    transfers: Sequence[Transfer],
    wire: Floats,
) -> Floats:
    """Seconds each done waits, from a walk through every computation's schedule."""
    out = np.zeros(len(seconds))
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    for k, t in enumerate(transfers):
        starting.setdefault(t.start, []).append(k)
        ending.setdefault(t.done, []).append(k)
    touched = {int(module.instructions[t.start].computation.index) for t in transfers}
    busy = np.nan_to_num(seconds)
    for c in touched:
        clock = 0.0
        wire_free = [0.0, 0.0]  # near wire, far wire
        until: dict[int, float] = {}
        for i in module.computations[c].instructions:
            n = i.index
            for k in starting.get(n, ()):
                which = int(transfers[k].is_far)
                until[k] = max(clock, wire_free[which]) + float(np.nan_to_num(wire[k]))
                wire_free[which] = until[k]
            clock += float(busy[n])
            for k in ending.get(n, ()):
                wait = max(0.0, until.get(k, clock) - clock)
                out[n] += wait
                clock += wait
    return out
