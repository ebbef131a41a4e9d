"""The scope the user wrote, for every instruction, with or without metadata.

This is hard because XLA merges, drops and invents op_names (``op_name.py`` parses them). An
instruction whose scope is unknown takes that of what it calls, else of its latest operand,
else of its earliest user. What belongs to several scopes at once moves up to their common scope,
and pieces of it down to the one scope that uses them, so that scopes do not form cycles:

    layer_0 ──▶ all-reduce (combined, named after layer_1) ──▶ element 0 ──▶ layer_0
                └ hoisted above the layers                     └ sunk into layer_0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...hlo.collective_kinds import KINDS, split
from ...hlo.columns import each_once
from ..base.labels.flags import INLINE, flags
from ..base.lines.op_name import BACKWARD, FORWARD, REMAT, Path, common, parse_op_name
from ..base.phases.phases import FORWARD as EARLY
from ..base.phases.phases import phases
from ..base.table import Table, intern, per_module, table

if TYPE_CHECKING:
    from ...hlo import Module

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Scopes:
    """``scope[i]`` indexes ``paths``; -1 if no scope is known nearby."""

    paths: tuple[Path, ...]
    scope: NDArray[np.int64]
    inherited: NDArray[np.bool_]


@per_module
def scopes(module: Module) -> Scopes:
    """The scope of every instruction."""
    t = table(module)
    parsed = [parse_op_name(n) for n in t.places]
    if not any(p is not None and BACKWARD in p for p in parsed):  # a single phase is not shown
        parsed = [p and tuple(c for c in p if c != FORWARD) for p in parsed]
    parsed = _in_full(parsed)
    ids, paths = intern([p for p in parsed])
    known = np.array([p is not None for p in parsed], bool)
    of_name = np.where(known, ids, -1)
    own = of_name[t.place]
    own[t.by_opcode(lambda o: o == "parameter", bool)] = -1
    _before_loops(module, own, paths)
    _early_ones(module, own, paths)
    top = next((n for n, p in enumerate(paths) if p == ()), -2)
    combined = t.by_opcode(combines, bool) & (t.operands.counts > 1)
    scope = inherit_scope(t, own, combined, top)
    final = [p if p is not None else () for p in paths]
    hoist(t, own, scope, final, combined, (flags(module) & INLINE) != 0)
    sink(t, own, scope, final)
    _early_inherited(module, own, scope, final)
    return Scopes(tuple(final), scope, (scope >= 0) & (own < 0))


def _in_full(parsed: list[Path | None]) -> list[Path | None]:
    """Paths of the forward pass that jax cut short, with the missing prefix.

    What a loop over layers computes once is named after the layers alone, ``layers/cos``, while
    the loop's own names are ``forward/decoder/layers/dot``.
    """
    places: dict[str, set[Path]] = {}
    for path in set(parsed):
        if path and path[0] == FORWARD:
            for n, name in enumerate(path[1:], 1):
                places.setdefault(name, set()).add(path[:n])
    whole = {name: next(iter(p)) for name, p in places.items() if len(p) == 1}
    return [
        (*whole[p[0]], *p) if p and p[0] in whole and len(whole[p[0]]) > 1 else p for p in parsed
    ]


def _before_loops(module: Module, own: NDArray[np.int64], paths: list[Path | None]) -> None:
    """Moves what a loop over layers computes once to where the loop is, in place.

    jax names it after the layers alone, like all that is in the loop: ``layers/cos`` beside
    ``forward/decoder/layers.wrapped_fn/while``. In ENTRY that prefix is missing.
    """
    if module.entry is None:
        return
    first = module.entry.instructions[0].index if module.entry.instructions else 0
    rows = slice(first, first + len(module.entry.instructions))
    loops: dict[str, set[Path]] = {}
    for path in {paths[own[i.index]] for i in module.entry.instructions if own[i.index] >= 0}:
        if path and path[0] == FORWARD:
            for n, name in enumerate(path[1:], 1):
                if "." in name and n > 1:
                    loops.setdefault(name.partition(".")[0], set()).add(path[: n + 1])
    for old in each_once(own[rows]).tolist():
        short = paths[old] if old >= 0 else None
        where = loops.get(short[0], set()) if short else set()
        if short and len(where) == 1:
            whole = (*next(iter(where)), *short[1:])
            if whole not in paths:
                paths.append(whole)
            own[rows][own[rows] == old] = paths.index(whole)


def _early_ones(module: Module, own: NDArray[np.int64], paths: list[Path | None]) -> None:
    """Moves what is in the forward pass by data flow, but not by name, there, in place.

    It is named after the backward pass, or in ENTRY after a scope of neither, like what has no
    gradient where other parts have one. ``base/phase_flow.py`` says which these are.
    """
    early = np.flatnonzero((own >= 0) & (phases(module) == EARLY))
    first = [p[:1] if p else () for p in paths]
    late = np.array([f == (BACKWARD,) for f in first], np.bool_)
    at = early[late[own[early]]]
    entry = module.entry
    if entry is not None and entry.instructions and late.any():
        begin = entry.instructions[0].index
        here = early[(early >= begin) & (early < begin + len(entry.instructions))]
        neither = np.array([f not in ((), (BACKWARD,), (FORWARD,)) for f in first], np.bool_)
        at = np.concatenate([at, here[neither[own[here]]]])
    ids = {p: n for n, p in reversed(list(enumerate(paths)))}
    for path in each_once(own[at]).tolist():
        rest = paths[path] or ()
        rest = rest[1:] if rest[:1] == (BACKWARD,) else rest
        moved = (FORWARD, *(c for c in rest if c != REMAT))
        if moved not in ids:
            ids[moved] = len(paths)
            paths.append(moved)
        own[at[own[at] == path]] = ids[moved]


def _early_inherited(
    module: Module, own: NDArray[np.int64], scope: NDArray[np.int64], paths: list[Path]
) -> None:
    """Moves what has no name and serves the forward pass there, in place.

    A cast of weights that both passes use would be where the last of its users is, and make the
    forward pass need the backward one; one that an optimizer uses too would be outside of both.
    It goes where its users in the forward pass are: into their layer, if all are in one.
    """
    t = table(module)
    early = (own < 0) & (phases(module) == EARLY) & (scope >= 0)
    rows, values = t.operands.rows, t.operands.values
    for _ in range(4):  # element → bitcast → convert
        forward = _within(paths, FORWARD)
        serves = early[values] & ~t.silent[values] & ~forward[scope[values]] & forward[scope[rows]]
        if not serves.any():
            break
        _to_common(scope, paths, values[serves], rows[serves])
    rest = np.flatnonzero(early & _within(paths, BACKWARD)[scope])
    if len(rest):
        if (FORWARD,) not in paths:
            paths.append((FORWARD,))
        scope[rest] = paths.index((FORWARD,))


def _within(paths: list[Path], phase: str) -> Mask:
    """Which paths are of that pass; the last entry, for no scope (-1), is False."""
    return np.array([p[:1] == (phase,) for p in paths] + [False], np.bool_)


def hoist(
    t: Table,
    own: NDArray[np.int64],
    scope: NDArray[np.int64],
    paths: list[Path],
    combined: Mask,
    inline: Mask,
) -> None:
    """Moves what belongs to several scopes up to their common scope, in place.

    A constant that layers share; a collective that XLA combined from many, which has the name
    of one; XLA's own tuple or concatenation. Left where they are, they would tie those scopes
    into a cycle.
    """
    rows, values = t.operands.rows, t.operands.values
    joined = t.by_opcode(lambda o: o in ("concatenate", "tuple"), bool)
    combined = combined | (joined & (own < 0) & (t.operands.counts > 2))
    known = (scope[rows] >= 0) & (scope[values] >= 0)
    up = known & combined[rows] & ~t.silent[values]
    down = known & inline[values]
    for targets, sources in ((rows[up], values[up]), (values[down], rows[down])):
        _to_common(scope, paths, targets, sources)


def _to_common(
    scope: NDArray[np.int64],
    paths: list[Path],
    targets: NDArray[np.int64],
    sources: NDArray[np.int64],
) -> None:
    """Moves each target to the common scope of all its sources, in place."""
    if not len(targets):
        return
    # In lexical order the common prefix of many paths is that of the first and the last.
    order = sorted(range(len(paths)), key=paths.__getitem__)
    rank = np.empty(len(paths), np.int64)
    rank[order] = np.arange(len(paths))
    low, high = np.full(len(scope), len(paths)), np.full(len(scope), -1)
    np.minimum.at(low, targets, rank[scope[sources]])
    np.maximum.at(high, targets, rank[scope[sources]])
    moved = np.flatnonzero(high >= 0)
    ends = np.stack((low[moved], high[moved]), axis=1)
    distinct, which = np.unique(ends, axis=0, return_inverse=True)
    ids = {p: n for n, p in reversed(list(enumerate(paths)))}
    to = []
    for a, b in distinct.tolist():
        shared = common([paths[order[a]], paths[order[b]]])
        if shared not in ids:
            ids[shared] = len(paths)
            paths.append(shared)
        to.append(ids[shared])
    scope[moved] = np.array(to, np.int64)[which.reshape(-1)]


def sink(t: Table, own: NDArray[np.int64], scope: NDArray[np.int64], paths: list[Path]) -> None:
    """Moves unnamed instructions into the one scope that uses them, in place.

    The pieces of a combined collective go to the layers they belong to, instead of being
    between the collective and those.
    """
    rows, values = t.operands.rows, t.operands.values
    for _ in range(4):  # element → bitcast → convert
        low, high = np.full(len(scope), len(paths)), np.full(len(scope), -1)
        np.minimum.at(low, values, scope[rows])
        np.maximum.at(high, values, scope[rows])
        movable = (own < 0) & (scope >= 0) & (low == high) & (low >= 0)
        at = np.flatnonzero(movable & (scope != low))
        pairs = list(zip(scope[at].tolist(), low[at].tolist(), strict=True))
        deeper = {(a, b) for a, b in set(pairs) if paths[b][: len(paths[a])] == paths[a]}
        at = at[[pair in deeper for pair in pairs]] if deeper else at[:0]
        if not len(at):
            break
        scope[at] = low[at]


def combines(opcode: str) -> bool:
    """Whether XLA combines several such collectives into one."""
    found = split(opcode)
    return found is not None and found[1] != "-done" and KINDS[found[0]].pattern == "ring"


def inherit(t: Table, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """``own`` with each -1 replaced by that of what it calls, its latest operand or first user."""
    combined = t.by_opcode(combines, bool) & (t.operands.counts > 1)
    return inherit_scope(t, own, combined, -2)


def inherit_scope(t: Table, own: NDArray[np.int64], combined: Mask, top: int) -> NDArray[np.int64]:
    scope = _from_callees(t, own)
    n = len(scope)
    told = np.zeros(len(t.first), bool)  # elsewhere there is nothing to find
    told[t.computation[scope >= 0]] = True
    unknown = np.flatnonzero((scope < 0) & told[t.computation])
    if not len(unknown):
        return scope
    within = told[t.computation[t.operands.rows]]
    rows, values = t.operands.rows[within], t.operands.values[within]
    # Constants and parameters say nothing about their users, nor does a root tuple about its
    # operands; edges against the printed order would make the chains below loop.
    silent = t.silent
    tuples = t.by_opcode(lambda o: o == "tuple", bool)
    forward = rows > values
    up = forward & (scope[rows] < 0) & ~silent[values]
    down = np.flatnonzero(forward & (scope[values] < 0) & ~tuples[rows])[::-1]
    operand, user = np.arange(n), np.arange(n)  # itself, if there is none
    latest = np.full(n, -1)
    np.maximum.at(latest, rows[up], values[up])
    operand[latest >= 0] = latest[latest >= 0]
    user[values[down]] = rows[down]  # users descend: the first is written last
    ends, starts = np.arange(n), np.arange(n)
    for _ in range(64):
        ends[unknown], starts[unknown] = operand[unknown], user[unknown]
        source = _follow(ends, unknown)
        above = scope[source]
        below = scope[_follow(starts, unknown)]
        weak = (above == top) | combined[source]
        good = (above >= 0) & (~weak | (below < 0))
        found = np.where(good, above, below)
        if not (found >= 0).any():
            # The nearest neighbours have none; try all of them.
            best = np.full(n, -1)
            np.maximum.at(best, rows, scope[values])
            np.maximum.at(best, values, scope[rows])
            found = best[unknown]
            if not (found >= 0).any():
                break
        scope[unknown] = found
        known = unknown[found >= 0]
        ends[known], starts[known] = known, known
        unknown = unknown[found < 0]
        if not len(unknown):
            break
    return scope


def _follow(pointer: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The end of each chain of pointers from ``rows``, by doubling, in place."""
    at = rows
    while len(at):
        before = pointer[at]
        further = pointer[before]
        moved = further != before
        at = at[moved]
        pointer[at] = further[moved]
    return pointer[rows]


def _from_callees(t: Table, own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fusions, calls and loops without a name take the last known scope inside."""
    scope = own.copy()
    blind = np.flatnonzero((scope < 0) & (t.called.counts > 0))
    for _ in range(4):  # nested: async → fusion → fusion
        if not len(blind):
            break
        last = t.reduce_by_computation(
            np.maximum, np.where(scope >= 0, np.arange(len(scope)), -1), -1
        )
        inside = last[t.called.values[t.called.offsets[blind]]]
        scope[blind] = np.where(inside >= 0, scope[inside], -1)
        blind = blind[scope[blind] < 0]
    return scope
