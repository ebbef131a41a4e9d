"""The person's own call tree: for every instruction the calls that it was traced in.

The frames of an instruction are its Python stack. Those of the person's own files are the calls
that made it, outermost first; scopes (Flax's modules, ``jax.named_scope``) stand between them
where they were opened, and one that is a call gives that call its name:

    train_step ─ loss_fn:40 ─ GPT.__call__:31 ─ Block.__call__:20 ─ attention:12     frames
                              GPT               h_0                  attn            scopes
    → loss_fn, GPT, h_0, attn

Differentiation happens at one of these calls; the passes are below it:

    train_step ─ collect ─ …
               └ update_minibatch ─ forward  (of ppo_loss) ─ …
                                  ├ backward (of ppo_loss) ─ …
                                  └ optimizer · adam

Library frames are no levels. A path is a tuple of names as in ``op_name.py``; calls carry a mark
that tells those of one function on different lines apart.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.labels.families import ID, families
from ..base.lines.frames import is_library
from ..base.lines.op_name import (
    BACKWARD,
    CALLED,
    FORWARD,
    LAYER,
    LOOPS,
    REMAT,
    Path,
    parse_op_name,
)
from ..base.phases.edges import depends_on, reached
from ..base.phases.phases import BACKWARD as IN_BACKWARD
from ..base.phases.phases import FORWARD as IN_FORWARD
from ..base.phases.phases import OPTIMISER, REMATERIALISED, name_phases, phases
from ..base.table import Ints, Table, per_module, table
from .computed_once import of_first_callers
from .layers.repeats import Graph
from .traced_calls import Place, Stack, TracedCall
from .true_calls import own_calls

if TYPE_CHECKING:
    from ...hlo import Module
    from ...hlo.parts import FrameTable

Mask = NDArray[np.bool_]

# Begins the hidden part of a call's name: the line of the caller and a number.
AT_LINE = "\x1e"
# Instructions with a frame of the person's, among those with a name, for a tree to be worth it.
ENOUGH = 0.3
# A scope is the call that at least this share of its distinct stacks come from, and the other way.
NEARLY_ALL = 0.9
# A scope is in the call that at least this share of its distinct stacks come from.
MOSTLY = 0.7
# The share of a scope's distinct stacks that another scope has if each is one call of a function.
SHARED = 0.5
# Functions around this share of all instructions say nothing: the jitted function, ``main``.
AROUND_ALL = 0.97
# A call with less of its caller's differentiated instructions is no pass of its own.
A_PASS = 0.1

OPTIMIZER_PACKAGES = ("optax",)
# Functions of theirs that update no parameters by gradients: averages and copies of them.
NO_OPTIMIZER = frozenset(["incremental_update", "periodic_update"])
# The name of what the jitted function itself differentiates.
_DIFFERENTIATED = re.compile(r"jit\([^()/]*\)/(?:jvp|transpose)\(")
# Packages whose functions wrap the person's.
MODULE_PACKAGES = ("jax", "flax", "equinox", "haiku")


Key = tuple[Path, Stack, tuple[int, int]]  # scopes, calls outermost first, line and column


@dataclass(frozen=True, eq=False)
class CallTree:
    """``path[i]`` indexes ``paths``: the calls of each instruction, -1 without a frame or name.

    ``place[i]`` numbers lines and columns in the innermost functions, 0 where unknown; ``line[i]``
    is the line.
    ``root`` is the jitted function, whose name is in no path. ``differentiated`` holds the paths
    below which the passes are, each with the call that was differentiated.
    """

    paths: tuple[Path, ...]
    path: Ints
    place: Ints
    line: Ints
    root: str
    differentiated: dict[Path, str]
    by_optimizer: Mask
    library: list[str]  # the library's function that the person called on that line; "" for none
    exact: bool  # whether a capture knows the calls
    has_calls: bool  # whether there are any below the jitted function


def label(name: str) -> str:
    """What a person reads of a component of a path."""
    return name.partition(AT_LINE)[0]


def unnumbered(name: str) -> str:
    """The call that a numbered one is of: ``mlp`` of ``mlp 3``."""
    if not name.endswith(LAYER):
        return name
    call, _, at = name.removesuffix(LAYER).partition(AT_LINE)
    return f"{call.rpartition(' ')[0]}{AT_LINE}{at}"


@per_module
def call_tree(module: Module) -> CallTree | None:
    """The calls of every instruction; None where frames show too little."""
    return _Builder(module).build()


class _Builder:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.t: Table = table(module)
        self.phase = phases(module)
        self.loops: list[set[int]] | None = None
        # by pieces of a stack those that they may be of
        self.several: dict[int, list[Place]] = {}

    def build(self) -> CallTree | None:
        t = self.t
        frames, ids = self.module.source_frames()
        stacks: dict[Place, int] = {((), (0, 0)): -1}
        of_frame: dict[int, int] = {0: -1}
        updates: dict[int, bool] = {0: False}
        helpers: dict[int, str] = {0: ""}
        for frame in set(ids):
            place, updates[frame], helpers[frame] = _stack(frames, frame)
            of_frame[frame] = stacks.setdefault(place, len(stacks) - 1)
        given = t.by_opcode(lambda o: o in ("parameter", "constant"), bool)
        own = np.array([of_frame[f] for f in ids], np.int64)
        own[given] = -1
        own = self._exact(own, stacks)
        self.named = np.array(["/" in n for n in t.places], bool)[t.place] & ~given
        if (own >= 0).sum() < ENOUGH * max(1, int(self.named.sum())):
            return None
        self.stacks = [s for s in stacks if s[0]]
        functions = self._functions()
        jitted = [_jitted(n, functions) for n in t.places]
        self.library = [helpers[f] or jitted[p] for f, p in zip(ids, t.place.tolist(), strict=True)]
        pieces = own
        own = self._by_flow(self._whole(own))
        own = self._within_definers(self._without_gaps(own))
        self.completed = own != pieces  # their names lack the passes as well
        self._without_others(own)
        self._traced_elsewhere(own, jitted)
        self._computed_once(own, jitted)
        around = self._around(own)
        functions = self._functions()
        scopes = [_scopes(n, functions) for n in t.places]
        jitted = [_jitted(n, functions) for n in t.places]
        self.library = [helpers[f] or jitted[p] for f, p in zip(ids, t.place.tolist(), strict=True)]
        in_module = {frame: _in_module(frames, frame) for frame in set(ids)}
        keys: dict[Key, int] = {}
        rows = np.flatnonzero((own >= 0) | self.named)
        of_row = np.full(len(own), -1, np.int64)
        for row, k, place in zip(
            rows.tolist(), own[rows].tolist(), t.place[rows].tolist(), strict=True
        ):
            stack, line = self.stacks[k] if k >= 0 else ((), (0, 0))
            scope, stack = _with_class(scopes[place], stack[around:], line, in_module[ids[row]])
            key = (scope, stack, line)
            of_row[row] = keys.setdefault(key, len(keys))
        by_pass = [not {IN_FORWARD, IN_BACKWARD}.isdisjoint(name_phases(n)) for n in t.places]
        in_pass = {int(k) for k in np.unique(of_row[rows[np.array(by_pass, bool)[t.place[rows]]]])}
        merged = _merge(_completed(list(keys), in_pass))
        by_optimizer = np.array([updates[f] for f in ids], bool)
        used = (self.stacks[k][0] for k in np.unique(own[own >= 0]).tolist())
        root = next((s[around - 1].name for s in used if len(s) >= around > 0), "")
        places = {at: n for n, at in enumerate(dict.fromkeys(at for _, at in self.stacks), 1)}
        self.place = np.array(
            [places[self.stacks[k][1]] if k >= 0 else 0 for k in own.tolist()], np.int64
        )
        self.line = np.array(
            [self.stacks[k][1][0] if k >= 0 else 0 for k in own.tolist()], np.int64
        )
        return self._with_passes(merged, of_row, root, by_optimizer)

    def _exact(self, own: Ints, stacks: dict[Place, int]) -> Ints:
        """``own`` with the stacks of exactly known calls, which are added to ``stacks``.

        What has only frames is in the call that these can mean; among several it is in what they
        share.
        """
        exact = own_calls(self.module)
        self.exact = bool((exact >= 0).any())
        if not self.exact:
            return own
        assert self.module.origins is not None
        python = self.module.origins.python
        places = list(stacks)[1:]
        columns = self._columns(own, exact, places)
        whole: dict[int, Stack] = {}
        same: dict[tuple[tuple[str, str], ...], set[Stack]] = defaultdict(set)
        for number in np.unique(exact[exact >= 0]).tolist():
            mine = [c for c in python.stack(python[number]) if not c.name.startswith("<")]
            stack = tuple(
                TracedCall(c.file, c.function, (c.called_at, columns.get(c.number, 0)), c.number)
                for c in mine
            )
            whole[number] = stack
            for n in range(1, len(stack) + 1):
                same[tuple((c.file, c.function) for c in stack[:n])].add(stack[:n])
        known: dict[tuple[int, int], int] = {}
        out = own.copy()
        for row in np.flatnonzero((own >= 0) | (exact >= 0)).tolist():
            key = int(exact[row]), int(own[row])
            if key not in known:
                stack, at = places[key[1]] if key[1] >= 0 else ((), (0, 0))
                if key[0] >= 0:
                    found = whole[key[0]]
                else:
                    found = ()
                    for n in range(len(stack), 0, -1):
                        mine_ = same.get(tuple((c.file, c.function) for c in stack[:n]), set())
                        if len(mine_) == 1:
                            (found,) = mine_
                            break
                ends_alike = found and stack and found[-1].function == stack[-1].function
                place = (found, at if ends_alike else (0, 0))
                known[key] = stacks.setdefault(place, len(stacks) - 1) if found else -1
            out[row] = known[key]
        # what has only frames is of calls that are known: its stacks say less, and are left out
        all_ = list(stacks)
        used = np.unique(out[out >= 0])
        stacks.clear()
        stacks.update({all_[k + 1]: n for n, k in enumerate([-1, *used.tolist()], -1)})
        return np.where(out >= 0, np.searchsorted(used, out), -1)

    def _columns(self, own: Ints, exact: Ints, places: list[Place]) -> dict[int, int]:
        """The column of each known call on its line, where all frames in it agree.

        ``down(gelu(up(x)))`` calls one function twice on a line.
        """
        assert self.module.origins is not None
        python = self.module.origins.python
        found: dict[int, set[int]] = defaultdict(set)
        both = (exact >= 0) & (own >= 0)
        for number, k in set(zip(exact[both].tolist(), own[both].tolist(), strict=True)):
            mine = [c for c in python.stack(python[number]) if not c.name.startswith("<")]
            for known, frame in zip(reversed(mine), reversed(places[k][0]), strict=False):
                if (known.file, known.function) != _of(frame) or known.called_at != frame.at[0]:
                    break
                found[known.number].add(frame.at[1])
        return {number: of.pop() for number, of in found.items() if len(of) == 1}

    def _without_others(self, own: Ints) -> None:
        """Takes the stacks of other programs away, in place.

        What jax traced once for several programs (``jax.random.normal``) has the frames of the
        first one: they begin in another function.
        """
        known = np.flatnonzero(own >= 0)
        roots = [stack[0] for stack, _ in self.stacks]
        numbers = {
            root: k for k, root in enumerate(dict.fromkeys((r.file, r.function) for r in roots))
        }
        root = np.array([numbers[r.file, r.function] for r in roots], np.int64)[own[known]]
        if len(numbers) > 1:
            most = np.bincount(root).argmax()
            own[known[root != most]] = -1

    def _whole(self, own: Ints) -> Ints:
        """``own`` with whole stacks for those in which the jitted function is missing.

        The trace of what ``jax.checkpoint`` wraps is evaluated elsewhere: the forward pass of
        ``block`` seems to be called where the step is. Such a piece is where whole stacks have its
        outermost call. What was called on another line than the step, and on no line where it is
        called in it, is of another program.
        """
        jitted = self.module.name.removeprefix("jit_").removeprefix("pmap_")
        at = Counter(
            stack[: n + 1] for stack, _ in self.stacks
            for n, c in enumerate(stack) if c.name == jitted
        )  # fmt: skip
        if not at:
            return own
        root, _ = at.most_common(1)[0]
        n = len(root)
        begun: dict[tuple[str, str], dict[Stack, None]] = defaultdict(dict)
        for stack, _ in self.stacks:
            if stack[:n] == root:
                for k, c in enumerate(stack[n:], n):
                    begun[_of(c)].setdefault(stack[: k + 1])
        known = {place: k for k, place in enumerate(self.stacks)}
        moved: dict[int, int] = {}
        for k, (stack, line) in enumerate(list(self.stacks)):
            inside = [m for m, c in enumerate(stack) if _of(c) == _of(root[-1])]
            if stack[:n] == root or (not inside and stack[: n - 1] != root[:-1]):
                continue
            piece = stack[n - 1 :]
            found = list(begun[_of(piece[0])]) if piece else []
            if piece and piece[0].at != root[-1].at:  # called in a lambda that is not on the stack
                found = [call for call in found if call[-1] == piece[0]]
            if inside:  # the calls around it are missing
                whole = root + stack[inside[-1] + 1 :]
            elif not piece:
                continue
            elif piece[0].at != root[-1].at and not found:
                moved[k] = -1
                continue
            elif len(found) == 1:
                whole = found[0] + piece[1:]
            else:
                first = TracedCall(piece[0].file, piece[0].function, (0, 0))
                whole = (*(_shared(found) or root), first, *piece[1:])
            place = (whole, line)
            if place not in known:
                known[place] = len(self.stacks)
                self.stacks.append(place)
            moved[k] = known[place]
            if not inside and len(found) > 1:
                self.several[moved[k]] = [(call + piece[1:], line) for call in found]
        if not moved:
            return own
        to = np.arange(len(self.stacks) + 1)
        to[-1] = -1
        to[list(moved)] = list(moved.values())
        return np.asarray(to[own])

    def _by_flow(self, own: Ints) -> Ints:
        """``own`` with pieces that several calls may have made in the one that they are part of.

        ``model(chosen)`` and ``model(rejected)`` run the same checkpointed blocks. A block is of
        the call that it reads from and gives to: other lines of these calls have whole stacks.
        """
        t, out = self.t, own.copy()
        pieces = np.isin(own, list(self.several))
        if not pieces.any():
            return own
        home = self._homes()
        early = np.isin(self.phase, (0, IN_FORWARD))  # gradients are of all calls
        forward = (own >= 0) & ~pieces & early & early[home]
        place = t.computation[home]
        seen = np.zeros(len(t.first), bool)
        seen[place[pieces]] = True
        known = {whole: k for k, whole in enumerate(self.stacks)}
        for c, rows in _by_computation(
            place, np.flatnonzero(seen[place] & (pieces | forward))
        ).items():
            graph = Graph(t, c)
            mine = rows[pieces[rows]]
            calls = self._calls_that_differ(set(own[mine].tolist()))
            bit = {k: _bit(self.stacks[k][0], calls) for k in set(own[rows].tolist())}
            bits: dict[int, int] = defaultdict(int)
            for row in rows[~pieces[rows]].tolist():
                bits[int(home[row]) - graph.first] |= bit[int(own[row])]
            # what XLA fused from several calls is of none
            bits = {at: of for at, of in bits.items() if of.bit_count() == 1}
            before, after = graph.ancestors(bits), graph.descendants(bits)
            chosen: dict[tuple[int, int], int] = {}
            for row in mine.tolist():
                at, k = int(home[row]) - graph.first, int(own[row])
                key = k, before[at] & after[at] or before[at] | after[at]
                if key not in chosen:
                    found = [x for x in self.several[k] if _bit(x[0], calls) == key[1] > 0]
                    chosen[key] = known.setdefault(found[0], len(known)) if len(found) == 1 else k
                out[row] = chosen[key]
        self.stacks = list(known)
        return out

    def _calls_that_differ(self, pieces: set[int]) -> list[Stack]:
        """The calls that may have made these pieces, up to where they are not the same."""
        out: dict[Stack, None] = {}
        for k in pieces & self.several.keys():
            stacks = [stack for stack, _ in self.several[k]]
            n = len(_shared(stacks)) + 1
            out.update(dict.fromkeys(stack[:n] for stack in stacks))
        return list(out)

    def _homes(self) -> Ints:
        """Each row, or for one inside a fusion or a reducer what calls it."""
        t = self.t
        caller, roles = t.caller()
        fusion = t.by_opcode(lambda o: o == "fusion", bool)
        runs = t.by_opcode(lambda o: o == "call", bool)
        home = np.arange(len(t.computation))
        for c in range(len(t.first) - 1, -1, -1):
            by = caller[c]
            if by >= 0 and (fusion[by] or (roles[c] == "to_apply" and not runs[by])):
                rows = slice(int(t.first[c]), int(t.first[c] + t.size[c]))
                home[rows] = home[caller[c]]
        return home

    def _without_gaps(self, own: Ints) -> Ints:
        """``own`` with the calls between two that others have between them.

        What ``jax.checkpoint`` wraps in a loop's body seems to be called by what calls the loop:
        ``block`` at the line where ``scan`` is asked to run ``micro``, which calls ``loss`` and
        this ``block``. Of several such calls it is the one in equally many loops, else what all
        have in common.
        """
        if self.exact:
            return own
        at_place: dict[tuple[Stack, tuple[int, int]], list[int]] = defaultdict(list)
        for k, (stack, _) in enumerate(self.stacks):
            for n, c in enumerate(stack[1:], 1):
                at_place[stack[:n], c.at].append(k)
        known = {place: k for k, place in enumerate(self.stacks)}
        to = np.arange(len(self.stacks) + 1)
        to[-1] = -1
        for (before, _), all_ in at_place.items():
            n = len(before)
            first = {_of(self.stacks[k][0][n]) for k in all_}
            if len(first) < 2:
                continue
            below: dict[tuple[str, str], dict[Stack, set[int]]] = {f: {} for f in first}
            for k in all_:
                stack = self.stacks[k][0]
                for m, c in enumerate(stack[n + 1 :], n + 1):
                    if _of(c) in first and _of(c) != _of(stack[n]):
                        below[_of(c)].setdefault(stack[: m + 1], set()).update(self._loops(own)[k])
            for k in all_:
                stack, line = self.stacks[k]
                found = below[_of(stack[n])]
                alike = [s for s, loops in found.items() if loops & self._loops(own)[k]]
                if not found or to[k] != k:
                    continue
                whole = alike[0] if len(alike) == 1 else _shared(alike or list(found))
                place = (whole + stack[n + 1 :] if len(alike) == 1 else (*whole, *stack[n:]), line)
                if place not in known:
                    known[place] = len(self.stacks)
                    self.stacks.append(place)
                to[k] = known[place]
        return np.asarray(to[own])

    def _loops(self, own: Ints) -> list[set[int]]:
        """For each stack, how many loops its operations are in, by their names."""
        if self.loops is None:
            count = np.array([name.count("while/") for name in self.t.places])
            self.loops = [set() for _ in self.stacks]
            for k, loops in set(zip(own.tolist(), count[self.t.place].tolist(), strict=True)):
                if k >= 0:
                    self.loops[k].add(loops)
        return self.loops

    def _within_definers(self, own: Ints) -> Ints:
        """``own`` with the calls around functions that are defined inside of another one.

        jax calls the branches of ``cond`` under ``vmap`` later, and what called ``step`` is not on
        the stack of ``step.<locals>.branch``: it is where other stacks have ``step``.
        """
        whole: dict[tuple[str, str], dict[Stack, None]] = defaultdict(dict)
        for stack, _ in self.stacks:
            for n, c in enumerate(stack):
                whole[_of(c)].setdefault(stack[: n + 1])
        known = {place: k for k, place in enumerate(self.stacks)}
        to = np.arange(len(self.stacks) + 1)
        to[-1] = -1
        for k, (stack, at) in enumerate(list(self.stacks)):
            for n, c in enumerate(stack[1:], 1):
                definer = c.file, c.function.rpartition(".<locals>.")[0]
                if not definer[1] or any(_of(x) == definer for x in stack[:n]):
                    continue
                found = [s for s in whole.get(definer, ()) if s[:n] == stack[:n]]
                if len(found) == 1:
                    place = (found[0] + stack[n:], at)
                    if place not in known:
                        known[place] = len(self.stacks)
                        self.stacks.append(place)
                    to[k] = known[place]
                break
        return np.asarray(to[own])

    def _traced_elsewhere(self, own: Ints, jitted: list[str]) -> None:
        """Cuts the stacks of what jax traced once for several callers, in place.

        ``jax.random.split`` has the stack of whoever called it first, in this program or another
        one, below the stack of this call where XLA knows it. Calls that none of the person's own
        lines has are not of this one; nor is a call whose own lines are in a loop's body, while
        this is outside.
        """
        t = self.t
        caller, _ = t.caller()
        runs_apart = t.by_opcode(lambda o: o in ("while", "conditional"), bool)
        home = np.arange(len(t.first))  # of what a loop or branch does not run: that of its caller
        for c in range(len(home) - 1, -1, -1):
            if caller[c] >= 0 and not runs_apart[caller[c]]:
                home[c] = home[t.computation[caller[c]]]
        shared = np.array([bool(n) for n in jitted], bool)[t.place] & (own >= 0)
        if not shared.any():
            return
        homes: dict[Stack, set[int]] = defaultdict(set)
        mine = np.flatnonzero(~shared & (own >= 0))
        for k, c in set(zip(own[mine].tolist(), home[t.computation[mine]].tolist(), strict=True)):
            stack, _ = self.stacks[k]
            for n in range(1, len(stack) + 1):
                homes[stack[:n]].add(c)
        known = {place: k for k, place in enumerate(self.stacks)}
        moved: dict[tuple[int, int], int] = {}
        rows = np.flatnonzero(shared)
        for r, k, c in zip(
            rows.tolist(), own[rows].tolist(), home[t.computation[rows]].tolist(), strict=True
        ):
            if (k, c) not in moved:
                stack, at = self.stacks[k]
                n = next((n for n in range(len(stack), 0, -1) if stack[:n] in homes), 0)
                place = (stack[:n], stack[n].at if n < len(stack) else at)
                if place not in known:
                    known[place] = len(self.stacks)
                    self.stacks.append(place)
                moved[k, c] = known[place] if n and c in homes[stack[:n]] else -1
            own[r] = moved[k, c]

    def _computed_once(self, own: Ints, jitted: list[str]) -> None:
        """Gives what XLA computed once for several calls the stack of the first, in place.

        What jax traced once (``jitted``) has the stack of any of them, and tells nothing.
        """
        certain = np.where(np.array([bool(n) for n in jitted], bool)[self.t.place], -1, own)
        late, product = self._late_by_name, self._holds_product()
        out = of_first_callers(self.t, self.stacks, certain, self._homes(), late, product)
        moved = out != certain
        own[moved] = out[moved]
        self.completed = self.completed | moved

    def _functions(self) -> frozenset[str]:
        names = {c.function.rpartition(".")[2] for s, _ in self.stacks for c in s}
        return frozenset(names | {c.name for s, _ in self.stacks for c in s})

    def _around(self, own: Ints) -> int:
        """How many calls are around nearly everything, or all of the jitted function.

        A loss that nearly all of a step comes from is yet what the step differentiates.
        """
        jitted = self.module.name.removeprefix("jit_").removeprefix("pmap_")
        counts = Counter(own[own >= 0].tolist())
        total = counts.total()
        least = AROUND_ALL * total
        deep = 0
        while True:
            level: Counter[Stack] = Counter()
            for k, n in counts.items():
                level[self.stacks[k][0][: deep + 1]] += n
            (first, most), *_ = level.most_common(1)
            if len(first) <= deep or most < least:
                return deep
            deep += 1
            if first[-1].name == jitted and any(_DIFFERENTIATED.match(n) for n in self.t.places):
                least = total

    def _with_passes(
        self, merged: list[Path], of_row: Ints, root: str, by_optimizer: Mask
    ) -> CallTree:
        """Puts the passes below the calls that are differentiated."""
        t = self.t
        by_name = [name_phases(n) for n in t.places]
        marked = np.array([any(p in _PASSES for p in of) for of in by_name], bool)[t.place]
        flow = self.phase
        late = self._late(by_name)
        if not late.any():  # tangents, of which nothing is a gradient: no passes
            marked = late
        early = marked & ~late
        after = depends_on(t, late)
        known = of_row >= 0
        trie = _trie(merged)
        n = len(trie)
        node_of = {path: k for k, path in enumerate(trie)}
        node = np.full(len(of_row), -1, np.int64)
        ids = np.array([node_of[p] for p in merged], np.int64)
        node[known] = ids[of_row[known]]
        # what has no name may be of a pass or not
        plain = known & self.named & ~marked & ~t.silent & ~self.completed

        def below(rows: Mask) -> list[int]:
            count: list[int] = np.bincount(node[rows & known], minlength=n).tolist()
            for k in range(n - 1, 0, -1):
                count[node_of[trie[k][:-1]]] += count[k]
            return count

        # inside a fusion of both, what is no part of a pass may yet be in one
        uses = np.where(self._fused(), flow == OPTIMISER, after)
        passes, blocked, first = below(late | early), below(plain & uses), below(early)
        backs = below(late)
        children: dict[Path, list[Path]] = defaultdict(list)
        for path in trie[1:]:
            children[path[:-1]].append(path)
        # The shallowest calls of which nothing uses a gradient are those differentiated.
        tops: list[Path] = []
        stack: list[Path] = [()]
        while stack:
            path = stack.pop()
            k = node_of[path]
            if not backs[k]:
                continue
            mine = [c for c in children[path] if first[node_of[c]] and backs[node_of[c]]]
            if first[k] and (not blocked[k] or (path and not mine)):
                tops.append(path)
            elif not mine:
                continue
            else:
                stack.extend(mine)
        split = self._split(tops, trie, node, late, passes)
        paths: dict[Path, int] = {}
        out = np.full(len(of_row), -1, np.int64)
        differentiated: dict[Path, str] = {}
        made: dict[tuple[int, int, bool], int] = {}
        for row in np.flatnonzero(known).tolist():
            k = int(of_row[row])
            if marked[row]:
                again = late[row] and flow[row] == REMATERIALISED
                kind = 2 if again else 1 if late[row] else 0
            elif not after[row] or flow[row] == IN_FORWARD:
                kind = 0
            else:
                kind = 2 if self.completed[row] else 3
            key = (k, kind, bool(marked[row]))
            if key not in made:
                path = self._in_pass(merged[k], kind, bool(marked[row]), split, differentiated)
                made[key] = paths.setdefault(path, len(paths))
            out[row] = made[key]
        return CallTree(
            tuple(paths),
            out,
            self.place,
            self.line,
            root,
            differentiated,
            by_optimizer & ~marked,
            self.library,
            self.exact,
            any(merged),
        )

    def _split(
        self, tops: list[Path], trie: list[Path], node: Ints, late: Mask, passes: list[int]
    ) -> dict[Path, bool]:
        """For each differentiated call whether the passes are inside its own box.

        So it is where one function differentiates several, as for a generator and a discriminator.
        Calls whose gradients feed one another are parts of one: of a loss in a ``lambda``.
        """
        number = {path: n for n, path in enumerate(tops)}
        of_node = np.full(len(trie) + 1, -1, np.int64)
        for k, path in enumerate(trie):
            found = (number.get(path[:n]) for n in range(len(path), -1, -1))
            of_node[k] = next((n for n in found if n is not None), -1)
        top = np.where(late, of_node[node], -1)
        product = self._holds_product() & (top >= 0) & ~self._fused()
        by_caller: dict[Path, list[int]] = defaultdict(list)
        for n, path in enumerate(tops):
            by_caller[path[:-1]].append(n)
        one = list(range(len(tops)))
        on_the_way = late | (node < 0)
        edges = on_the_way[self.t.operands.rows] & ~self.t.silent[self.t.operands.values]
        for calls in by_caller.values():
            for x in calls if len(calls) > 1 else ():
                through = reached(self.t, top == x, edges)
                for y in calls:
                    mine = product & (top == y)
                    if x != y and mine.any() and through[mine].mean() > MOSTLY:
                        one = [one[x] if k == one[y] else k for k in one]
        work = {n: passes[trie.index(path)] for n, path in enumerate(tops)}
        out: dict[Path, bool] = {}
        for calls in by_caller.values():
            whole = sum(work[n] for n in calls)
            heavy = {one[n] for n in calls if work[n] >= A_PASS * whole}
            for n in calls:
                alone = sum(one[m] == one[n] for m in calls) == 1
                out[tops[n]] = bool(tops[n]) and len(heavy) > 1 and alone
        return out

    @cached_property
    def _late_by_name(self) -> Mask:
        """Rows of a backward pass, as their names say."""
        late = (IN_BACKWARD, REMATERIALISED)
        of = [all(p in late for p in name_phases(n)) for n in self.t.places]
        return np.array(of, bool)[self.t.place]

    def _late(self, by_name: list[tuple[int, ...]]) -> Mask:
        """Rows of a backward pass by name.

        Not what equals something of the forward pass and has the other's name: the forward pass
        uses it, and no gradient leads to it. Of a second loss's forward pass one does.
        """
        t = self.t
        named = self._late_by_name
        by_flow = np.isin(self.phase, (IN_BACKWARD, REMATERIALISED))
        several = np.array([len(of) > 1 for of in by_name], bool)[t.place]
        product = named & self._holds_product()
        return np.asarray(
            (named & (by_flow | product | depends_on(t, product))) | (several & by_flow)
        )

    def _fused(self) -> Mask:
        """Rows in fusions."""
        caller, _ = self.t.caller()
        fusion = self.t.by_opcode(lambda o: o == "fusion", bool)
        inside = (caller >= 0) & fusion[np.maximum(caller, 0)]
        return np.asarray(inside[self.t.computation])

    def _holds_product(self) -> Mask:
        """Fusions and kernels that multiply matrices."""
        return np.isin(families(self.module), [ID["matmul"], ID["convolution"]])

    def _in_pass(
        self, path: Path, kind: int, marked: bool, split: dict[Path, bool], names: dict[Path, str]
    ) -> Path:
        lead = (FORWARD, BACKWARD, BACKWARD)[kind] if kind < 3 else ""
        for n in range(len(path), -1, -1):
            at = path[:n]
            if at in split:
                break
        else:
            # marked, but above what is differentiated: sums of gradients where they meet
            below = [p for p in split if p[: len(path)] == path]
            if marked and below and len({p[:-1] for p in below}) == 1:
                only = below[0]
                if not any(split[p] for p in below) and only[:-1] == path:
                    return (*path, lead)
            if marked and not split:
                return (lead, *path)
            return path
        if not lead:
            return path
        recomputed = (REMAT,) if kind == 2 else ()
        if split[at]:
            names[(*at, lead)] = at[-1]
            return (*at, lead, *recomputed, *path[n:])
        if not at:
            return (lead, *recomputed, *path)
        if sum(p[:-1] == at[:-1] for p in split) == 1:
            names[(*at[:-1], lead)] = at[-1]
            return (*at[:-1], lead, *recomputed, *path[n:])
        return (*at[:-1], lead, *recomputed, *path[n - 1 :])


_PASSES = (IN_FORWARD, IN_BACKWARD, REMATERIALISED)


def _bit(stack: Stack, calls: list[Stack]) -> int:
    """The bit of the call that a stack is in; 0 if none."""
    return sum(1 << n for n, call in enumerate(calls) if stack[: len(call)] == call)


def _by_computation(place: Ints, rows: Ints) -> dict[int, Ints]:
    """These rows by the computations that they are in."""
    order = rows[np.argsort(place[rows], kind="stable")]
    found, begin = np.unique(place[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, begin[1:]), strict=True))


def _of(call: TracedCall) -> tuple[str, str]:
    return call.file, call.function


def _shared(stacks: list[Stack]) -> Stack:
    """The calls around all of these."""
    if not stacks:
        return ()
    first, last = min(stacks, key=_order), max(stacks, key=_order)
    n = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: min(n, len(first) - 1, len(last) - 1)]


def _order(stack: Stack) -> list[tuple[str, str, tuple[int, int], int]]:
    return [(c.file, c.function, c.at, c.number) for c in stack]


def _trie(paths: list[Path]) -> list[Path]:
    """All prefixes, shorter ones first."""
    found = {p[:n] for p in paths for n in range(len(p) + 1)} | {()}
    return sorted(found, key=lambda p: (len(p), p))


def _stack(frames: FrameTable, frame: int) -> tuple[Place, bool, str]:
    """The person's own calls, outermost first, the line there, whether an optimizer made it.

    Then the plain function of a library that was called there: a loss of optax; '' for none.

    While jax traces a loop's body the frames around the loop stand in the stack once more: a call
    on the same line is the same one.
    """
    out: list[TracedCall] = []
    lines: list[int] = []
    at, by_optimizer, helper = (0, 0), False, ""
    for f in reversed(frames.stack(frame)):
        function = f.function or ""
        if is_library(f.file):
            by_optimizer = by_optimizer or (
                any(f"/{p}/" in f.file for p in OPTIMIZER_PACKAGES) and "/losses/" not in f.file
            )
            if function in NO_OPTIMIZER:
                by_optimizer, helper = False, function
                break
            if function.isidentifier() and not any(f"/{p}/" in f.file for p in MODULE_PACKAGES):
                helper = helper or function
            continue
        helper = ""
        short = function.rpartition("<locals>.")[2]
        here = (f.line, f.column or 0)
        if not short or short.startswith("<"):
            at = here
            continue
        for k, (known, line) in enumerate(zip(out, lines, strict=True)):
            if (known.file, known.function) == (f.file, function) and line == f.line:
                at = known.at
                del out[k:], lines[k:]
                break
        by_optimizer = False
        out.append(TracedCall(f.file, function, at))
        lines.append(f.line)
        at = here
    return (tuple(out), at if out else (0, 0)), by_optimizer, helper


def _in_module(frames: FrameTable, frame: int) -> bool:
    """Whether a module of a library, called by the person's own code, made it."""
    inside = takewhile(lambda f: is_library(f.file), frames.stack(frame))
    return any(f"/{p}/" in f.file for f in inside for p in MODULE_PACKAGES if p != "jax")


def _jitted(op_name: str, functions: frozenset[str]) -> str:
    """The outermost jitted function in a name that is not the person's: jax's ``normal``."""
    for c in parse_op_name(op_name) or ():
        if c.endswith(CALLED) and _is_library(c, functions):
            return c.removesuffix(CALLED).strip("_")
    return ""


def _is_library(called: str, functions: frozenset[str]) -> bool:
    name = called.removesuffix(CALLED).rpartition("<locals>.")[2]
    return name.isidentifier() and name not in functions


def _scopes(op_name: str, functions: frozenset[str]) -> Path:
    """Scopes of a name, without passes, loops and calls of jitted functions.

    What a library's jitted function holds is not the person's: jax puts the step's own name there.
    """
    found = parse_op_name(op_name) or ()
    for n, c in enumerate(found):
        if c.endswith(CALLED) and _is_library(c, functions):
            found = found[:n]
            break
    return tuple(
        c.rpartition("<locals>.")[2]
        for c in found
        if c not in (FORWARD, BACKWARD, REMAT)
        and c not in LOOPS
        and not c.endswith(CALLED)
        and c.rpartition("<locals>.")[2] not in functions - {c}
    )


def is_class(name: str) -> bool:
    """Whether it is a class of a package, with the package: ``eqx.nn.Linear``."""
    package, _, last = name.rpartition(".")
    parts = [*package.split("."), last]
    return package.islower() and last[:1].isupper() and all(map(str.isidentifier, parts))


def _with_class(
    scope: Path, stack: Stack, line: tuple[int, int], in_module: bool
) -> tuple[Path, Stack]:
    """Scopes and calls with the module of a library that is called on this line as a call.

    Equinox names classes, not modules: those called on two lines are two.
    """
    if in_module and line != (0, 0):
        for n, name in enumerate(scope):
            if is_class(name):
                return scope[:n] + scope[n + 1 :], (*stack, TracedCall("", name, line))
    return scope, stack


Item = tuple[Path, Stack, tuple[int, int], int]  # scopes and calls that are left, line, number


class _Level:
    """Stacks at one place of the tree, by their next call and next scope."""

    def __init__(self, keys: list[Item]) -> None:
        self.keys = keys
        chains = Counter((calls, line) for _, calls, line, _ in keys)
        weight: dict[tuple[TracedCall | None, str], float] = defaultdict(float)
        calls: dict[TracedCall | None, float] = defaultdict(float)
        scopes: dict[str, float] = defaultdict(float)
        for scope, stack, line, _ in keys:
            c, s = (stack[0] if stack else None), (scope[0] if scope else "")
            w = 1 / chains[stack, line]
            weight[c, s] += w
            calls[c] += w
            scopes[s] += w
        self.weight, self.calls, self.scopes = weight, calls, scopes
        # The call that a scope is in. What jax traced once for several calls (``jax.jit``) has
        # the frames of the first: the scope is right about it.
        self.main: dict[str, TracedCall] = {}
        for (call, name), w in weight.items():
            if call is not None and name and w >= MOSTLY * scopes[name]:
                self.main[name] = call

    def is_the_call(self, call: TracedCall) -> bool:
        """Whether the scopes in a call are the call itself: one, or one for each time."""
        mine = [s for s, c in self.main.items() if c == call]
        inside = sum(self.weight[call, s] for s in mine)
        strays = sum(
            w for (c, s), w in self.weight.items() if c == call and self.main.get(s, call) != call
        )
        if not mine or inside < NEARLY_ALL * (self.calls[call] - strays):
            return False
        return self._are_alike(call) if len(mine) > 1 else not self._is_deeper(call, mine[0])

    def _are_alike(self, call: TracedCall) -> bool:
        """Whether the scopes in a call hold the same lines: one call each, not its parts."""
        lines: dict[str, set[Place]] = defaultdict(set)
        for scope, stack, line, _ in self.keys:
            if scope and stack and stack[0] == call == self.main.get(scope[0]):
                lines[scope[0]].add((stack, line))
        for name, mine in lines.items():
            others = set().union(*(of for s, of in lines.items() if s != name))
            if len(mine & others) < SHARED * len(mine):
                return False
        return True

    def around(self, call: TracedCall) -> set[str]:
        """The scopes that are around a call and others, together around all of it."""
        mine = {s: w for (c, s), w in self.weight.items() if c == call and s}
        wider = {
            s
            for s, w in mine.items()
            if w < NEARLY_ALL * self.scopes[s] and not self._is_deeper(call, s)
        }
        return wider if sum(mine[s] for s in wider) >= NEARLY_ALL * self.calls[call] else set()

    def _is_deeper(self, call: TracedCall, scope: str) -> bool:
        """Whether only one call in this one has the scope: it begins there, here and elsewhere."""
        inner: dict[TracedCall | None, list[bool]] = defaultdict(list)
        for mine, stack, _, _ in self.keys:
            if stack and stack[0] == call:
                below = stack[1] if len(stack) > 1 else None
                inner[below].append(mine[:1] == (scope,))
        having = [below for below, has in inner.items() if 2 * sum(has) > len(has)]
        return len(having) == 1 and having[0] is not None and len(inner) > 1


def _completed(keys: list[Key], in_pass: set[int]) -> list[Key]:
    """The keys with the outer scopes that those of a pass have before their first scope.

    What jax computes ahead of differentiation lacks those around it: ``blocks/attn`` for
    ``TextModel/blocks/attn``. It has the calls that are around all others. ``in_pass``: the keys of
    operations whose names say that they are differentiated.
    """
    around: dict[str, set[Path]] = defaultdict(set)
    calls: dict[str, Stack] = {}
    for k in sorted(in_pass):
        scope, stack, _ = keys[k]
        for n, name in enumerate(scope):
            if name not in scope[:n]:
                around[name].add(scope[:n])
                both = zip(calls.get(name, stack), stack, strict=False)
                calls[name] = tuple(a for a, b in takewhile(_same, both))
    whole = {name: of.pop() for name, of in around.items() if len(of) == 1 and calls[name]}
    out = []
    for k, (scope, stack, line) in enumerate(keys):
        outer = whole.get(scope[0], ()) if scope and k not in in_pass else ()
        if outer and _begins(stack, calls[scope[0]]):
            scope = outer + scope
        out.append((scope, stack, line))
    return out


def _begins(stack: Stack, calls: Stack) -> bool:
    """Whether these calls are around a stack; some may be missing before an unknown one."""
    for n, (mine, call) in enumerate(zip(stack, calls, strict=False)):
        if mine != call:
            return mine.at == (0, 0) and any(_of(c) == _of(mine) for c in calls[n:])
    return len(stack) >= len(calls)


def _same(pair: tuple[TracedCall, TracedCall]) -> bool:
    return pair[0] == pair[1]


def _merge(keys: list[Key]) -> list[Path]:
    """The path of each key: its calls with its scopes where they were opened."""
    out: list[Path] = [()] * len(keys)
    stack: list[tuple[Path, list[Item]]] = [((), [(*key, k) for k, key in enumerate(keys)])]
    while stack:
        path, mine = stack.pop()
        level = _Level(mine)
        same = {c for c in level.calls if c is not None and level.is_the_call(c)}
        around = {c: level.around(c) for c in level.calls if c is not None and c not in same}
        alone: dict[str, list[str]] = defaultdict(list)  # scope → names of calls that it is
        for (c, s), _ in level.weight.items():
            if c in same and s:
                alone[s].append(_name(s, c))
        names = _numbered([c for c in level.calls if c is not None])
        below: dict[str, list[Item]] = defaultdict(list)
        for scope, calls, line, k in mine:
            call, first = (calls[0] if calls else None), (scope[0] if scope else "")
            main = level.main.get(first)
            if call is None and not first:
                out[k] = path
            elif call is not None and main in same and main != call:
                assert main is not None
                below[_name(first, main)].append((scope[1:], (), line, k))
            elif call is None:
                merged = alone.get(first, ())
                name = merged[0] if len(merged) == 1 else first
                below[name].append((scope[1:], calls, line, k))
            elif call in same:
                if first:
                    below[_name(first, call)].append((scope[1:], calls[1:], line, k))
                else:
                    only = [s for (c, s) in level.weight if c == call and s]
                    name = _name(only[0], call) if len(only) == 1 else names[call]
                    below[name].append((scope, calls[1:], line, k))
            elif first in around[call]:
                below[first].append((scope[1:], calls, line, k))
            else:
                below[names[call]].append((scope, calls[1:], line, k))
        stack.extend(((*path, name), inside) for name, inside in below.items())
    return out


def _name(scope: str, call: TracedCall) -> str:
    return f"{scope}{AT_LINE}{call.at[0]}:{call.at[1]}"


def _numbered(calls: list[TracedCall]) -> dict[TracedCall, str]:
    """Names of calls that differ where calls do; known calls from one line have numbers."""
    out: dict[TracedCall, str] = {}
    taken: set[str] = set()
    times = Counter((c.file, c.function, c.at) for c in calls if c.number >= 0)
    begun: Counter[tuple[str, str, tuple[int, int]]] = Counter()
    for call in sorted(calls, key=lambda c: c.number):
        name = _name(call.name, call)
        key = (call.file, call.function, call.at)
        if call.number >= 0 and times[key] > 1:
            name = f"{call.name} {begun[key]}{AT_LINE}{call.at[0]}{LAYER}"
            begun[key] += 1
        while name in taken:
            name = name.replace(AT_LINE, f"{AT_LINE}'")
        taken.add(name)
        out[call] = name
    return out
