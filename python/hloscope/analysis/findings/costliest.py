"""The largest single cost of the step: one kind of work on one line, whatever it is.

units of the schedule ─▶ (line, kind) ─▶ the group with most modelled seconds
                          kind: a collective's, matmul, copy, a library's call, a sort …,
                          and all else that a line does, fused as XLA likes
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...hlo import Instruction, Module, StackFrame
from ..base.labels.families import FAMILIES, families
from ..base.lines.op_name import is_operation
from ..base.table import per_module
from .collective_waits import lines_of
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
    took: dict[_Work, dict[int, float]] = defaultdict(dict)
    for n in np.flatnonzero(facts.seconds > 0).tolist():
        if facts.runs[n] > 0:
            for work, seconds in _of(facts, n):
                took[work][n] = took[work].get(n, 0.0) + seconds
    if not took:
        return None
    work, each = max(took.items(), key=lambda x: sum(x[1].values()))
    rows = sorted(each, key=lambda n: -each[n])
    seconds = sum(each.values())
    rows = [n for n in rows if each[n] >= _PART * each[rows[0]]]  # no scalars
    units = [facts.module.instructions[n] for n in rows]
    return Costliest(
        work.what,
        () if work.is_waiting or work.what in _SAYS_ITSELF else _operations(units, work.what),
        seconds / facts.total_seconds,
        seconds,
        len(rows),
        work.line,
        facts.line(units[0])[1],
    )


class _Work(NamedTuple):
    """One kind of work for one line."""

    line: str | None
    what: str
    is_waiting: bool = False  # for a transfer


def _of(facts: Facts, n: int) -> Iterator[tuple[_Work, float]]:
    """What one instruction takes time for: waiting for its transfer, and its own work.

    XLA:TPU fuses matmuls and the like with steps of a transfer that is under way meanwhile, and
    joins transfers of several lines, whose bytes tell what each waits for.
    """
    assert facts.seconds is not None
    i = facts.module.instructions[n]
    row = facts.collectives.by_instruction.get(n)
    waited = facts.waited([n]) or 0.0 if row is not None else 0.0
    if row is not None and waited > 0:
        for frame, _, part in lines_of(facts, row):
            yield _Work(_line(frame), row.kind, True), part * waited
    own = float(facts.seconds[n]) - waited
    if own > 0:
        known = _known(facts.module)
        if n not in known:
            known[n] = _Work(_line(facts.line(i)[0]), _kind(facts, i))
        yield known[n], own


@per_module
def _known(module: Module) -> dict[int, _Work]:
    """The work of each instruction that was asked about: the same on every chip."""
    return {}


def _line(frame: StackFrame | None) -> str | None:
    return f"{frame.file}:{frame.line}" if frame is not None else None


def _kind(facts: Facts, i: Instruction) -> str:
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


_NUMBER = re.compile(r"\.\d+$")  # what jax puts behind names that it gave before


def _operations(units: list[Instruction], what: str) -> tuple[str, ...]:
    """What the program calls them: most bytes written first."""
    written: dict[str, int] = defaultdict(int)
    for unit in units:
        for i in _inside(unit):
            name = _NUMBER.sub("", i.op_name.rpartition("/")[2].strip("()"))
            if is_operation(name) and i.shape.is_array:
                written[name] += i.shape.byte_size
    total = sum(written.values())
    most = sorted(written, key=lambda name: -written[name])[:_NAMED]
    named = [name for name in most if written[name] >= _WORTH_NAMING * total]
    return tuple(name for name in named if name.replace("_", "-") != what)
