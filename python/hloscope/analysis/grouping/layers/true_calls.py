"""Layers from the calls themselves, where a capture knows each one.

Repetition finds layers without names; that one instruction is from the third call and another
from the fourth it can only infer. A capture knows, so calls of one function by one caller become
the groups, one group per call, forward and backward apart:

    loss ─┬ layer #1      forward ─ layer 0, layer 1, layer 2      folded: layer [0..2]
          ├ layer #2      backward ─ layer 2, layer 1, layer 0
          └ layer #3

If scopes of the user's separate the calls (Flax's ``h_0``, ``h_1``) they are the calls
already, and stay. Calls that alternate with others (``attn``, ``mlp``, ``attn``, …) are parts of
layers: the layers stay, and ``functions.py`` cuts each by its own calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...base.lines.op_name import BACKWARD, FORWARD, LAYER, Path, common, common_to_most
from ...base.phases.phases import BACKWARD as IN_BACKWARD
from ...base.phases.phases import REMATERIALISED, phases
from ...base.table import Ints, per_module, table
from ..scopes import Scopes, combines, inherit

if TYPE_CHECKING:
    from ....hlo import Module
    from ....hlo.origins.python_calls import PythonCalls

# Calls with fewer boxes each, on average, are left as they are.
SMALLEST = 3
# Calls that are a smaller share of their caller are parts of a step, cut by ``functions.py``.
LARGEST_PART = 0.4
# A layer found by repetition is the call that at least this share of it comes from.
MOSTLY = 0.6
# The share of a call's boxes in the scope that counts as its own.
NEARLY_ALL = 0.8
_OPTIMISER = "optimizer"


@per_module
def own_calls(module: Module) -> Ints:
    """The innermost call that each instruction comes from, -1 where unknown."""
    n = len(module.instructions)
    out = np.full(n, -1, np.int64)
    origins = module.origins
    if origins is None or not len(origins.python):
        return out
    python = origins.python
    t = table(module)
    joined = (t.by_opcode(combines, bool) & (t.operands.counts > 1)).tolist()
    silent = t.by_opcode(lambda o: o in ("parameter", "constant"), bool).tolist()
    for i, of in enumerate(origins.of):
        if not of or silent[i]:
            continue
        found = [python.of(o) for o in (of if joined[i] else of[:1])]
        numbers = {-1 if c is None else c.number for c in found}
        out[i] = numbers.pop() if len(numbers) == 1 else _shared(python, numbers)
    return out


def _shared(python: PythonCalls, numbers: set[int]) -> int:
    """The innermost call around all of these."""
    if -1 in numbers:
        return -1
    stacks = [[c.number for c in python.stack(python[n])] for n in numbers]
    shared = -1
    for level in zip(*stacks, strict=False):
        if len(set(level)) > 1:
            break
        shared = level[0]
    return shared


class _Family:
    """Calls of one function by one caller, in the order of execution."""

    def __init__(self, calls: list[int], name: str) -> None:
        self.calls, self.name = calls, name
        self.number = {c: k for k, c in enumerate(calls)}
        self.prefix: Path = ()


def with_true_calls(module: Module, before: Scopes, found: Scopes) -> Scopes:
    """``found`` with layers by call; ``before``: the scopes without any layers."""
    own = own_calls(module)
    if not (own >= 0).any():
        return found
    return _Writer(module, before, found, own).write()


class _Writer:
    def __init__(self, module: Module, before: Scopes, found: Scopes, own: Ints) -> None:
        assert module.origins is not None
        self.python = module.origins.python
        self.t = table(module)
        self.before, self.found, self.own = before, found, own
        self.late = np.isin(phases(module), (IN_BACKWARD, REMATERIALISED))
        self.phased = any(BACKWARD in p for p in before.paths)
        self.stacks = [tuple(c.number for c in self.python.stack(c)) for c in self.python]

    def write(self) -> Scopes:
        families = self._families()
        if not families:
            return self.found
        spread = inherit(self.t, self.own)
        ids = {p: n for n, p in reversed(list(enumerate(self.found.paths)))}
        paths = list(self.found.paths)
        scope = self.found.scope.copy()
        keys = np.stack([spread, self.before.scope, self.found.scope, self.late], axis=1)
        distinct, which = np.unique(keys, axis=0, return_inverse=True)
        which = which.reshape(-1)
        new = np.full(len(distinct), -1, np.int64)
        layers: dict[Path, Counter[Path]] = defaultdict(Counter)
        left: list[tuple[int, Path]] = []
        counts = np.bincount(which, minlength=len(distinct)).tolist()
        for k, (call, old, now, late) in enumerate(distinct.tolist()):
            here = paths[now] if now >= 0 else ()
            layer = _up_to_layer(here)
            mine = [f for c in (self.stacks[call] if call >= 0 else ()) if (f := families.get(c))]
            if not mine:
                if layer:
                    left.append((k, layer))
                continue
            path = self._path(here, old, bool(late), mine, call)
            new[k] = ids.setdefault(path, len(paths))
            if new[k] == len(paths):
                paths.append(path)
            if layer:
                layers[layer][_up_to_layer(path)] += counts[k]
        for k, layer in left:
            # without a known call, in a layer that is mostly one call
            to, count = (layers[layer].most_common(1) or [((), 0)])[0]
            if to and count >= MOSTLY * layers[layer].total():
                path = (*to, *paths[int(distinct[k, 2])][len(layer) :])
                new[k] = ids.setdefault(path, len(paths))
                if new[k] == len(paths):
                    paths.append(path)
        moved = new[which]
        scope = np.where(moved >= 0, moved, scope)
        return Scopes(tuple(paths), scope, self.found.inherited)

    def _path(self, here: Path, old: int, late: bool, mine: Sequence[_Family], call: int) -> Path:
        rest = self._rest(old)
        lead = here[:1]
        if not (lead and lead[0].startswith(_OPTIMISER)):
            lead = ((BACKWARD,) if late else (FORWARD,)) if self.phased else ()
        out: Path = ()
        done = 0
        for family in mine:
            at = max(done, len(common([rest, family.prefix])) if rest and family.prefix else 0)
            number = next(family.number[c] for c in self.stacks[call] if c in family.number)
            out = (*out, *rest[done:at], f"{family.name} {number}{LAYER}")
            done = at
        return (*lead, *out, *rest[done:])

    def _rest(self, old: int) -> Path:
        path = self.before.paths[old] if old >= 0 else ()
        return path[1:] if path[:1] in ((FORWARD,), (BACKWARD,)) else path

    def _families(self) -> dict[int, _Family]:
        """Call → its family, for calls that become groups."""
        boxes, prefix = self._boxes()
        by_name: dict[tuple[int, str, int, str], list[int]] = defaultdict(list)
        for c in self.python:
            if boxes[c.number] and "<lambda>" not in c.name:
                by_name[self._caller(c.number), c.file, c.begins, c.function].append(c.number)
        found = []
        for (_, _, _, function), calls in by_name.items():
            whole = sum(boxes[c] for c in calls)
            if len(calls) < 2 or whole < SMALLEST * len(calls):
                continue
            caller = self._caller(calls[0])
            if caller >= 0 and whole < LARGEST_PART * boxes[caller]:
                continue
            name = function.rpartition("<locals>.")[2].removesuffix(".__call__")
            family = _Family(sorted(calls), name)
            mine = [prefix[c] for c in family.calls]
            family.prefix = common(mine)
            if not _tell_apart(mine):
                found.append(family)
        if self._has_layers():
            found = [f for f in found if not self._takes_turns(f, found)]
        return {c: f for f in found for c in f.calls}

    def _caller(self, call: int) -> int:
        """The named function around a call: a lambda only passes it on."""
        around = self.python[call].caller
        while around >= 0 and "<lambda>" in self.python[around].name:
            around = self.python[around].caller
        return around

    def _boxes(self) -> tuple[list[int], list[Path]]:
        """Boxes of each call, at any depth, and the scope that nearly all of them are in."""
        caller, roles = self.t.caller()
        inside = np.array([r in ("calls", "to_apply") for r in roles]) & (caller >= 0)
        rows = np.flatnonzero((self.own >= 0) & ~self.t.silent & ~inside[self.t.computation])
        pairs = np.stack([self.own[rows], self.before.scope[rows]], axis=1)
        distinct, counts = np.unique(pairs, axis=0, return_counts=True)
        boxes = [0] * len(self.python)
        scopes: list[Counter[Path]] = [Counter() for _ in boxes]
        for (call, old), count in zip(distinct.tolist(), counts.tolist(), strict=True):
            rest = self._rest(old)
            for c in self.stacks[call]:
                boxes[c] += count
                scopes[c][rest] += count
        return boxes, [common_to_most(s, NEARLY_ALL) for s in scopes]

    def _has_layers(self) -> bool:
        used = np.unique(self.found.scope[self.own >= 0]).tolist()
        return any(_up_to_layer(self.found.paths[s]) for s in used if s >= 0)

    def _takes_turns(self, family: _Family, all_of_them: list[_Family]) -> bool:
        caller = self._caller(family.calls[0])
        for other in all_of_them:
            if other is family or self._caller(other.calls[0]) != caller:
                continue
            both = sorted([(c, 0) for c in family.calls] + [(c, 1) for c in other.calls])
            turns = sum(a[1] != b[1] for a, b in pairwise(both))
            if turns > 2:
                return True
        return False


def _tell_apart(prefixes: list[Path]) -> bool:
    """Whether none of these scopes is within another."""
    ordered = sorted(prefixes)
    return all(b[: len(a)] != a for a, b in pairwise(ordered))


def _up_to_layer(path: Path) -> Path:
    """A path up to its first layer; () if it has none."""
    for k, name in enumerate(path):
        if name.endswith(LAYER):
            return path[: k + 1]
    return ()
