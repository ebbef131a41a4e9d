"""Groups from the user's own functions, where no scope was named.

JAX names scopes only inside ``jax.named_scope`` and layers of libraries; the Python stack of an
instruction has its functions even so:

    train_step:38 ─ loss:34 ─ layer:29 ─ attention:19     line 29 of layer called attention
                                       ─ norm:16          and norm; line 30 called norm again:
                            ─ layer:30 ─ norm:16          another group

A group must read as one step: what leaves it should not come back. A few instructions in
between are taken in, or come back if they belong elsewhere; with many of them there is no group.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base.lines.frames import is_library
from ..base.lines.op_name import BACKWARD, CALLED, FORWARD
from ..base.loops.trips import trip_count
from ..base.table import Ints, Table, per_module, table
from .group_nodes import MIN_BOXES, NOTHING, Node, count_boxes
from .scopes import inherit
from .true_calls import own_calls

if TYPE_CHECKING:
    from ...hlo import Module
    from ...hlo.parts import FrameTable

K = TypeVar("K", bound=Hashable)
Mask = NDArray[np.bool_]
# (line of the caller, function called), outermost first; the last entry is (line, "")
Chain = tuple[tuple[int, str], ...]

# With fewer boxes of its own a group is left as it is.
ENOUGH = 12
# A group of fewer boxes says less than they do.
SMALLEST = 3
# A call that made this share of a group is the group: what it called is examined instead.
MOSTLY = 0.8
# With more boxes left than this, the lines of one function become groups too; earlier where no
# scope was named, as at the top and in loops.
WIDE, UNNAMED_WIDE = 64, 20
# What may be taken in to make a group one step, as a share of its boxes.
TAKEN_IN = 0.15
# A new group has at most this share of the boxes of the group it is cut from: cutting ends.
SMALLER = 0.95
# One call may be split this many times.
PIECES = 3
# How many edges are walked: for each instruction of a module, and at least. The rest is not cut.
MOST_STEPS, LEAST_STEPS = 40, 4_000_000


@dataclass(frozen=True, eq=False)
class Calls:
    """``chain[i]`` indexes ``chains``; -1 if no stack is known nearby."""

    chains: tuple[Chain, ...]
    chain: Ints
    own: Mask  # whether the stack is the instruction's own
    loop: int = -1  # number of the opcode "while" in the table

    @cached_property
    def functions(self) -> frozenset[str]:
        """Names of the user's own functions."""
        return frozenset(name for chain in self.chains for _, name in chain)


@per_module
def calls(module: Module) -> Calls:
    """The calls that made every instruction, or its neighbours' if it has none."""
    t = table(module)
    frames, ids = module.source_frames()
    number: dict[Chain, int] = {}
    of_frame: dict[int, int] = {0: -1}
    for frame in set(ids):
        if frame not in of_frame:
            found = _chain(frames, frame)
            of_frame[frame] = number.setdefault(found, len(number)) if found else -1
    chains = list(number)
    calls_known = own_calls(module)
    if not (calls_known >= 0).any():
        return _without_calls(module, of_frame, number, ids)
    exact = calls_known.tolist()
    lines = {f: found[-1][0] for f, k in of_frame.items() if k >= 0 for found in [chains[k]]}
    of_call: dict[tuple[int, int], int] = {}
    for key in set(zip(exact, ids, strict=True)):
        if key[0] >= 0:
            whole = _exact_chain(module, key[0], lines.get(key[1], 0))
            of_call[key] = number.setdefault(whole, len(number))
    own = np.array(
        [of_call[c, f] if c >= 0 else of_frame[f] for c, f in zip(exact, ids, strict=True)],
        np.int64,
    )
    return _calls(t, number, own)


def _without_calls(
    module: Module, of_frame: dict[int, int], number: dict[Chain, int], ids: list[int]
) -> Calls:
    frames = np.array(ids, np.int64)
    known = np.full(int(frames.max(initial=0)) + 1, -1, np.int64)
    known[list(of_frame)] = list(of_frame.values())
    return _calls(table(module), number, known[frames])


def _calls(t: Table, number: dict[Chain, int], own: Ints) -> Calls:
    own[t.by_opcode(lambda o: o in ("parameter", "constant"), bool)] = -1
    chain = inherit(t, own) if number else own
    loop = t.opcodes.index("while") if "while" in t.opcodes else -1
    return Calls(tuple(number), chain, own >= 0, loop)


def _chain(frames: FrameTable, frame: int) -> Chain:
    """The user's own calls, outermost first, once each, as XLA repeats what it inlines."""
    out: list[tuple[str, str, int]] = []  # file, function, line
    for f in reversed(frames.stack(frame)):
        name = (f.function or "").rpartition("<locals>.")[2].removesuffix(".__call__")
        if is_library(f.file) or not name or name.startswith("<"):
            continue
        entry = (f.file, name, f.line)
        if entry in out:
            del out[out.index(entry) :]
        out.append(entry)
    if not out:
        return ()
    lines = [0, *(line for _, _, line in out)]
    return tuple(zip(lines, [*(name for _, name, _ in out), ""], strict=True))


def _exact_chain(module: Module, call: int, line: int) -> Chain:
    """The same from exactly known calls; each has a number instead of a line."""
    assert module.origins is not None
    python = module.origins.python
    stack = [c for c in python.stack(python[call]) if not c.name.startswith("<")]
    names = [(-1 - c.number, c.name.removesuffix(".__call__")) for c in stack]
    return (*names, (line, ""))


class Budget:
    """The edges that may still be walked in a module."""

    def __init__(self, instructions: int) -> None:
        self.left = max(LEAST_STEPS, MOST_STEPS * instructions)


def cut_by_calls(
    node: Node, t: Table, quiet: Mask, found: Calls, budget: Budget, stay: Mask
) -> None:
    """Moves members of a group into new child groups by the functions they come from.

    Rows of ``stay`` stay where they are.

    Library functions that JAX names (``cumsum``, ``softmax``) go into the function that called
    them, if that has a group.
    """
    library = [c for c in node.children if _is_library(c, found)]
    members = np.concatenate([node.members, *(c.members for c in library)])
    members = members[~stay[members]]
    if not found.chains or count_boxes(quiet, members) <= ENOUGH:
        return
    if budget.left <= 0:
        return
    here = _FunctionCut(node, t, quiet, found, np.sort(members), budget)
    here.by_call()
    named = any(c not in (FORWARD, BACKWARD) for c in node.path)
    if count_boxes(quiet, here.free) > (WIDE if named else UNNAMED_WIDE):
        here.by_line()
    if not here.made:
        return
    node.members = np.union1d(
        np.intersect1d(node.members, here.free), node.members[stay[node.members]]
    )
    for child in library:
        node.children.remove(child)
        for group in (node, *here.made):
            mine = group.members if group is not node else here.free
            part = np.intersect1d(child.members, mine)
            if count_boxes(quiet, part) >= MIN_BOXES:
                group.members = np.setdiff1d(group.members, part)
                again = Node("scope", child.label, node.computation, path=child.path)
                again.members = part
                group.children.append(again)
            elif group is node:
                node.members = np.union1d(node.members, part)
    node.children.extend(here.made)


def _is_library(child: Node, found: Calls) -> bool:
    """Whether it is a function that JAX named and that is not one of the user's own."""
    name = child.path[-1] if child.path else ""
    return name.endswith(CALLED) and not child.children and child.label not in found.functions


class _FunctionCut:
    """Cuts ``free``, the members of a group, into ``made``, groups that are one step each."""

    def __init__(
        self, node: Node, t: Table, quiet: Mask, found: Calls, free: Ints, budget: Budget
    ) -> None:
        self.node, self.t, self.quiet, self.found = node, t, quiet, found
        self.budget = budget
        self.most = SMALLER * self._boxes(free)
        self.made: list[Node] = []
        # No path between two members leaves the rows from the first to the last of them.
        self.first = first = int(free[0])
        last = int(free[-1]) + 1
        self.is_free = np.zeros(last - first, bool)
        self.is_free[free - first] = True
        begin, end = t.operands.offsets[first], t.operands.offsets[last]
        users, values = t.operands.rows[begin:end], t.operands.values[begin:end]
        # constants and parameters can be anywhere: they order nothing
        inside = (values >= first) & (values < users) & ~t.silent[values]
        self.users, self.values = users[inside], values[inside]

    @property
    def free(self) -> Ints:
        """Members that are in none of the new groups."""
        return np.flatnonzero(self.is_free) + self.first

    def by_call(self) -> None:
        """Groups by the first call that separates the members."""
        members, depth = self.free, 0
        while True:

            def call(path: Chain, depth: int = depth) -> tuple[int, str] | None:
                return path[depth] if len(path) > depth and path[depth][1] else None

            by_call = self._split(members, call)
            if not by_call:
                return
            most = max(by_call, key=lambda c: self._boxes(by_call[c]))
            if self._boxes(by_call[most]) < MOSTLY * self._boxes(members):
                break
            # nearly all of it: one group in a group shows nothing
            members, depth = by_call[most], depth + 1
        for (_, name), rows in by_call.items():
            self._take(name, rows)

    def by_line(self) -> None:
        """Groups by the line of one function, where too much of it is left."""
        by_line = self._split(self.free, lambda path: (path[:-1], path[-1][0]))
        most = max(map(self._boxes, by_line.values()), default=0)
        alone = not self.made and not self.node.children
        if alone and most > MOSTLY * self._boxes(self.free):
            return
        for (path, line), rows in by_line.items():
            if path:
                self._take(f"{path[-1][1]}, line {line}{self._loop(rows)}", rows)

    def _split(self, rows: Ints, key: Callable[[Chain], K | None]) -> dict[K, Ints]:
        """``rows``, in ascending order, by ``key`` of their calls, in order of appearance."""
        chain = self.found.chain[rows]
        order = np.argsort(chain, kind="stable")
        known, begins = np.unique(chain[order], return_index=True)
        parts: dict[K, list[Ints]] = {}
        for k, part in zip(known.tolist(), np.split(rows[order], begins[1:]), strict=True):
            name = key(self.found.chains[k]) if k >= 0 else None
            if name is not None:
                parts.setdefault(name, []).append(part)
        whole = {name: np.sort(np.concatenate(found)) for name, found in parts.items()}
        return dict(sorted(whole.items(), key=lambda item: int(item[1][0])))

    def _boxes(self, rows: Ints | list[int]) -> int:
        return count_boxes(self.quiet, rows)

    def _loop(self, members: Ints) -> str:
        """The suffix for the one loop of a line; '' for none or several."""
        loops = members[self.t.opcode[members] == self.found.loop]
        if len(loops) != 1:
            return ""
        times = trip_count(self.t.instructions[int(loops[0])])
        return " · loop" if times is None else f" · loop ×{times}"

    def _take(self, label: str, rows: Ints, pieces: int = PIECES) -> None:
        rows = rows[self.is_free[rows - self.first]]  # another group may have taken some in
        if self._boxes(rows) < SMALLEST or self.budget.left <= 0:
            return
        taken, between = self._one_step(rows)
        if taken is None:
            # recomputed first, differentiated much later: the call is there twice
            edges = self._edges(rows)
            later = self._reaches(between, rows, *edges)[rows - rows[0]]
            if pieces > 1:  # the first is never reached, what between leads to is
                self._take(label, rows[~later], pieces - 1)
                self._take(label, rows[later], pieces - 1)
            return
        if self._boxes(taken) > self.most:
            return
        child = Node("scope", label, self.node.computation, path=(*self.node.path, label))
        child.members = taken
        self.is_free[taken - self.first] = False
        self.made.append(child)

    def _one_step(self, rows: Ints) -> tuple[Ints | None, Ints]:
        """``rows`` and what is free between them, or None if too much is between."""
        values, users = self._edges(rows)
        mine = np.zeros(int(rows[-1] - rows[0]) + 1, bool)
        mine[rows - rows[0]] = True
        comes, goes = mine[users - rows[0]], mine[values - rows[0]]
        if not (goes & ~comes).any() or not (comes & ~goes).any():
            return rows, NOTHING
        after = self._reaches(rows, rows, values, users)
        before = self._reaches(rows, rows, users[::-1], values[::-1])
        between = np.flatnonzero(after & before & ~mine) + rows[0]
        if self._boxes(between) > TAKEN_IN * self._boxes(rows):
            return None, between
        free = between[self.is_free[between - self.first]]
        return np.sort(np.concatenate([rows, free])), between

    def _edges(self, rows: Ints) -> tuple[Ints, Ints]:
        """Values and their users from the first to the last of ``rows``, which ascend."""
        begin, end = np.searchsorted(self.users, (rows[0], rows[-1] + 1)).tolist()
        values, users = self.values[begin:end], self.users[begin:end]
        inside = values >= rows[0]
        return values[inside], users[inside]

    def _reaches(self, starts: Ints, rows: Ints, sources: Ints, targets: Ints) -> Mask:
        """What edges lead to from ``starts``, with these; edges are in schedule order.

        The result is for the instructions from the first of ``rows`` to the last.
        """
        first, size = int(rows[0]), int(rows[-1] - rows[0]) + 1
        self.budget.left -= size + len(sources)
        start = np.zeros(size, bool)
        start[starts - first] = True
        out = start.tolist()
        for s, d in zip((sources - first).tolist(), (targets - first).tolist(), strict=True):
            if out[s]:
                out[d] = True
        return np.array(out, bool)
