"""An independent account of Python calls: ``sys.setprofile`` while tracing.

The profiler sees each call of a function of ``call_programs.py`` begin and end, and puts a scope
with the call's number on jax's name stack for that time. What XLA then writes into ``op_name``
says which calls an instruction comes from, without any code of hloscope.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

import call_programs
import hloscope as hs
import jax
import numpy as np
from hloscope.analysis.base.labels.flags import QUIET, flags
from hloscope.analysis.base.phases.phases import BACKWARD, REMATERIALISED, phases
from hloscope.analysis.base.table import table
from hloscope.analysis.grouping.groups import group_tree
from hloscope.hlo import Module
from hloscope.readers import read_modules
from jax._src import source_info_util

_SCOPE = re.compile(r"~([\w.<>]+)~(\d+)~")
_apart = jax.make_user_context(None)  # keeps what is traced here out of jax's caches
Calls = tuple[tuple[str, int], ...]


def compiled(fn: Any, args: tuple[Any, ...]) -> Module:
    """The program with the calls that ``sys.setprofile`` saw in its op names."""
    file = call_programs.__file__
    here: Any = source_info_util._source_info_context
    before: dict[int, Any] = {}
    number = 0

    def seen(frame: Any, event: str, _: Any) -> None:
        nonlocal number
        code = frame.f_code
        if code.co_filename != file or code.co_name.startswith("<"):
            return
        if event == "call":
            number += 1
            name = code.co_qualname.rpartition("<locals>.")[2]
            context = here.context
            before[id(frame)] = context
            stack = context.name_stack.extend(f"~{name}~{number}~")
            here.context = context.replace(name_stack=stack)
        elif event == "return":
            here.context = before.pop(id(frame))

    with _apart("oracle"):
        sys.setprofile(seen)
        try:
            traced = jax.jit(fn).trace(*args)
        finally:
            sys.setprofile(None)
        text = traced.lower().compile().as_text()
    return read_modules(text)[0]


def calls_in(op_name: str) -> Calls:
    """The calls in an op name, outermost first; the first name if there are several."""
    found = [(name, int(n)) for name, n in _SCOPE.findall(op_name.partition(";")[0])]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Agreement:
    """How far hloscope's calls and groups agree with the profiler's.

    ``calls``, ``groups``: how many there are and how many there should be. ``members``: share of
    instructions with an origin that are in the right call; ``boxes``: share of those outside
    fusions that are in the right group of their layer.
    """

    layers: tuple[int, int]
    calls: tuple[int, int]
    instructions: int
    members: float
    groups: tuple[int, int]
    boxes: float


def agreement(name: str) -> Agreement:
    fn, args, layer, _ = call_programs.PROGRAMS[name]()
    expected = compiled(fn, args)
    module = hs.capture(fn, *args).module
    opcodes = [i.opcode for i in expected.instructions]
    assert [i.opcode for i in module.instructions] == opcodes, "the same program"
    origins = module.origins
    assert origins is not None
    python = origins.python
    rows, mine, theirs = [], [], []
    for i, j in zip(module.instructions, expected.instructions, strict=True):
        if not i.origins or i.opcode in ("parameter", "constant"):
            continue
        call = python.of(i.origins[0])
        stack = python.stack(call) if call is not None else ()
        stack = tuple(c for c in stack if not c.name.startswith("<"))
        if not j.op_name.startswith("jit(") or ":" in j.op_name:
            continue  # a reducer, or several instructions in one: the name does not show it
        rows.append(i.index)
        mine.append(tuple((c.name, c.number) for c in stack))
        theirs.append(calls_in(j.op_name))
    same = _same(mine, theirs)
    return Agreement(
        (len(_calls_of(mine, layer)), len(_calls_of(theirs, layer))),
        (len(_beginnings(mine)), len(_beginnings(theirs))),
        len(rows),
        sum(same) / max(1, len(rows)),
        *_groups(module, np.array(rows, np.int64), theirs, layer),
    )


def _same(mine: list[Calls], theirs: list[Calls]) -> list[bool]:
    """Whether each pair is one call under two numbers: each number matches one other only."""
    number: dict[Calls, Calls] = {}
    back: dict[Calls, Calls] = {}
    out = []
    for a, b in zip(mine, theirs, strict=True):
        alike = [n for n, _ in a] == [n for n, _ in b]
        out.append(alike and number.setdefault(a, b) == b and back.setdefault(b, a) == a)
    return out


def _beginnings(found: list[Calls]) -> set[Calls]:
    return {c[:n] for c in set(found) for n in range(1, len(c) + 1)}


def _calls_of(found: list[Calls], function: str) -> set[Calls]:
    return {c for c in _beginnings(found) if c[-1][0] == function}


def _groups(
    module: Module, rows: np.ndarray, theirs: list[Calls], layer: str
) -> tuple[tuple[int, int], float]:
    """Groups that are one call of the layer in one phase; share of boxes in the right one."""
    t, tree = table(module), group_tree(module)
    phase = phases(module).tolist()
    phase = [p if p in (BACKWARD, REMATERIALISED) else 0 for p in phase]
    caller, roles = t.caller()
    fused = np.array([r in ("calls", "to_apply") for r in roles]) & (caller >= 0)
    outside = ~fused[t.computation] & ((flags(module) & QUIET) == 0)
    wanted: dict[tuple[Calls, int, int], set[int]] = {}
    known = set()
    for row, calls in zip(rows.tolist(), theirs, strict=True):
        if not outside[row]:
            continue
        known.add(row)
        at = [k for k, (name, _) in enumerate(calls) if name == layer]
        if at:
            key = calls[: at[-1] + 1], phase[row], int(t.computation[row])
            wanted.setdefault(key, set()).add(row)
    wanted = {k: v for k, v in wanted.items() if len(v) >= 3}
    inside: dict[tuple[int, int], set[int]] = {}
    for row in known:
        g = int(tree.group[row])
        while g >= 0:
            inside.setdefault((g, phase[row]), set()).add(row)
            g = int(tree.parent[g])
    chosen, right, total = set(), 0, 0
    for (_, when, _), mine in wanted.items():
        of_phase = [at for at in inside if at[1] == when]
        best = max(of_phase, key=lambda g: (len(mine & inside[g]) - len(inside[g] - mine), g))
        chosen.add(best)
        right += len(mine & inside[best])
        total += len(mine | inside[best])
    return (len(chosen), len(wanted)), right / max(1, total)
