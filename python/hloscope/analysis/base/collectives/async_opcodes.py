"""Asynchronous operations in XLA's short spelling.

    %s = ((f32[8,8]), f32[2,8], s32[]) slice-start(%p), slice={[0:2], [0:8]}
    %d = f32[2,8] slice-done(%s)

An ``async-start`` that wraps one operation prints as that operation's opcode with a suffix; the
result is a tuple of the operands, the results, and a context (``HloAsyncInstruction``).
``copy-start``, ``all-reduce-start`` and the like are opcodes of their own, not such spellings.
"""

from __future__ import annotations

from ....hlo import Instruction, Shape
from ....hlo.collective_kinds import KINDS

_OWN = frozenset(
    f"{op}-{part}"
    for op in ("async", "copy", "send", "recv", *(k.name for k in KINDS.values() if k.is_async))
    for part in ("start", "update", "done")
)


def wrapped(opcode: str) -> tuple[str, str] | None:
    """("slice", "start") for "slice-start"; None for other opcodes."""
    base, dash, part = opcode.rpartition("-")
    if not dash or part not in ("start", "update", "done") or opcode in _OWN:
        return None
    return base, part


def produced(i: Instruction) -> Shape:
    """The shape that a start produces in the end, out of (operands, results, context…)."""
    parts = i.shape.tuple_shapes if i.shape.is_tuple else ()
    return parts[1] if len(parts) > 1 else i.shape
