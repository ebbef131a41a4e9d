"""Loops named by the user's function that they are, instead of ``while`` and ``body``.

    def tower(layers, x):                               tower ×8      nearly all of it is the loop
        x, _ = lax.scan(lambda x, p: (tanh(x @ p), None), x, layers)
        return x.mean(1)

    def model(params, tokens):                          layer ×8      what each iteration calls
        x, _ = lax.scan(layer, params["embed"][tokens], params["layers"])
        return x @ params["head"]

Two loops with one name are distinguished by the arguments they run over: ``layer · image ×8``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...hlo import opcodes, walk
from ..base.labels.flags import QUIET, flags
from ..base.lines.op_name import (
    BACKWARD,
    CALLED,
    FORWARD,
    LAYER,
    LOOPS,
    REMAT,
    Path,
    common_to_most,
    relative,
)
from ..base.loops.trips import trip_count
from ..base.operands import ONE_ARRAY
from ..base.table import Ints, Table, per_module, table
from .call_tree import call_tree
from .functions import Calls, Chain, calls
from .scopes import scopes

if TYPE_CHECKING:
    from ...hlo import Module

# An iteration is the function that at least this share of it comes from.
MOSTLY = 0.6
# And at least this share of all of the iteration.
ENOUGH = 0.25
# The share of a loop's arguments that must agree to name it.
NEARLY_ALL = 0.9
# A function is its loop when what it does otherwise is at most this share of an iteration.
BESIDE = 0.25
# In a module with more loops they are not named.
MOST_LOOPS = 2000

# XLA's names of the bodies of collective matmuls.
_WINDOWED_BODY = re.compile(r"windowed_dot_general_body_(\w+?)(?:[._]|$)")
_WINDOWED = {
    "ag": "all-gather × matmul, windowed",
    "rs": "matmul × reduce-scatter, windowed",
}
_KEY = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]|\.(\w+)")
_SAYS_NOTHING = (
    LOOPS
    | {"body_fn", "loop_body", "scan_body", "scan_fn", "wrapped", "wrapped_fn"}
    | {f"branch_{k}_fun" for k in range(8)}  # jax's, of a conditional
)


@dataclass(frozen=True)
class LoopName:
    """Names of a loop and of one iteration; "" where unknown."""

    loop: str
    turn: str
    back_of: int = -1  # the loop whose gradient it is


def loop_label(body: str) -> str:
    """The label of a collective matmul's loop, by the name of its body; "" for any other loop."""
    if "windowed_dot_general_body" not in body:
        return ""
    found = _WINDOWED_BODY.search(body)
    return _WINDOWED.get(found[1] if found else "", "collective matmul")


@per_module
def loop_names(module: Module) -> dict[int, LoopName]:
    """Names of the loops, by instruction; loops without a name are left out."""
    t = table(module)
    loops = t.where("while")
    if not 0 < len(loops) <= MOST_LOOPS:
        return {}
    return _Namer(module, t, loops).names()


def loop_labels(module: Module, words: Sequence[str], *calls: Mapping[int, str]) -> list[str]:
    """The labels of all instructions with those of named loops in place: ``tower ×8``.

    ``calls``: loops of which it is known that each turn is a call of this function; what comes
    later is known better. A loop back has the name of the loop whose gradient it is.
    """
    out = list(words)
    found = loop_names(module)
    names = {row: name.loop for row, name in found.items() if name.loop}
    for row, call in [pair for of_some in calls for pair in of_some.items()]:
        known = names.get(row, "")  # "tower · image" says more than "tower"
        if not known or not (call in _SAYS_NOTHING or known.startswith(call)):
            names[row] = call
    for row, name in found.items():
        if name.back_of in names:
            names[row] = names[name.back_of]
    for row, loop in names.items():
        trips = trip_count(module.instructions[row])
        out[row] = f"{loop} ×?" if trips is None else f"{loop} ×{trips:,}"
    return out


class _Namer:
    def __init__(self, module: Module, t: Table, loops: Ints) -> None:
        self.module, self.t = module, t
        self.found: Calls = calls(module)
        self.quiet = (flags(module) & QUIET) != 0
        self.bodies: dict[int, Ints] = {}
        self.windowed: dict[int, str] = {}
        for row in loops.tolist():
            body = dict(t.instructions[row].called).get("body")
            if body is not None and loop_label(body.name):
                self.windowed[row] = loop_label(body.name)
            elif body is not None:
                self.bodies[row] = self._run_by(body.index)

    def _run_by(self, computation: int) -> Ints:
        """Rows of a computation and of those it calls directly."""
        t = self.t
        seen, left = {computation}, [computation]
        for c in left:  # grows
            first = int(t.first[c])
            begin, end = t.called.offsets[first], t.called.offsets[first + int(t.size[c])]
            for row, callee in zip(
                t.called.rows[begin:end].tolist(), t.called.values[begin:end].tolist(), strict=True
            ):
                if callee not in seen and t.instructions[row].opcode == "call":
                    seen.add(callee)
                    left.append(callee)
        return np.concatenate([np.arange(t.first[c], t.first[c] + t.size[c]) for c in left])

    def names(self) -> dict[int, LoopName]:
        around = {row: self._around(row) for row in self.bodies}
        of_call: dict[tuple[int, Chain], list[int]] = defaultdict(list)
        for row, chain in around.items():
            of_call[int(self.t.computation[row]), chain[:-1]].append(row)
        whole = {rows[0]: self._is_loop(*key, rows) for key, rows in of_call.items()}
        late = {row: self._late(row) for row in around}
        # a gradient has the name of what it is the gradient of
        scopes_of = {row: self._scope(row) for row in around}
        scope = {row: name for row, (name, _) in scopes_of.items()}
        in_scope = {row: boxes for row, (_, boxes) in scopes_of.items()}
        scoped = {c: scope[row] for row, c in around.items() if c and scope[row]}
        turns = {}
        for row, c in around.items():
            turn, of_turn = self._turn(row, c[:-1])
            named = scope[row] or scoped.get(c, "")
            # a module in the function that every turn runs, beside others
            inside = bool(scope[row]) and in_scope[row] < NEARLY_ALL * of_turn
            turns[row] = turn if turn and (self._holds_loops(row) or inside) else named or turn
        of_line = {c: turns[row] for row, c in around.items() if c and turns[row]}
        forward: dict[Chain, list[int]] = defaultdict(list)
        for row, chain in around.items():
            if chain and not late[row]:
                forward[chain].append(row)
        out: dict[int, LoopName] = {}
        for (_, call), rows in of_call.items():
            for row in rows:
                library = "" if turns[row] else self._library(row)
                turn = turns[row] or ("" if library else of_line.get(around[row], ""))
                alone = whole[rows[0]] and not turn
                # a rule for the gradient of what it calls has only its line: it is no loop of it
                alone = alone and (not late[row] or around[row] in forward)
                loop = turn or library
                loop = loop or (call[-1][1] if alone else self._scope_around(row))
                if not loop and call and call[-1][1] not in _SAYS_NOTHING:
                    loop = f"loop of {call[-1][1]}"
                if loop:
                    twins = forward.get(around[row], []) if late[row] else []
                    out[row] = LoopName(loop, turn, twins[0] if len(twins) == 1 else -1)
        self._told_apart(out)
        return out | {row: LoopName(label, label) for row, label in self.windowed.items()}

    def _holds_loops(self, row: int) -> bool:
        """Whether most of an iteration may be in loops inside, of which its scopes say little."""
        return bool((self.t.opcode[self.bodies[row]] == self.found.loop).any())

    def _late(self, row: int) -> bool:
        known = scopes(self.module)
        scope = int(known.scope[row])
        return scope >= 0 and BACKWARD in known.paths[scope]

    def _around(self, row: int) -> Chain:
        chain = int(self.found.chain[row]) if self.found.own[row] else -1
        return self.found.chains[chain] if chain >= 0 else ()

    def _chains(self, rows: Ints) -> Counter[int]:
        """How many boxes each chain has."""
        mine = self.found.own[rows] & ~self.quiet[rows]
        ids, counts = np.unique(self.found.chain[rows][mine], return_counts=True)
        return Counter(dict(zip(ids.tolist(), counts.tolist(), strict=True)))

    def _is_loop(self, computation: int, call: Chain, loops: list[int]) -> bool:
        """Whether a call of a function is its loop and little else."""
        if len(call) < 2 or call[-1][1] in _SAYS_NOTHING or self._is_program(call[-1][1]):
            return False
        if len({self._around(row)[-1] for row in loops}) > 1:  # two loops, two lines
            return False
        first = int(self.t.first[computation])
        here = np.arange(first, first + int(self.t.size[computation]))
        here = here[self.t.opcode[here] != self.found.loop]
        n, chains = len(call), self.found.chains
        beside = sum(c for k, c in self._chains(here).items() if chains[k][:n] == call)
        inside = sum(self._chains(self.bodies[row]).total() for row in loops)
        return beside <= BESIDE * inside

    def _is_program(self, name: str) -> bool:
        return self.module.name.removeprefix("jit_").removeprefix("pmap_") == name

    def _turn(self, row: int, call: Chain) -> tuple[str, int]:
        """The function that an iteration of the loop calls, if it is a single one, else ""; and
        how many boxes of the iteration it has.

        What the loop itself does in an iteration, slicing and stacking, counts little.
        """
        if not call:
            return "", 0
        chains, n = self.found.chains, len(call)
        counts = [(chains[k], c) for k, c in self._chains(self.bodies[row]).items()]
        own = [(p, c) for p, c in counts if p[:n] == call]
        total, depth = sum(c for _, c in own), n
        while True:
            called: Counter[str] = Counter()
            for path, count in own:
                if len(path) > depth and path[depth][1]:
                    called[path[depth][1]] += count
            (name, count), *_ = called.most_common(1) or [("", 0)]
            # a body whose name says nothing is what it calls, if that is all it does
            most, enough = (MOSTLY, ENOUGH) if depth == n else (NEARLY_ALL, MOSTLY)
            if not name or count < max(most * called.total(), enough * total):
                return "", 0
            if name == call[-1][1]:  # a function that is made where the loop is
                return "", 0
            if name not in _SAYS_NOTHING:
                return name, count
            own = [(p, c) for p, c in own if len(p) > depth and p[depth][1] == name]
            depth += 1

    def _scope(self, row: int) -> tuple[str, int]:
        """The scope the user named around most of an iteration, and how many boxes it has."""
        known = scopes(self.module)
        paths, scope = known.paths, known.scope
        base = paths[scope[row]] if scope[row] >= 0 else ()
        rows = self.bodies[row]
        inside: Counter[Path] = Counter()
        for s, quiet in zip(scope[rows].tolist(), self.quiet[rows].tolist(), strict=True):
            if s >= 0 and not quiet:
                inside[relative(paths[s], base)] += 1
        passes = (FORWARD, BACKWARD, REMAT)
        path = [p for p in common_to_most(inside, MOSTLY) if p not in passes]
        named = [p for p in path if p not in _SAYS_NOTHING and not p.endswith(CALLED)]
        if not named:
            return "", 0
        return named[0], sum(n for p, n in inside.items() if named[0] in p)

    def _library(self, row: int) -> str:
        """The function of a library that a loop is of, if it runs nothing of the person's.

        One inside a loop of the same line is of what that loop runs.
        """
        tree = call_tree(self.module)
        if tree is None:
            return ""
        caller, _ = self.t.caller()
        around = int(caller[self.t.computation[row]])
        while around >= 0:
            if self.t.opcode[around] == self.found.loop and tree.place[around] == tree.place[row]:
                return ""
            around = int(caller[self.t.computation[around]])
        return tree.library[row]

    def _scope_around(self, row: int) -> str:
        """The scope that the loop itself is in."""
        known = scopes(self.module)
        path = known.paths[known.scope[row]] if known.scope[row] >= 0 else ()
        last = path[-1] if path else ""
        nothing = _SAYS_NOTHING | {FORWARD, BACKWARD, REMAT}
        return "" if last in nothing or last.endswith((CALLED, LAYER)) else last.rpartition("/")[2]

    def _told_apart(self, names: dict[int, LoopName]) -> None:
        """Appends what distinguishes their arguments to the names of loops with one name."""
        same: dict[str, list[int]] = defaultdict(list)
        for row, name in names.items():
            same[name.loop].append(row)
        for rows in same.values():
            over = {row: self._arguments(row) for row in rows}
            levels = list(zip(*over.values(), strict=False))
            apart = next((n for n, keys in enumerate(levels) if len(set(keys)) > 1), None)
            if apart is None:
                continue
            for row in rows:
                old = names[row]
                names[row] = replace(old, loop=f"{old.loop} · {over[row][apart]}")

    def _arguments(self, row: int) -> Path:
        """What the arguments that a loop runs over have in common: params, image."""
        given = self.t.instructions[row].operands
        values = given[0].operands if given and given[0].opcode == "tuple" else given
        paths: Counter[Path] = Counter()
        for value in values:
            at = walk.source(value, ONE_ARRAY | opcodes.RESHARDS).instruction
            if at.opcode == "parameter" and at.computation.is_entry:
                paths[_keys(at.op_name)] += 1
        return common_to_most(paths, NEARLY_ALL) if paths else ()


def _keys(path: str) -> Path:
    """``params['image']['qkv']`` → params, image, qkv."""
    head = re.match(r"\w*", path)
    assert head is not None
    return (head[0], *(a or b for a, b in _KEY.findall(path)))
