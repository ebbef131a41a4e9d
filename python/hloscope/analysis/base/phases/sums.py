"""Phases of sums over devices: what they finish decides, not what uses the result.

lax.pmean of a gradient, written after ``jax.grad``      the backward pass, as the gradient is
steps over the slices of a TPU, which have no name       that of what is summed
arrays combined in one all-reduce                        each its own
"""

from __future__ import annotations

import numpy as np

from ....hlo import Instruction, opcodes, walk
from ....hlo.collective_kinds import is_collective, kind_of, split
from ..table import Table
from .edges import BACKWARD, OPTIMISER, UNKNOWN, Mask, Phases

_GRADIENT = opcodes.MOVES | opcodes.FUSIONS | opcodes.LOOPS | opcodes.CALLS


def parts_of(t: Table, out: Phases, phase: int) -> Mask:
    """Which edges are operands of a combined collective whose own result is of ``phase``."""
    found = np.zeros(len(t.operands.rows), bool)
    for i in _collectives(t):
        if not i.shape.is_tuple or len(i.operands) < 2:
            continue
        taken = {u.tuple_index for u in i.users if out[u.index] == phase}
        begin = int(t.operands.offsets[i.index])
        for k in taken - {None}:
            found[begin + int(k or 0)] = True
    return found


def sum_gradients(t: Table, out: Phases) -> None:
    """Sums over devices of gradients themselves belong to the backward pass, whoever asks."""
    for i in _collectives(t):
        if out[i.index] != OPTIMISER or not _sums(i):
            continue
        made = [end for o in i.operands for end in _ends(o)]
        if made and any(out[e.index] == BACKWARD for e in made):
            computed = {int(out[e.index]) for e in made if e.opcode not in opcodes.GIVEN}
            if OPTIMISER not in computed:
                out[i.index] = BACKWARD


def finish_sums(t: Table, out: Phases) -> None:
    """Collectives without a name that are a step of a sum have the phase of what is summed."""
    for i in _collectives(t):
        if i.op_name or i.opcode in _WITHOUT_DATA:
            continue
        way = _back(i)
        if not any(_sums(step) for step in way):
            continue
        ends = (e for e in way if e.op_name and e.opcode not in opcodes.GIVEN)
        phases = {int(out[e.index]) for e in ends} - {UNKNOWN}
        if phases:
            out[i.index] = max(phases)


_WITHOUT_DATA = ("recv", "recv-done")


def _back(i: Instruction) -> list[Instruction]:
    """What a value is made from, up to what has a name; what is received was sent from there."""
    starts, out = [i], dict[int, Instruction]()
    for start in starts:
        for p in walk.back(start, lambda x: not x.op_name and x.opcode not in opcodes.LOOPS):
            step = p.instruction
            if step.opcode == "recv" and step.index not in out and step.operands:
                sends = (u for u in step.operands[-1].users if u.opcode == "send")
                starts += [u.operands[0] for u in sends]
            out[step.index] = step
    return list(out.values())


def _collectives(t: Table) -> list[Instruction]:
    rows = t.where(*(o for o in t.opcodes if is_collective(o) or o in opcodes.COMMUNICATION))
    return [t.instructions[r] for r in rows.tolist()]


def _sums(i: Instruction) -> bool:
    if i.opcode == "recv":
        return "_xla_megascale_reduce_operation" in i.attribute_text
    return is_collective(i.opcode) and kind_of((split(i.opcode) or ("", ""))[0]).reduces


def _ends(value: Instruction) -> list[Instruction]:
    """What computes a value, through moves and fusions of moves."""
    return [p.instruction for p in walk.sources(value, _GRADIENT, reach=_REACH)]


_REACH = 64  # steps: casts, reshapes and loops between a gradient and the sum of it
