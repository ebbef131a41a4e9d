"""Copies that run in parallel to everything else: to and from VMEM, and over the host link.

    schedule      copy-start ─ fusion ─ fusion ─ copy-done
    HBM           ▒▒▒▒▒▒▒▒▒▒▒█▒▒▒▒▒██▒▒▒▒▒▒▒▒▒▒▒             ▒ the copy, █ the fusions' own reads

A copy costs bandwidth only if one end is in main memory, and time only if other instructions
leave too little of it: XLA prefetches weights during computation, even for the next run of the
program. So copies are set against all the bandwidth that everything else leaves, not just against
what runs between their start and their done: the model stays a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module, Shape, walk
from ...hlo.opcodes import SAME_VALUE, SLICES
from ..base.collectives.async_opcodes import produced, wrapped
from ..base.memory_spaces import HOST, memory_space
from ..base.memory_tiling import storage_bytes
from ..base.table import per_module, table

Floats = npt.NDArray[np.float64]
# What DMA engines do beside the compute units: XLA starts such copies asynchronously.
_BY_DMA = SAME_VALUE | SLICES | {"dynamic-update-slice"}


@dataclass(frozen=True, eq=False)
class Copies:
    """Per instruction: whether it is such a copy, and its bytes from and to the host."""

    is_copy: npt.NDArray[np.bool_]
    from_host: Floats
    to_host: Floats


def is_asynchronous(opcode: str) -> bool:
    """Whether an opcode starts a copy that runs in parallel to other instructions."""
    if opcode == "copy-start":
        return True
    inside = wrapped(opcode)
    return inside is not None and inside[0] in _BY_DMA and inside[1] == "start"


def done_of(start: Instruction) -> Instruction | None:
    """The done of an asynchronous operation, after any updates; None in a damaged dump."""
    for user in start.users:
        if user.opcode.endswith("-done"):
            return user
    for use in walk.uses(start, lambda i: i.opcode.endswith("-update")):
        if use.instruction.opcode.endswith("-done"):
            return use.instruction
    return None


@per_module
def copies(module: Module) -> Copies:
    """Asynchronous copies, and copies to and from the host."""
    t = table(module)
    n = len(t.instructions)
    found = t.by_opcode(is_asynchronous, bool).copy()
    maybe = np.flatnonzero(found | t.by_opcode(lambda o: o == "copy", bool))
    taken, given = np.zeros(n), np.zeros(n)
    for k in maybe.tolist():
        i = t.instructions[k]
        ends = copy_ends(i)
        if ends is None:
            continue
        source, target = ends
        off, on = memory_space(source) == HOST, memory_space(target) == HOST
        if off != on:
            size = float(min(storage_bytes(source), storage_bytes(target)))
            (taken if off else given)[k] = size
            found[k] = True
    return Copies(found, taken, given)


def copy_ends(i: Instruction) -> tuple[Shape, Shape] | None:
    """Shapes of the source and destination of a copy or its start; None unless both are arrays.

    The source of a ``dynamic-update-slice-start`` is the update that it writes.
    """
    inside = wrapped(i.opcode)
    number = 1 if inside is not None and inside[0] == "dynamic-update-slice" else 0
    if len(i.operands) <= number:
        return None
    target = i.shape
    if i.opcode == "copy-start":
        target = i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape
    elif i.opcode != "copy":
        target = produced(i)
    source = i.operands[number].shape
    return None if source.is_tuple or target.is_tuple else (source, target)
