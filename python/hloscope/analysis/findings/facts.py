"""What the rules need to know about a program, computed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module, StackFrame, Target
from ..base.lines.frames import is_library
from ..base.lines.lines import lines
from ..base.lines.op_name import BACKWARD, CALLED, FORWARD, parse_op_name
from ..base.memory_spaces import platform
from ..base.phases.names import phase_names
from ..base.phases.phases import phases
from ..base.table import Table, table
from ..comms.arrays import ShardedArray
from ..comms.collective import Collective
from ..comms.collectives import Collectives, collectives
from ..comms.sharding import is_partitioned, shardings
from ..cost.cost import Cost, estimated
from ..memory.categories import CATEGORIES
from ..memory.memory import Memory, analysed
from . import limits
from .finding import Finding
from .redundant import Redundant, redundant

# What XLA:CPU writes into the backend_config of its kernels.
_CPU_KERNELS = ("outer_dimension_partitions", "__ynn_fusion", "__onednn$")


def own_function(frame: StackFrame | None) -> tuple[str, ...]:
    """The name of the person's function that a line is in, if it has one; else ()."""
    name = (frame.function or "") if frame is not None and not is_library(frame.file) else ""
    last = name.rpartition(".")[2]
    return () if not last or last.startswith("<") else (name.replace("<locals>.", ""),)


class FindingLine(TypedDict):
    """Of ``Finding``: the line, and whether it is inferred."""

    frame: StackFrame | None
    inferred: bool


@dataclass(frozen=True, eq=False)
class Facts:
    """One program on one target. Seconds are modelled, per step and device."""

    module: Module
    target: Target

    @cached_property
    def table(self) -> Table:
        return table(self.module)

    @cached_property
    def is_optimised(self) -> bool:
        """Whether XLA's passes have run: only then do memory traffic and schedule mean much.

        Before them nothing is fused, so every elementwise step would count as memory traffic.
        """
        m = self.module
        if m.is_scheduled:
            return True
        return bool(len(self.table.where("fusion"))) and is_partitioned(m)

    @property
    def is_shared(self) -> bool:
        """Whether several devices run it, partitioned or about to be."""
        return self.module.num_partitions > 1 or len(self.target.devices) > 1

    @property
    def on_host(self) -> bool:
        """Whether the devices are one CPU: no wire between them, and no chip to plan for."""
        return self.target.platform == "cpu" and not self.target.hardware

    @cached_property
    def no_wire(self) -> str:
        """Why nobody knows how long its collectives take on the wire; "" if it is known."""
        if not len(self.collectives):
            return ""
        if self.on_host:
            return "its devices are CPUs of one host, with no wire between them"
        return "no chip is known" if self.cost.roofline is None else ""

    @cached_property
    def made_for_cpu(self) -> bool:
        """Whether XLA:CPU compiled it, whatever chip is chosen: it widens narrow types itself and
        lays arrays out for its own kernels, which shows nothing about the chip.
        """
        if self.target.platform or platform(self.module, self.target):
            return self.target.platform == "cpu"
        return any(sign in text for text in self.module.attribute_texts[1] for sign in _CPU_KERNELS)

    @cached_property
    def cost(self) -> Cost:
        return estimated(self.module, self.target)

    @cached_property
    def memory(self) -> Memory:
        return analysed(self.module, self.target)

    @cached_property
    def points(self) -> dict[int, int]:
        """When each instruction runs, as a position in the memory's schedule."""
        return {n: t for t, n in enumerate(self.memory.schedule.tolist())}

    @cached_property
    def collectives(self) -> Collectives:
        return collectives(self.module, self.target)

    @cached_property
    def runs(self) -> npt.NDArray[np.float64]:
        """Executions of each instruction in one step; 0 for what is fused or applied."""
        return np.where(self.cost.is_unit, self.cost.runs, 0.0)

    @cached_property
    def seconds(self) -> npt.NDArray[np.float64] | None:
        """What each instruction adds to the modelled step; None without a chip."""
        r = self.cost.roofline
        return None if r is None else np.nan_to_num(r.step_seconds)

    @cached_property
    def total_seconds(self) -> float | None:
        r = self.cost.roofline
        return r.total_seconds if r is not None and r.total_seconds > 0 else None

    @cached_property
    def _roles(self) -> dict[int, tuple[str, str]]:
        live, category = self.memory.liveness, self.memory.category
        out = {}
        for p in self.module.entry.parameters if self.module.entry is not None else ():
            nodes = live.values.nodes(p)
            if len(nodes):
                b = int(live.buffer_of[nodes[0]])
                out[p.index] = CATEGORIES[category[b]], self.memory.value(b).name
        return out

    def role(self, parameter: Instruction) -> tuple[str, str]:
        """("parameter", "w['up']") of a parameter of ENTRY: what the step uses it as."""
        return self._roles.get(parameter.index, ("", parameter.name))

    @cached_property
    def weights(self) -> set[str]:
        """Names of the arguments that are parameters of the model."""
        return {name for role, name in self._roles.values() if role == "parameter"}

    def is_cut_over(self, parameter: Instruction, row: Collective) -> bool:
        """Whether the devices of each group of a collective hold different parts of an argument."""
        array = self._given.get(parameter.index)
        if array is None or row.groups is None or row.groups.pairs is not None:
            return False
        tiles = array.sharding.coordinates(len(array.global_shape), self.module.num_partitions)
        groups = row.groups.rows()
        return max(map(max, groups)) < len(tiles) and all(
            len({tuple(tiles[d].tolist()) for d in g}) == len(g) > 1 for g in groups
        )

    def is_given_whole(self, name: str) -> bool:
        """Whether each device is known to be given all of the argument of this name."""
        mine = [a for k, a in self._given.items() if self._roles.get(k, ("", ""))[1] == name]
        return bool(mine) and not any(a.sharding.is_sharded for a in mine)

    @cached_property
    def _given(self) -> dict[int, ShardedArray]:
        """Arguments with a known sharding, by the index of their parameter."""
        found = shardings(self.module, self.target)
        return {
            a.instruction.index: a
            for a in found
            if a.role == "parameter" and a.instruction is not None and a.sharding.is_known
        }

    @cached_property
    def redundant(self) -> tuple[Redundant, ...]:
        """Lines whose work several devices do alike."""
        return redundant(self.module, self.target)

    @cached_property
    def redundant_share(self) -> float:
        """Part of a device's matrix FLOPs that other devices compute too."""
        total = self.cost.total_matrix_flops
        products = self.cost.work.matrix_flops
        extra = sum(
            r.extra for r in self.redundant if any(products[i.index] > 0 for i in r.instructions)
        )
        return min(1.0, extra / total) if total else 0.0

    @cached_property
    def unknown_products(self) -> bool:
        """Whether FLOPs are unknown of something that runs: a kernel may multiply."""
        return any(self.cost.runs[i.index] > 0 for i in self.cost.unknown_flops)

    @cached_property
    def filled(self) -> npt.NDArray[np.float64]:
        """Matrix FLOPs of one execution with those that small dimensions leave idle."""
        chip = self.cost.hardware
        return self.cost.filled_flops(chip.matrix_side if chip is not None else 0)

    @cached_property
    def moved(self) -> npt.NDArray[np.float64]:
        """Bytes accessed by all executions, one row per instruction."""
        return np.nan_to_num(self.cost.bytes) * self.runs

    def traffic(self, rows: Iterable[Instruction]) -> int | None:
        """Bytes that instructions read and write in main memory in a step; None if none: a copy
        within VMEM takes time, but none of the memory's bandwidth."""
        total = sum(float(self.cost.main_bytes[i.index] * self.runs[i.index]) for i in rows)
        return int(total) or None

    def time_share(self, seconds: float | None, moved: float) -> float:
        """Part of the modelled step; without a chip, part of all bytes accessed."""
        if seconds is not None and self.total_seconds:
            return seconds / self.total_seconds
        total = float(self.moved.sum())
        return moved / total if total else 0.0

    def wire_share(self, wire_bytes: float | None, seconds: float | None) -> float:
        """Part of the modelled step; without a chip, half the part of all bytes on the wire.

        Wire bytes that are unknown (None) weigh nothing.

        Hidden time on the wire costs nothing now, but unnecessary transfers take the place of
        others: it counts a tenth.
        """
        wire_bytes = wire_bytes or 0
        if seconds is not None and self.total_seconds:
            hidden = 0.0
            if self.collectives.wire_bytes:
                hidden = limits.HIDDEN_WIRE_WEIGHT * wire_bytes / self.collectives.wire_bytes
            return max(seconds / self.total_seconds, min(limits.HIDDEN_WIRE_MOST, hidden))
        total = self.collectives.wire_bytes
        return limits.UNMODELLED_WIRE_WEIGHT * wire_bytes / total if total else 0.0

    @property
    def scarce_bytes(self) -> float:
        """Negligible memory: 0.5 % of the chip's, 64 MiB where that is not known."""
        chip = self.cost.hardware
        if self.on_host:
            return 0.0
        return (
            limits.SCARCE_SHARE * chip.memory_bytes
            if chip is not None
            else float(limits.SCARCE_BYTES)
        )

    def peak_share(self, held: float) -> float:
        """Part of the peak; worth less while the chip has room for ten times as much."""
        peak = self.memory.peak_bytes
        if not peak:
            return 0.0
        chip = self.cost.hardware
        room = chip.memory_bytes if chip is not None else None
        roomy = room and not self.on_host and peak < limits.ROOMY_SHARE * room
        return held / peak * (limits.ROOMY_WEIGHT if roomy else 1.0)

    @cached_property
    def _transfers(self) -> dict[int, tuple[float, float]]:
        """Modelled seconds (on the wire, waited for) of all executions, by start."""
        r = self.cost.roofline
        out: dict[int, tuple[float, float]] = {}
        if r is not None:
            rows = zip(r.transfers, r.transfer_seconds, r.waited_seconds, strict=True)
            for t, each, waited in rows:
                wire, before = out.get(t.start, (0.0, 0.0))
                wire += float(each) * float(self.cost.runs[t.start])
                out[t.start] = (wire, before + float(waited))
        return out

    def seconds_of_wire(self, members: Iterable[int]) -> float | None:
        """Modelled seconds of a collective's members on the wire; None without a chip."""
        if self.cost.roofline is None:
            return None
        return sum(self._transfers.get(m, (0.0, 0.0))[0] for m in members)

    def waited(self, members: Iterable[int]) -> float | None:
        """The part of ``seconds_of_wire`` that the chip waits for."""
        if self.cost.roofline is None:
            return None
        return sum(self._transfers.get(m, (0.0, 0.0))[1] for m in members)

    def phase(self, i: Instruction) -> str:
        return phase_names(self.module)[int(phases(self.module)[i.index])]

    def at(self, i: Instruction | None) -> FindingLine:
        """The line of an instruction, as a finding has it: ``Finding(…, **facts.at(i))``."""
        frame, inferred = self.line(i) if i is not None else (None, False)
        return {"frame": frame, "inferred": inferred}

    def line(self, i: Instruction) -> tuple[StackFrame | None, bool]:
        """The Python line of an instruction, and whether it is inferred."""
        known = lines(self.module)
        return known.of(i), bool(known.inferred[i.index])

    def scope(self, finding: Finding) -> str:
        """The scope that a finding is about, where its line is unknown or a library's."""
        frame = finding.frame
        if frame is not None and not is_library(frame.file):
            return ""
        known = lines(self.module)
        same = (i for i in finding.instructions if known.of(i) == frame)
        for i in (*islice(same, 1), *finding.instructions[:1]):
            path = parse_op_name(i.op_name) or parse_op_name((known.serves(i) or i).op_name) or ()
            names = [n.removesuffix(CALLED) for n in path if n not in (FORWARD, BACKWARD)]
            if names:
                return "/".join(names)
        return ""

    def code(self, frame: StackFrame | None) -> str:
        """The text of a line, where the capture kept the file; else ""."""
        text = self.target.sources.get(frame.file) if frame is not None else None
        if text is None or frame is None:
            return ""
        lines = text.splitlines()
        return lines[frame.line - 1].strip() if 0 < frame.line <= len(lines) else ""

    def expression(self, frame: StackFrame) -> str:
        """What a frame is of its line: ``gelu(h @ w)``; "" where that is unknown or not short."""
        text = self.target.sources.get(frame.file, "").splitlines()[frame.line - 1 : frame.line]
        if not text or frame.column is None or frame.end_line != frame.line:
            return ""
        found = text[0].encode()[frame.column : frame.end_column].decode(errors="replace")
        return found if len(found) <= limits.SHORT_EXPRESSION else ""
