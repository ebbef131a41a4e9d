"""XLA's buffer assignment, as plain data: what is where, and when it is live.

    allocation 3   size 4096   space 0
    ├── buffer 17   offset 0      size 1024   defined by %dot.3 {}
    └── buffer 21   offset 1024   size 3072   defined by %fusion.2 {1}

Field names and meaning are those of ``BufferAssignmentProto`` in ``xla/service/hlo.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogicalBuffer:
    """A value that needs memory: ``size`` bytes, defined by an instruction's output."""

    id: int
    size: int
    instruction: str  # name of the defining instruction; '' if not in the dump
    shape_index: tuple[int, ...] = ()
    memory_space: int = 0


@dataclass(frozen=True, slots=True)
class Assigned:
    """One logical buffer's place in an allocation; bytes."""

    buffer_id: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """One contiguous stretch of memory of ``size`` bytes."""

    index: int
    size: int
    memory_space: int = 0
    is_thread_local: bool = False
    is_tuple: bool = False
    is_constant: bool = False
    is_entry_computation_parameter: bool = False
    parameter_number: int = 0  # of ENTRY, where is_entry_computation_parameter
    parameter_shape_index: tuple[int, ...] = ()
    is_parameter_aliased_with_output: bool = False
    maybe_live_out: bool = False
    assigned: tuple[Assigned, ...] = ()


@dataclass(frozen=True, slots=True)
class HeapEvent:
    """One step of the heap simulator: ``kind`` is ALLOC, FREE or SHARE_WITH."""

    kind: str
    buffer_id: int
    computation: str = ""
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class HeapTrace:
    """The heap simulator's events for one allocation, in program order."""

    allocation_index: int
    events: tuple[HeapEvent, ...]


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """``HloProto.buffer_assignment``."""

    buffers: tuple[LogicalBuffer, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    traces: tuple[HeapTrace, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Sum of all allocations, bytes."""
        return sum(a.size for a in self.allocations)
