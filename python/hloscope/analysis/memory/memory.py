"""Memory of one device: live bytes over the schedule, what holds them, and XLA's own figures.

    liveness/             live ranges, simulated from the schedule
    categories.py         what each buffer is for
    audit.py              donation, copies of parameters
    carries.py            what loops carry: what a remat policy actually stores
    lines.py              the source line of each buffer
    if_donated.py         what is simulated if more arguments were donated
    peaks.py              the peak of each memory
       └─▶ Memory

Four peaks of the device's main memory, each labelled; ``spaces`` has those of other memories.
``peak_bytes`` is the best of them plus the program's constants:

* ``simulated_bytes``: the timeline's highest point, with arguments and outputs held throughout.
  The program with its constants is extra; so is heap fragmentation, except on TPU.
* ``allocated_bytes``: arguments + outputs + temporaries - aliases, of XLA's ``memory_analysis``.
* ``assigned_bytes``: sum of XLA's allocations, exact, if the buffer assignment is known.
* ``xla_peak_bytes``: ``peak_memory_in_bytes`` as XLA reports it. On CPU it leaves out all
  temporaries (the buffer assignment has no heap trace); on TPU it is all allocations outside the
  heaps, constants included, plus the largest peak of the heap traces, which may be VMEM's. So it is
  shown but not used on either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module, Shape, StackFrame, Target
from ..base.dialects import needs_hlo
from ..base.lines.frames import own_line
from ..base.lines.lines import lines, said
from ..base.memory_spaces import MAIN, main_spaces, platform, space_name
from ..base.pause import uncollected
from ..base.phases.names import phase_names
from ..base.phases.phases import phases
from ..base.table import per_devices
from ..comms.partitions import whose
from ..grouping.scopes import scopes
from ..text.results import Row, Rows
from ..text.units import exact_size, grid, printed, short, size
from .audit import Donation, ParameterCopy, audit_donations, find_parameter_copies
from .carries import Loop, Residual, find_loops, find_residuals
from .categories import CATEGORIES, argument_names, categorise
from .if_donated import copied_if_donated, if_donated
from .limits import POINTER_BYTES, TPU_RESULT_TABLE_BYTES
from .lines import buffer_frames
from .liveness.liveness import KINDS, Liveness
from .liveness.simulate import simulate
from .liveness.values import ARGUMENT, OUTPUT
from .peaks import MemorySpace, allocated, assigned, heap_padding, peaks_beside_main

if TYPE_CHECKING:
    pass

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, repr=False)
class LiveValue(Row):
    """A buffer that holds memory. Bytes include tile padding; points are schedule positions.

    ``home`` is the output or donated argument in whose memory it is (its name), or "".
    ``offset`` is XLA's, within ``allocation``, if the buffer assignment is known. ``frame`` is
    the id of its innermost stack frame, see ``frames`` and ``line``.
    """

    instruction: Instruction
    leaf: int
    shape: Shape
    bytes: int
    padding_bytes: int
    memory_space: int
    kind: str  # "argument", "output", "temp", "constant"
    category: str
    phase: str
    start: int
    end: int
    name: str  # an argument's name, else the instruction's
    home: str = ""
    allocation: int | None = None
    offset: int | None = None
    frame: int = 0
    scope: str = ""  # "layer_0/mlp"; "" for arguments and outside all scopes
    category_source: str = "phase"  # or "data flow", "name": what decided ``category``

    def to_dict(self) -> dict[str, Any]:
        """Its values as plain data; ``memory_space`` is its number."""
        return {
            "name": self.name,
            "bytes": self.bytes,
            "category": self.category,
            "category_source": self.category_source,
            "kind": self.kind,
            "phase": self.phase,
            "shape": self.shape.dense_text,
            "start": self.start,
            "end": self.end,
            "memory_space": self.memory_space,
            "padding_bytes": self.padding_bytes,
            "op_name": self.op_name,
            "scope": self.scope,
            "line": self.line,
            "inferred": self.inferred,
            "allocation": self.allocation,
            "offset": self.offset,
        }

    @property
    def op_name(self) -> str:
        return self.instruction.op_name

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """Python stack, innermost frame first; () for arguments and if unknown.

        That of the instruction, else of what it serves (``inferred``); for an array that a loop
        stacks, that of the stored value.
        """
        return self.instruction.module.source_frames()[0].stack(self.frame)

    @property
    def inferred(self) -> str:
        """How the line was inferred if the instruction has none: "layout for `dot.89`"."""
        return lines(self.instruction.module).why(self.instruction) if self.frame else ""

    @property
    def line(self) -> str:
        """ "file:line", the innermost outside installed packages; "" if there is none."""
        at = own_line(self.frames)
        return "" if at is None else f"{at.file}:{at.line}"


@dataclass(frozen=True, eq=False, repr=False)
class Memory(Rows[LiveValue]):
    """The value of ``cap.memory``. Iterate it for the values live at the peak, largest first."""

    module: Module
    target: Target
    liveness: Liveness
    category: npt.NDArray[np.int8]  # by buffer, index into CATEGORIES
    # buffer → "data flow" or "name": what decided its category, if not phases alone
    category_source: Mapping[int, str]
    timeline: Ints  # schedule position → live bytes of the device's main memory
    platform: str  # "tpu", "gpu", "cpu", "" if unknown; gives the meaning of memory spaces

    @property
    def schedule(self) -> Ints:
        """Schedule position → instruction index; called computations come before their caller."""
        return self.liveness.schedule

    @cached_property
    def table_bytes(self) -> int:
        """Bytes of the index table of a tuple result: pointers on CPU and GPU, one tile on TPU."""
        entry = self.module.entry
        if entry is None or entry.root is None or not entry.root.shape.is_tuple:
            return 0
        return TPU_RESULT_TABLE_BYTES if self.platform == "tpu" else _tables(entry.root.shape)

    @cached_property
    def main_spaces(self) -> tuple[int, ...]:
        """The memory spaces, ``S(n)`` in layouts, that are the device's main memory."""
        return main_spaces(self.platform)

    @cached_property
    def heap_padding_bytes(self) -> int:
        """Bytes that TPU's heap takes beyond the values in it; 0 on other platforms."""
        return heap_padding(self.liveness, self.timeline) if self.platform == "tpu" else 0

    @cached_property
    def constant_bytes(self) -> int:
        """Bytes of constants outside fusions, such as weights that a function closes over.

        The device holds them as long as the program is loaded. Constants of a few elements are
        left out: they are immediates of the code.
        """
        live = self.liveness
        there = live.is_loaded & np.isin(live.space, self.main_spaces)
        return int(live.size[there].sum())

    @property
    def simulated_bytes(self) -> int:
        """Highest point of the timeline without constants, plus tuple index tables and heap
        padding: what XLA allocates for a run."""
        highest = int(self.timeline.max(initial=0)) - self.constant_bytes
        return highest + self.table_bytes + self.heap_padding_bytes

    @cached_property
    def assigned_bytes(self) -> int | None:
        """Sum of XLA's allocations in main memory except thread-local ones and constants; None
        if unknown."""
        return assigned(self.module, self.main_spaces)

    @property
    def allocated_bytes(self) -> int | None:
        """Arguments + outputs + temporaries - aliases of XLA's ``memory_analysis``; None if not
        given. The program itself is extra."""
        return allocated(self.target)

    def gain_if_donated(
        self, parameters: Collection[int], *, retyped: bool = False, before_schedule: bool = False
    ) -> int:
        """Bytes by which the peak falls if these parameters of ENTRY are donated as well.

        ``retyped``: and outputs of their dimensions are of their type and layout.
        ``before_schedule``: copies are inserted before there is a schedule, as by XLA:CPU.
        """
        asked = frozenset(parameters), retyped, before_schedule
        if asked not in self._gains:
            self._gains[asked] = self._gain_if_donated(*asked)
        return self._gains[asked]

    def copied_if_donated(self, parameters: Collection[int]) -> tuple[Instruction, ...]:
        """Parameters of ENTRY that XLA:CPU copies first if these are donated as well."""
        return copied_if_donated(self.liveness, parameters)

    @cached_property
    def _gains(self) -> dict[tuple[frozenset[int], bool, bool], int]:
        """``gain_if_donated`` by what was asked for: the same on every chip."""
        return {}

    def _gain_if_donated(
        self, parameters: Collection[int], retyped: bool, before_schedule: bool
    ) -> int:
        live = if_donated(
            self.liveness, parameters, retyped=retyped, before_schedule=before_schedule
        )
        other = replace(self, liveness=live, timeline=live.timeline(self.main_spaces))
        before = self.simulated_bytes
        gain = max(0, before - other.simulated_bytes)
        if self.assigned_bytes is not None and self.platform != "tpu" and before:
            # XLA may place temporaries better, then as now
            gain = int(gain * min(1.0, self.assigned_bytes / before))
        return gain

    def gain_if_smaller(self, less: Mapping[int, float]) -> int:
        """Bytes by which the simulated peak falls if each of these buffers is so many bytes less.

        Never more than what is above the next peak.
        """
        buffer, start, end = self.liveness.reserved.T
        each = np.zeros(len(self.liveness.size))
        each[list(less)] = list(less.values())
        each[~np.isin(self.liveness.space, self.main_spaces)] = 0
        delta = np.zeros(len(self.timeline) + 1)
        np.add.at(delta, start, each[buffer])
        np.add.at(delta, end + 1, -each[buffer])
        remaining = self.timeline - np.cumsum(delta)[:-1]
        return int(self.timeline.max(initial=0) - remaining.max(initial=0))

    @property
    def xla_peak_bytes(self) -> int | None:
        """XLA's ``peak_memory_in_bytes``; on CPU without temporaries. None if not given."""
        return self.target.memory_stats.get("peak_memory_in_bytes") or None

    @property
    def xla_peak_note(self) -> str:
        """What XLA's figure leaves out or adds, after a comma; "" if nothing is known."""
        notes = {"cpu": ", without temporaries", "tpu": ", with constants and VMEM"}
        return notes.get(self.platform, "")

    @property
    def _best(self) -> tuple[int, str]:
        """The best figure, constants included, and its source."""
        constants = self.constant_bytes
        added = ", with constants" if constants else ""
        if self.platform == "tpu" and self.allocated_bytes:
            return self.allocated_bytes + constants, f"XLA's memory_analysis{added}"
        # on GPU, XLA's own peak includes temporaries, and overlaps buffers that the sum adds up
        one = self.platform not in ("cpu", "tpu") and len(self.memory_spaces) < 2
        if self.xla_peak_bytes is not None and one:
            return self.xla_peak_bytes, "XLA's peak_memory_in_bytes"
        if self.assigned_bytes is not None:
            return self.assigned_bytes + constants, f"XLA's buffer assignment{added}"
        order = "" if self.module.is_scheduled else ", order not scheduled"
        return self.simulated_bytes + constants, f"simulated{order}"

    @property
    def peak_bytes(self) -> int:
        """The best figure available, with ``constant_bytes``; ``peak_source`` says which."""
        return self._best[0]

    @property
    def peak_source(self) -> str:
        """ "XLA's memory_analysis", "XLA's peak_memory_in_bytes", "XLA's buffer assignment",
        "simulated" or "simulated, order not scheduled"."""
        return self._best[1]

    @cached_property
    def peak_point(self) -> int:
        """Schedule position of the simulated peak, the first of equals."""
        return int(self.timeline.argmax()) if len(self.timeline) else 0

    @property
    def peak_instruction(self) -> Instruction | None:
        """The instruction that executes at the simulated peak."""
        if not len(self.schedule):
            return None
        return self.module.instructions[int(self.schedule[self.peak_point])]

    @cached_property
    def memory_spaces(self) -> dict[int, int]:
        """Memory space → its own simulated peak in bytes; main memory is 0."""
        live = self.liveness
        used = set(live.space[live.size > 0].tolist()) - set(self.main_spaces)
        others = {s: int(live.timeline(s).max(initial=0)) for s in sorted(used)}
        return {MAIN: int(self.timeline.max(initial=0)), **others}

    @cached_property
    def spaces(self) -> tuple[MemorySpace, ...]:
        """Each memory that the program uses, with name and peak, the device's main memory first."""
        main = MemorySpace(MAIN, self.space_name(MAIN), self.peak_bytes, self.peak_source)
        return (main, *peaks_beside_main(self.liveness, self.target, self.platform))

    def space_name(self, number: int) -> str:
        """Name of a layout's ``S(n)`` on this platform: "HBM", "VMEM", "host", …"""
        return space_name(number, self.platform)

    @cached_property
    def _names(self) -> dict[int, str]:
        return argument_names(self.liveness, self.target)

    @cached_property
    def _places(self) -> dict[tuple[str, tuple[int, ...]], tuple[int, int]]:
        """(instruction, shape index) → (allocation, offset) in XLA's buffer assignment."""
        assignment = self.module.buffer_assignment
        if assignment is None:
            return {}
        buffers = {b.id: b for b in assignment.buffers}
        out: dict[tuple[str, tuple[int, ...]], tuple[int, int]] = {}
        for a in assignment.allocations:
            for x in a.assigned:
                b = buffers.get(x.buffer_id)
                if b is not None and b.instruction:
                    out[b.instruction, b.shape_index] = (a.index, x.offset)
        return out

    def value(self, buffer: int) -> LiveValue:
        """One buffer of ``liveness`` as a row."""
        live = self.liveness
        i = self.module.instructions[int(live.defined_by[buffer])]
        leaf = int(live.leaf[buffer])
        shape = live.shape_of(buffer)
        home = int(live.home[buffer])
        place = self._places.get((i.name, (leaf,) if i.shape.is_tuple else ()))
        return LiveValue(
            instruction=i,
            leaf=leaf,
            shape=shape,
            bytes=int(live.size[buffer]),
            padding_bytes=int(live.size[buffer]) - shape.byte_size,
            memory_space=int(live.space[buffer]),
            kind=KINDS[live.kind[buffer]],
            category=CATEGORIES[self.category[buffer]],
            phase=phase_names(self.module)[phases(self.module)[i.index]],
            start=int(live.start[buffer]),
            end=int(live.end[buffer]),
            name=self._names.get(buffer, i.name),
            home="" if home < 0 else self._names.get(home, self._maker(home)),
            allocation=place[0] if place else None,
            offset=place[1] if place else None,
            frame=int(self.frames[buffer]),
            scope=self._scope(i) if live.kind[buffer] != ARGUMENT else "",
            category_source=self.category_source.get(buffer, "phase"),
        )

    @cached_property
    def frames(self) -> Ints:
        """Frame id of each buffer of ``liveness``, in ``module.source_frames()``; 0 for none."""
        return buffer_frames(self.liveness, self.residuals)

    def _scope(self, i: Instruction) -> str:
        found = scopes(self.module)
        at = int(found.scope[i.index])
        return "/".join(found.paths[at]) if at >= 0 else ""

    def _maker(self, buffer: int) -> str:
        return self.module.instructions[int(self.liveness.defined_by[buffer])].name

    def live_at(self, point: int) -> tuple[LiveValue, ...]:
        """Values in main memory at a schedule position, largest first."""
        held = self.liveness.live_at(point, self.main_spaces)
        return tuple(self.value(int(b)) for b in held)

    def live_in(self, name: str) -> tuple[LiveValue, ...]:
        """Values in a memory, such as "VMEM" or "host", at its own simulated peak, largest first.

        Raises ``ValueError`` for a memory that the program does not use.
        """
        found = next((s.number for s in self.spaces if s.name.lower() == name.lower()), None)
        if found is None:
            used = ", ".join(s.name for s in self.spaces)
            raise ValueError(f"nothing of this program lies in {name!r}; it uses {used}")
        spaces = self.main_spaces if found == MAIN else (found,)
        line = self.liveness.timeline(spaces)
        point = int(line.argmax()) if len(line) else 0
        return tuple(self.value(int(b)) for b in self.liveness.live_at(point, spaces))

    @cached_property
    def live_at_peak(self) -> tuple[LiveValue, ...]:
        return self.live_at(self.peak_point)

    def values(self) -> Iterator[LiveValue]:
        """Every buffer of at least one byte with its live range, in order of definition."""
        live = self.liveness
        rows = np.flatnonzero(live.size > 0)
        for b in rows[np.lexsort((rows, live.start[rows]))].tolist():
            yield self.value(b)

    @cached_property
    def by_category(self) -> dict[str, int]:
        """Bytes live at the simulated peak by category, largest first."""
        live = self.liveness
        rows = live.live_at(self.peak_point, self.main_spaces)
        sums = np.bincount(self.category[rows], live.size[rows], len(CATEGORIES))
        order = np.argsort(-sums, kind="stable")
        return {CATEGORIES[c]: int(sums[c]) for c in order if sums[c]}

    @cached_property
    def by_line(self) -> dict[str, int]:
        """Bytes live at the simulated peak by "file:line", largest first.

        "" holds what has no line: arguments, and values for which the dump gives none.
        """
        return _sums((v.line, v.bytes) for v in self)

    @cached_property
    def by_scope(self) -> dict[str, int]:
        """Bytes live at the simulated peak by scope, largest first; "" holds all without one."""
        return _sums((v.scope, v.bytes) for v in self)

    @cached_property
    def donations(self) -> tuple[Donation, ...]:
        """Arguments that share memory with outputs, that could, or are donated without effect."""
        return audit_donations(self.liveness, self.target)

    @cached_property
    def parameter_copies(self) -> tuple[ParameterCopy, ...]:
        """Copies and transposes of whole parameters, such as ``wrapped_transpose`` of a weight."""
        return find_parameter_copies(self.liveness, self._names)

    @cached_property
    def padding_at_peak(self) -> int:
        """Bytes of tile padding in values live at the peak."""
        live = self.liveness
        held = live.live_at(self.peak_point, self.main_spaces).tolist()
        return sum(int(live.size[b]) - live.shape_of(b).byte_size for b in held)

    @cached_property
    def gain_without_padding(self) -> int:
        """Bytes by which the simulated peak falls if no value has tile padding."""
        live = self.liveness
        sizes = enumerate(live.size.tolist())
        return self.gain_if_smaller({b: n - live.shape_of(b).byte_size for b, n in sizes if n})

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """What each while loop carries, element by element."""
        return find_loops(self.liveness)

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """Values that one loop stacks and a later one reads, as what is stored for backward."""
        return find_residuals(self.liveness, self.loops)

    COLUMNS = (
        "name", "bytes", "category", "category_source", "kind", "phase", "shape", "start", "end",
        "memory_space", "padding_bytes", "op_name", "scope", "line", "inferred", "allocation",
        "offset",
    )  # fmt: skip

    def _all(self) -> tuple[LiveValue, ...]:
        return self.live_at_peak

    def _row_dict(self, row: LiveValue) -> dict[str, Any]:
        return row.to_dict() | {"memory_space": self.space_name(row.memory_space)}

    def _totals(self) -> dict[str, Any]:
        """Plain data: peaks, peak instruction, bytes by category, by line and by memory space."""
        at = self.peak_instruction
        return {
            "peak_live_bytes": self.peak_bytes,
            "peak_source": self.peak_source,
            "simulated_bytes": self.simulated_bytes,
            "assigned_bytes": self.assigned_bytes,
            "xla_peak_bytes": self.xla_peak_bytes,
            "peak_instruction": at.name if at is not None else None,
            "by_category": self.by_category,
            "by_line": self.by_line,
            "by_memory_space": {s.name: s.peak_bytes for s in self.spaces},
        }

    def __str__(self) -> str:
        return _text(self)


def _text(memory: Memory, rows: int = 12) -> str:
    """Text with peaks, categories and the largest values live at the peak."""
    at = memory.peak_instruction
    out = [
        f"memory of {memory.module.name}, {whose(memory.module, memory.target)}",
        f"  peak of {memory.space_name(0)} {exact_size(memory.peak_bytes, memory.peak_source)}",
    ]
    if memory.peak_source != "simulated":
        out.append(f"  simulated {exact_size(memory.simulated_bytes)}")
    if memory.xla_peak_bytes is not None and memory.peak_bytes != memory.xla_peak_bytes:
        note = memory.xla_peak_note
        out.append(f"  XLA's peak_memory_in_bytes {exact_size(memory.xla_peak_bytes)}{note}")
    for s in memory.spaces[1:]:
        out.append(f"  {s.name} {exact_size(s.peak_bytes, s.source)}")
    if at is not None:
        out.append(f"  highest at %{at.name} ({memory.peak_point + 1} of {len(memory.schedule)})")
    out.append("  " + ", ".join(f"{c} {size(b)}" for c, b in memory.by_category.items()))
    if memory.residuals:
        total = sum(r.bytes for r in memory.residuals)
        why = " for backward" if any(r.is_for_backward for r in memory.residuals) else ""
        out.append(f"  stored between loops{why}: {size(total)}")
    body = [
        (
            short(v.name),
            size(v.bytes),
            v.category,
            v.shape.dense_text,
            f"{v.start}–{v.end}",
            said(own_line(v.frames), v.inferred),
        )
        for _, v in zip(range(rows), memory, strict=False)
    ]
    out += grid(("live at the peak", "bytes", "category", "shape", "live", "line"), body)
    if len(memory) > rows:
        out.append(f"… and {len(memory) - rows} more")
    return printed(out)


def _sums(rows: Iterable[tuple[str, int]]) -> dict[str, int]:
    out: dict[str, int] = {}
    for key, count in rows:
        out[key] = out.get(key, 0) + count
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def _tables(shape: Shape) -> int:
    if not shape.is_tuple:
        return 0
    return POINTER_BYTES * len(shape.tuple_shapes) + sum(_tables(s) for s in shape.tuple_shapes)


@per_devices
def analysed(module: Module, target: Target) -> Memory:
    """``analyse``, computed once per module and target."""
    return analyse(module, target)


@uncollected()
def analyse(module: Module, target: Target | None = None) -> Memory:
    """Simulate the module's memory.

    Raises ``ValueError`` for a module that is not HLO, or has no ENTRY.
    """
    if module.dialect != "hlo":
        raise ValueError(needs_hlo("memory", module, target))
    if module.entry is None:
        raise ValueError("memory needs an ENTRY computation, and this dump has none")
    target = target or Target()
    live = simulate(module)
    on = platform(module, target)
    held = live.timeline(main_spaces(on))
    return Memory(module, target, live, *categorise(live, target), held, on)


__all__ = ["OUTPUT", "LiveValue", "Memory", "analyse"]
