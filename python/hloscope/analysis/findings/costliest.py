"""The largest single cost of the step: one kind of work on one line, whatever it is.

units of the schedule ─▶ (line, kind) ─▶ the group with most modelled seconds
                          kind: a collective's, matmul, copy, a library's call, a sort …,
                          and all else that a line does, fused as XLA likes
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ...hlo import Instruction, StackFrame
from ..base.labels.families import FAMILIES, families
from .facts import Facts
from .finding import Costliest
from .layout_rules import is_moved_whole

# Operations of the program that are named, and the part of their bytes that each must be.
_NAMED, _WORTH_NAMING = 3, 0.1
# Of the longest one's time: an instruction that takes less is not counted.
_PART = 0.01
# Kinds whose name says what they do; of all else the operations are named.
_SAYS_ITSELF = {"matmul", "convolution"}


def costliest(facts: Facts) -> Costliest | None:
    """None where no time is modelled, or nothing is scheduled yet."""
    if facts.seconds is None or not facts.total_seconds or not facts.is_optimised:
        return None
    took: dict[tuple[StackFrame | None, str], list[int]] = defaultdict(list)
    for n in np.flatnonzero(facts.seconds > 0).tolist():
        if facts.runs[n] > 0:
            i = facts.module.instructions[n]
            frame, _ = facts.line(i)
            took[frame, _kind(facts, i)].append(n)
    if not took:
        return None
    each = facts.seconds
    (frame, what), rows = max(took.items(), key=lambda x: float(each[x[1]].sum()))
    rows.sort(key=lambda n: -float(each[n]))
    seconds = float(each[rows].sum())
    rows = [n for n in rows if each[n] >= _PART * each[rows[0]]]  # no scalars
    units = [facts.module.instructions[n] for n in rows]
    return Costliest(
        what,
        () if what in _SAYS_ITSELF else _operations(units, what),
        seconds / facts.total_seconds,
        seconds,
        len(rows),
        f"{frame.file}:{frame.line}" if frame is not None else None,
        facts.line(units[0])[1],
    )


def _kind(facts: Facts, i: Instruction) -> str:
    row = facts.collectives.by_instruction.get(i.index)
    if row is not None:
        return row.kind
    family = FAMILIES[int(families(facts.module)[i.index])]
    if family.id in _SAYS_ITSELF:
        return family.id
    if i.opcode == "custom-call":
        return f"call of {i.custom_call_target}" if i.custom_call_target else "custom call"
    if is_moved_whole(i):
        return "copy"
    return _heavy(i) if family.id == "linear_algebra" else ""


def _inside(i: Instruction) -> tuple[Instruction, ...]:
    called = i.called_computations if i.opcode == "fusion" else ()
    return tuple(called[0].instructions) if called else (i,)


def _heavy(i: Instruction) -> str:
    """``sort``, of a fusion as well."""
    found = [x.opcode for x in _inside(i) if x.opcode in _LINEAR_ALGEBRA]
    return found[0] if found else ""


_LINEAR_ALGEBRA = ("sort", "fft", "cholesky", "triangular-solve", "topk")


def _operations(units: list[Instruction], what: str) -> tuple[str, ...]:
    """What the program calls them: most bytes written first."""
    written: dict[str, int] = defaultdict(int)
    for unit in units:
        for i in _inside(unit):
            name = i.op_name.rpartition("/")[2].strip("()")
            if name and i.shape.is_array:
                written[name] += i.shape.byte_size
    total = sum(written.values())
    most = sorted(written, key=lambda name: -written[name])[:_NAMED]
    named = [name for name in most if written[name] >= _WORTH_NAMING * total]
    return tuple(name for name in named if name.replace("_", "-") != what)
