"""Which computations execute on their own, and how often.

    ENTRY ─ while ──body──▶ runs × trips          (condition: trips + 1)
          ─ conditional ──▶ only one branch counts: the one with most work
          ─ call, async-start ──▶ runs of the caller
          ─ fusion ──▶ not executed on its own: its cost is the fusion instruction's
          ─ reduce, sort, … ──▶ a reducer: its cost belongs to the instruction that applies it

A loop of unknown trip count counts once and is listed in ``unknown``, so totals with such a
loop are lower bounds until a count is given.

In a dump that was cut off before ENTRY, computations without a caller count once: figures of
single instructions are then for one run of these, and there are no totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...hlo import Instruction, Module
from ...hlo.limits import MOST_RUNS
from ..base.loops.trips import trip_count
from ..base.table import per_module, table

# A sum that is larger is no figure of a program; products of it must stay finite.
_MOST = 1e150

Floats = npt.NDArray[np.float64]


class Role(IntEnum):
    """The role of a called computation for its caller."""

    FUSED = 0
    REDUCER = 1
    BODY = 2
    CONDITION = 3
    BRANCH = 4
    CALL = 5


@dataclass(frozen=True)
class Edge:
    """``caller`` (an instruction index) calls ``callee`` (a computation index)."""

    caller: int
    callee: int
    role: Role


@dataclass(frozen=True, eq=False)
class CallGraph:
    """The call graph. ``order`` has callees before callers; ``below[c]`` are c's call edges."""

    edges: tuple[Edge, ...]
    below: tuple[tuple[Edge, ...], ...]
    order: tuple[int, ...]
    executed: npt.NDArray[np.bool_]  # one row per computation


@dataclass(frozen=True, eq=False)
class Runs:
    """How often each computation runs in one execution of ENTRY; by computation index.

    ``loop[c]`` is the innermost loop of unknown trip count around c, as a position in ``unknown``,
    or -1; ``unknown_parent`` gives the unknown loop around each of those. ``condition[c]``: c is
    in that loop's condition, which runs once more than its body. Fused computations run as often
    as their fusions; reducers have 0 runs.
    """

    calls: CallGraph
    runs: Floats
    trips: Mapping[int, int | None]  # by while instruction index
    unknown: tuple[Instruction, ...]
    unknown_parent: tuple[int, ...]
    loop: npt.NDArray[np.int64]
    condition: npt.NDArray[np.bool_]
    taken: Mapping[int, int]  # the branch, a computation, that each conditional takes
    branches_left_out: tuple[int, ...]  # computations that run 0 times because of that


def _role(opcode: str, role: str) -> Role | None:
    if opcode == "fusion" or opcode == "fusion-start":
        return Role.FUSED
    if opcode == "while":
        return {"body": Role.BODY, "condition": Role.CONDITION}.get(role)
    if opcode == "conditional":
        return Role.BRANCH
    if opcode in ("async-update", "async-done") or opcode.endswith(("-update", "-done")):
        return None  # repeats what its start calls
    if opcode in ("call", "call-start") or (opcode.endswith("-start") and role == "calls"):
        return Role.CALL
    return Role.REDUCER


@per_module
def call_graph(module: Module) -> CallGraph:
    """Call edges with roles, callee-first order, and what executes on its own."""
    t = table(module)
    edges: list[Edge] = []
    for caller, callee, name in zip(
        t.called.rows.tolist(), t.called.values.tolist(), t.called_roles, strict=True
    ):
        role = _role(t.instructions[caller].opcode, name)
        if role is not None:
            edges.append(Edge(caller, callee, role))
    below: list[list[Edge]] = [[] for _ in module.computations]
    for e in edges:
        below[int(t.computation[e.caller])].append(e)
    order = t.callees_first
    executed = np.zeros(len(below), bool)
    executed[_first(module, edges)] = True
    for c in reversed(order):
        if executed[c]:
            for e in below[c]:
                if e.role >= Role.BODY:
                    executed[e.callee] = True
    return CallGraph(tuple(edges), tuple(tuple(b) for b in below), order, executed)


def _first(module: Module, edges: Iterable[Edge]) -> list[int]:
    """ENTRY, or without one all computations that nothing in the dump calls."""
    if module.entry is not None:
        return [module.entry.index]
    called = {e.callee for e in edges}
    return [c.index for c in module.computations if c.index not in called]


def count_runs(
    module: Module,
    calls: CallGraph,
    taken: Mapping[int, int],
    trips: Mapping[int, int | None],
) -> Runs:
    """Runs of every computation.

    ``taken`` is the branch that each conditional takes, see ``branches_by_work``; ``trips`` are
    trip counts by index of the ``while``. Loops that are not in ``trips`` count once, their
    conditions too, as in XLA's cost analysis.
    """
    t = table(module)
    runs = [0.0] * len(module.computations)
    loop_of = [-1] * len(module.computations)
    in_condition = [False] * len(module.computations)
    unknown: list[Instruction] = []
    place: dict[int, int] = {}  # in unknown
    parents: list[int] = []
    left_out: list[int] = []
    for first in _first(module, calls.edges):
        runs[first] = 1.0
    for c in reversed(calls.order):
        for e in calls.below[c]:
            times, inside, condition = 1.0, loop_of[c], in_condition[c]
            if e.role is Role.REDUCER:
                continue
            if e.role is Role.BRANCH and taken[e.caller] != e.callee:
                times = 0.0
                left_out.append(e.callee)
            elif e.role in (Role.BODY, Role.CONDITION) and e.caller in trips:
                n = trips[e.caller]
                if n is None:
                    times = 1.0
                    if e.caller not in place:
                        place[e.caller] = len(unknown)
                        unknown.append(t.instructions[e.caller])
                        parents.append(inside)
                    inside, condition = place[e.caller], e.role is Role.CONDITION
                else:
                    times = float(n if e.role is Role.BODY else n + 1)
            runs[e.callee] = min(runs[e.callee] + runs[c] * times, MOST_RUNS)
            loop_of[e.callee], in_condition[e.callee] = inside, condition
    return Runs(
        calls,
        np.array(runs),
        trips,
        tuple(unknown),
        tuple(parents),
        np.array(loop_of, np.int64),
        np.array(in_condition, bool),
        taken,
        tuple(sorted(left_out)),
    )


def trip_counts(module: Module, given: Mapping[str, int]) -> dict[int, int | None]:
    """Trip count of each ``while``, by index; None if unknown.

    ``given`` are counts by name that override those of the dump; a name that is not a loop of the
    module raises ``ValueError``.
    """
    t = table(module)
    left = dict(given)
    counts: dict[int, int | None] = {}
    for n in t.where("while"):
        loop = t.instructions[n]
        counts[int(n)] = left.pop(loop.name) if loop.name in left else trip_count(loop)
    if left:
        have = ", ".join(t.instructions[n].name for n in counts) or "none"
        raise ValueError(f"no loop is called {', '.join(left)}; the loops are: {have}")
    return counts


def branches_by_work(
    module: Module,
    calls: CallGraph,
    work: Floats,
    trips: Mapping[int, int | None],
    *,
    least: bool = False,
) -> Mapping[int, int]:
    """The branch, as a computation, with most ``work`` of each conditional, or with least.

    ``work`` is a figure per instruction, such as its seconds.
    """
    if not any(e.role is Role.BRANCH for e in calls.edges):
        return {}
    return _inclusive(module, calls, work, trips, least)[1]


def inclusive_sums(
    module: Module, calls: CallGraph, own: Floats, trips: Mapping[int, int | None]
) -> Floats:
    """Own values of each instruction plus those of callees, × trips.

    A conditional counts its greatest branch, the first of equals. Loops that are not in ``trips``,
    or unknown there, count once. NaN (unknown) counts as 0.
    """
    return _inclusive(module, calls, own, trips, False)[0]


def _inclusive(
    module: Module, calls: CallGraph, own: Floats, trips: Mapping[int, int | None], least: bool
) -> tuple[Floats, dict[int, int]]:
    """Inclusive values by instruction, and the branch that each conditional counts."""
    t = table(module)
    own = np.nan_to_num(own)
    value: list[float] = own.tolist()
    sums = np.bincount(t.computation, own, len(module.computations))
    total: list[float] = sums.astype(np.float64).tolist()
    taken: dict[int, int] = {}
    for c in calls.order:
        branches: dict[int, float] = {}
        for e in calls.below[c]:
            inner = total[e.callee]
            if e.role is Role.REDUCER or (not inner and e.role is not Role.BRANCH):
                continue
            if e.role in (Role.BODY, Role.CONDITION):
                n = trips.get(e.caller)
                times = 1 if n is None else min(n + (e.role is Role.CONDITION), MOST_RUNS)
                inner = min(inner, _MOST) * times
            if e.role is Role.BRANCH:
                before = branches.get(e.caller)
                if before is None or (inner < before if least else inner > before):
                    branches[e.caller], taken[e.caller] = inner, e.callee
                continue
            value[e.caller] += inner
            total[c] += inner
        for caller, inner in branches.items():
            value[caller] += inner
            total[c] += inner
    return np.minimum(np.array(value), _MOST), taken
