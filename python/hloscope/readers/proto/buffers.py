"""BufferAssignmentProto → ``hlo.BufferAssignment``."""

from __future__ import annotations

from typing import Any

from ...hlo.buffers import (
    Allocation,
    Assigned,
    BufferAssignment,
    HeapEvent,
    HeapTrace,
    LogicalBuffer,
)
from ..errors import ReadError
from .context import text_of
from .schema import decode_error, message_class


def read_buffer_assignment(data: bytes, module: bytes = b"") -> BufferAssignment:
    """Reads a bare serialized ``BufferAssignmentProto``. Raises ``ReadError`` for other bytes.

    ``module`` is the ``HloModuleProto`` whose instructions it names by their ids.
    """
    return buffer_assignment(
        _parsed("BufferAssignment", data), _parsed("HloModule", module) if module else None
    )


def _parsed(kind: str, data: bytes) -> Any:
    message = message_class(kind)()
    try:
        message.ParseFromString(data)
    except decode_error():
        raise ReadError(f"these bytes are not a {kind}Proto") from None
    return message


def buffer_assignment(message: Any, module: Any) -> BufferAssignment:
    """Of a ``BufferAssignmentProto``; ``module`` is its ``HloModuleProto``, or None."""
    computations = module.computations if module is not None else ()
    names = {i.id: text_of(i.name) for c in computations for i in c.instructions}
    kinds = ("ALLOC", "FREE", "SHARE_WITH")
    return BufferAssignment(
        tuple(
            LogicalBuffer(
                b.id,
                b.size,
                text_of(b.defined_at.instruction_name)
                or names.get(b.defined_at.instruction_id, ""),
                tuple(b.defined_at.shape_index),
                b.color,
            )
            for b in message.logical_buffers
        ),
        tuple(
            Allocation(
                a.index,
                a.size,
                a.color,
                a.is_thread_local,
                a.is_tuple,
                a.is_constant,
                a.is_entry_computation_parameter,
                a.parameter_number,
                tuple(a.parameter_shape_index),
                a.is_parameter_aliased_with_output,
                a.maybe_live_out,
                tuple(Assigned(x.logical_buffer_id, x.offset, x.size) for x in a.assigned),
            )
            for a in message.buffer_allocations
        ),
        tuple(
            HeapTrace(
                t.buffer_allocation_index,
                tuple(
                    HeapEvent(
                        kinds[e.kind] if 0 <= e.kind < 3 else str(e.kind),
                        e.buffer_id,
                        text_of(e.computation_name),
                        text_of(e.instruction_name),
                    )
                    for e in t.events
                ),
            )
            for t in message.heap_simulator_traces
        ),
    )
