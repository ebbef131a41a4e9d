"""The model's own parts as scopes: layers found by repetition, and what is around them.

    forward ─ embedding        before the first layer
            ─ block 0 … 11     one scope per layer, if no scope of the user's separates them
            ─ loss             after the last
    backward ─ loss, block 11 … 0, embedding
    optimizer · adamw          what comes after the gradients

The results are paths (``op_name.py``), so that everything downstream treats them as scopes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...base.labels.families import ID, families
from ...base.lines.op_name import (
    BACKWARD,
    CALLED,
    FORWARD,
    LAYER,
    Path,
    common,
    common_to_most,
)
from ...base.phases.phases import BACKWARD as IN_BACKWARD
from ...base.phases.phases import OPTIMISER, REMATERIALISED, phases
from ...base.table import Ints, Table, per_module, table
from ..functions import Calls, Mask, calls
from ..optimisers import after_updates, optimiser_name
from ..scopes import Scopes, scopes
from ..work import products
from .ends import looks_up, of_gradients, of_loops, only_for
from .gradients import by_weights, of_other_computation
from .members import free_lookups, free_products, to_gradients, with_their_gradient
from .names import ALIKE, ANCHORS, PHASES, LayerNames, begins, without_phase
from .placing import Numbered, place
from .repeats import NEVER, Repeats, Stack, find, signatures
from .witness import layers_of

if TYPE_CHECKING:
    from ....hlo import Module

# A computation with fewer instructions is left as it is.
SMALLEST = 24
# Scopes separate layers if there are this many for each layer.
TELLING = 0.6
_BEFORE = "before layers"
_BETWEEN = "between layers"
# Stacks beside one another that have one name and a letter, such as those of two towers.
MOST_OF_A_NAME = 2
_LETTERS = "BCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, eq=False)
class Run:
    """A stack of layers under its name; ``named``: scopes of the user's separate them."""

    stack: Stack
    name: str
    prefix: Path
    named: bool
    recedes: bool  # its first layer is the model's last: gradients, recomputation
    identity: tuple[int, ...]  # what layer k shares with its gradient
    scopes: frozenset[Path] = frozenset()  # of layers that the user's scopes separate


@dataclass(frozen=True, eq=False)
class Layers:
    """``layer[i]`` numbers layers over all runs, -1 for none; ``scopes`` has them as components."""

    runs: tuple[Run, ...]
    layer: Ints
    scopes: Scopes


@per_module
def layers(module: Module) -> Layers:
    """Layers of every computation that has any."""
    return _Finder(module).find()


class _Finder:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.t: Table = table(module)
        self.calls: Calls = calls(module)
        self.scopes: Scopes = scopes(module)
        self.phase = phases(module)
        self.family = families(module)
        self.ids: dict[Path, int] = {p: n for n, p in enumerate(self.scopes.paths)}
        self.paths = list(self.scopes.paths)
        self.scope = self.scopes.scope.copy()
        self.layer = np.full(len(self.scope), -1, np.int64)
        self.runs: list[Run] = []
        self.layers = 0
        self.names = LayerNames(self.t, self.calls, self.phase, self.family, self._path)
        self.phased = any(BACKWARD in p for p in self.paths)

    def find(self) -> Layers:
        t = self.t
        anchor = np.isin(self.family, [ID[f] for f in ANCHORS])
        anchor &= ~t.by_opcode(lambda o: o.endswith(("-done", "-update")) or o == "call", bool)
        anchor &= products(self.module) | ~np.isin(self.family, [ID["matmul"], ID["convolution"]])
        # products of an optimiser, such as muon's, are not layers of the model
        anchor &= (self.phase != OPTIMISER) | (self.family == ID["collective"])
        fusions = self._held_by_fusions()
        apart = (self.phase == OPTIMISER) & ~anchor
        frames = self.module.source_frames()[1]
        work = self._work(anchor)
        signature: Ints | None = None
        late = self.phase == IN_BACKWARD if self.phased else None
        for c in self._in_order(anchor, late):
            if fusions[c]:
                continue
            first = int(t.first[c])
            rows = first + np.flatnonzero(anchor[first : first + int(t.size[c])])
            if not len(rows):
                continue
            if signature is None:
                signature = signatures(t, self.family, frames)
            stacks = find(t, c, rows, signature, work)
            whole = stacks or self._loops(c, rows)
            before, found = self.layers, None
            if whole:
                recedes = [self._recedes(s) for s in whole]
                identity = self._identity(whole, recedes)
                told = self._told(whole, identity, recedes, rows) if stacks else {}
                numbered = Numbered(whole, identity, recedes)
                found = place(t, c, numbered, signature, apart, told, late)
            better = None
            if stacks and found is not None and late is not None:
                better = by_weights(t, found, recedes, rows, late)
            if late is not None and (not stacks or all(recedes)):
                model = [(r.stack, r.identity) for r in self.runs if not r.recedes]
                better = of_other_computation(t, c, model, found if stacks else None, rows, late)
            if better is not None:
                self.layers = before
                stacks = better.stacks
                recedes = [self._recedes(s) for s in stacks]
                identity = self._identity(stacks, recedes, better.of)
                told = self._told(stacks, identity, recedes, rows)
                numbered = Numbered(stacks, identity, recedes)
                found = place(t, c, numbered, signature, apart, told, late)
            if found is None:
                continue
            if stacks:
                free_lookups(t, found, signature)
                to_gradients(self.phase, found, recedes, identity)
                with_their_gradient(t, c, self.phase, self.family, signature, found, recedes)
                free_products(self.phase, self.family, found, recedes)
                self._name_layers(found, recedes, identity)
            else:
                loops = [s.spine[0][0] for s in whole]
                found.position[:] = -1
                found.position[np.array(loops) - found.first] = np.arange(len(loops))
            self._name_rest(found, recedes, apart, rows, work)
        self._name_optimiser(anchor)
        scoped = Scopes(tuple(self.paths), self.scope, self.scopes.inherited)
        return Layers(tuple(self.runs), self.layer, scoped)

    def _in_order(self, anchor: Mask, late: Mask | None) -> list[int]:
        """Computations worth a look: those of gradients after the model's."""
        t = self.t
        all_of_them = np.flatnonzero(t.size >= SMALLEST)
        if late is None:
            return [int(c) for c in all_of_them]
        of = t.computation[anchor & late]
        gradients = np.bincount(of, minlength=len(t.first))
        anchors = np.bincount(t.computation[anchor], minlength=len(t.first))
        back = 2 * gradients[all_of_them] > anchors[all_of_them]
        return [*all_of_them[~back].tolist(), *all_of_them[back].tolist()]

    def _told(
        self,
        stacks: tuple[Stack, ...],
        identity: list[list[int]],
        recedes: list[bool],
        rows: Ints,
    ) -> dict[int, int]:
        """Anchors → the layer's number, in the model's own stacks, that their weights belong to."""
        own = [(s.spine, identity[n]) for n, s in enumerate(stacks) if not recedes[n]]
        return layers_of(self.t, own, rows.tolist())

    def _work(self, anchor: Mask) -> Ints:
        """How many anchors each instruction counts for: a loop for all those inside it."""
        t = self.t
        inside = np.bincount(t.computation[anchor], minlength=len(t.first)).tolist()
        where = t.computation[t.called.rows].tolist()
        calls = sorted(set(zip(where, t.called.values.tolist(), strict=True)))
        for caller, callee in calls:  # callers come after what they call
            if callee < caller:
                inside[caller] += inside[callee]
        out = np.ones(len(anchor), np.int64)
        rows = np.flatnonzero(t.by_opcode(lambda o: o == "while", bool))
        for r in rows.tolist():
            mine = t.called.values[t.called.offsets[r] : t.called.offsets[r + 1]]
            out[r] = max(1, sum(inside[c] for c in mine.tolist()))
        return out

    def _held_by_fusions(self) -> list[bool]:
        caller, roles = self.t.caller()
        fusion = self.t.by_opcode(lambda o: o == "fusion", bool)
        return [
            bool(caller[c] >= 0 and (fusion[caller[c]] or roles[c] == "to_apply"))
            for c in range(len(roles))
        ]

    def _loops(self, c: int, rows: Ints) -> tuple[Stack, ...]:
        """Loops around the model's layers, each as a stack of one."""
        loops = rows[self.t.by_opcode(lambda o: o == "while", bool)[rows]]
        size = {int(r): self._inside(int(r)) for r in loops.tolist()}
        most = max(size.values(), default=0)
        return tuple(Stack(c, ((r,),)) for r, n in size.items() if n >= max(12, most / 4))

    def _inside(self, row: int) -> int:
        called = self.t.called
        mine = called.values[called.offsets[row] : called.offsets[row + 1]]
        return int(self.t.size[mine].sum())

    def _recedes(self, stack: Stack) -> bool:
        rows = np.array(stack.spine).ravel()
        return float(np.isin(self.phase[rows], (IN_BACKWARD, REMATERIALISED)).mean()) > 0.5

    def _identity(
        self,
        stacks: tuple[Stack, ...],
        recedes: list[bool],
        known: dict[int, tuple[int, tuple[int, ...]]] | None = None,
    ) -> list[list[int]]:
        """Numbers of layers; a stack of gradients has those of the stack whose gradient it is.

        ``known``: for some stacks, the stack and its layers whose gradients they are, or -1 and
        the numbers themselves.
        """
        known = known or {}
        frames = self.module.source_frames()[1]
        lines = [frozenset(frames[s[0]] for s in stack.spine) - {0} for stack in stacks]
        out: list[list[int]] = []
        at = self.layers
        taken: set[int] = set()
        for n, stack in enumerate(stacks):
            mine = list(range(at, at + stack.count))
            at += stack.count
            if n in known and known[n][0] < 0:
                mine = list(known[n][1])
            elif n not in known and recedes[n]:
                models = [
                    m
                    for m in range(n)
                    if not recedes[m]
                    and stacks[m].count == stack.count
                    and m not in taken
                    and m not in {of for of, _ in known.values()}
                ]
                if models:
                    # where both are of the same lines: gradients run from the last stack on
                    best = max(reversed(models), key=lambda m: len(lines[m] & lines[n]))
                    taken.add(best)
                    mine = out[best][::-1]
            out.append(mine)
        # of a gradient's gradient, the stack that it is the gradient of may come later
        left = [n for n, (of, _) in known.items() if of >= 0]
        while left:
            ready = [n for n in left if known[n][0] not in left] or left[:1]
            for n in ready:
                of, layers = known[n]
                out[n] = [out[of][k] for k in layers]
            left = [n for n in left if n not in ready]
        self.layers = at
        return out

    def _name_layers(self, found: Repeats, recedes: list[bool], identity: list[list[int]]) -> None:
        first = found.first
        called = self.names.of_model(found, recedes)
        many = self._of_one_name(found, identity, called)
        for n, stack in enumerate(found.stacks):
            if n in many:
                continue
            begin = found.start[n]
            twin = next((r for r in self.runs if set(identity[n]) <= set(r.identity)), None)
            lowest = min(identity[n] if twin is None else twin.identity)
            inside = (found.position >= begin) & (found.position < begin + stack.count)
            rows = np.flatnonzero(inside) + first
            number = np.array(identity[n], np.int64) - lowest
            of_row = number[found.position[rows - first] - begin]
            self.layer[rows] = of_row + lowest
            spine = [r for s in stack.spine for r in s]
            distinct = {p for p in self._paths_of(spine)}
            named = len(distinct) >= TELLING * stack.count * self._signature_paths(stack)
            if twin is not None and twin.stack.computation == stack.computation:
                prefix, name = twin.prefix, twin.name
            else:
                prefix, name = self._called(found, n, called)
                name = name if twin is None else twin.name
            mine = set(identity[n])  # passes over the same layers may run either way
            again = any(r.recedes == recedes[n] and set(r.identity) == mine for r in self.runs)
            if (twin is None or again) and not named:
                name = self._unlike(prefix, name)
            apart = self._apart(stack) if named else frozenset()
            run = Run(stack, name, prefix, named, recedes[n], tuple(identity[n]), apart)
            self.runs.append(run)
            if not named:
                held = dict(zip(number.tolist(), self._held_by_scopes(run), strict=False))
                self._rewrite(run, rows, of_row, held)

    def _called(
        self, found: Repeats, n: int, called: dict[int, tuple[Path, str]]
    ) -> tuple[Path, str]:
        stack = found.stacks[n]
        return called.get(n) or self.names.called(found, stack, [r for s in stack.spine for r in s])

    def _of_one_name(
        self,
        found: Repeats,
        identity: list[list[int]],
        called: dict[int, tuple[Path, str]],
    ) -> set[int]:
        """Stacks of which more than ``MOST_OF_A_NAME`` in one place would have one name.

        They and their gradients are pieces of calls, such as the stages of a solver: not layers of
        several models. Where calls are not known they are all that there is.
        """
        if not self.calls.own.any():
            return set()
        known = [set(r.identity) for r in self.runs]
        places: dict[tuple[Path, str], list[int]] = {}
        for n in range(len(found.stacks)):
            mine = set(identity[n])
            if not any(mine <= other for other in known):
                places.setdefault(self._called(found, n, called), []).append(n)
                known.append(mine)
        many = [set(identity[n]) for s in places.values() if len(s) > MOST_OF_A_NAME for n in s]
        return {n for n, mine in enumerate(identity) if any(set(mine) <= m for m in many)}

    def _apart(self, stack: Stack) -> frozenset[Path]:
        """The scope of each layer, where the layers have one each."""
        layers = [Counter(self._paths_of(list(rows))) for rows in zip(*stack.spine, strict=True)]
        paths = [common_to_most(paths, ALIKE) for paths in layers]
        depth = len(common(paths)) + 1
        found = frozenset(p[:depth] for p in paths if len(p) >= depth)
        return found if len(found) == stack.count else frozenset()

    def _held_by_scopes(self, run: Run) -> list[Path]:
        """For each layer the scope below the prefix that it is in; [] if scopes do not show it.

        Levels of a network that the user named hold a few layers each: ``down_1`` two blocks.
        """
        whole = (*run.prefix, run.name)
        layers = list(zip(*run.stack.spine, strict=True))
        found = []
        for rows in layers:
            paths = Counter(without_phase(p) for p in self._paths_of(list(rows)))
            shared = common_to_most(paths, ALIKE)
            around = whole if begins(shared, whole) else run.prefix
            found.append(shared[: len(around) + 1] if begins(shared, around) else ())
        parts = [k for n, k in enumerate(found) if not n or found[n - 1] != k]
        told = all(len(k) > len(run.prefix) for k in parts) and len(set(parts)) == len(parts)
        return found if told and 1 < len(parts) < len(layers) else []

    def _unlike(self, prefix: Path, name: str) -> str:
        """``name``, with a letter if another stack has it, as its layers are others."""
        taken = {r.name for r in self.runs if r.prefix == prefix}
        stem = name[:-2] if name[-2:-1] == " " and name[-1] in _LETTERS else name
        names = (name, *(f"{stem} {letter}" for letter in _LETTERS))
        return next((n for n in names if n not in taken), name)

    def _signature_paths(self, stack: Stack) -> float:
        """How many scopes one layer of the stack spans, by its first layer."""
        return max(1, len({self._path(s[0]) for s in stack.spine}))

    def _path(self, row: int) -> Path:
        return self._path_at(int(self.scope[row]))

    def _path_at(self, scope: int) -> Path:
        return self.paths[scope] if scope >= 0 else ()

    def _place(self, row: int) -> Path:
        """The scope by name, before layers became scopes."""
        return without_phase(self._path_at(int(self.scopes.scope[row])))

    def _paths_of(self, rows: list[int]) -> list[Path]:
        return [self._path(r) for r in rows]

    def _rewrite(self, run: Run, rows: Ints, of_row: Ints, held: dict[int, Path]) -> None:
        spine = [r for s in run.stack.spine for r in s]
        phase = Counter(p[:1] for p in self._paths_of(spine) if p[:1] in PHASES)
        lead: Path = phase.most_common(1)[0][0] if phase else ()
        if not lead and self._in_a_pass(run.stack.computation):
            lead = (BACKWARD,) if run.recedes else (FORWARD,)
        known: dict[tuple[int, int], int] = {}
        for row, k in zip(rows.tolist(), of_row.tolist(), strict=True):
            key = (int(self.scope[row]), k)
            if key not in known:
                rest = without_phase(self._path(row))
                whole = (*run.prefix, run.name)
                around = held.get(k, whole if begins(rest, whole) else run.prefix)
                rest = rest[len(common([rest, around])) :]
                hangs = held.get(k, run.prefix)
                known[key] = self._id((*lead, *hangs, f"{run.name} {k}{LAYER}", *rest))
            self.scope[row] = known[key]

    def _in_a_pass(self, c: int) -> bool:
        """Whether a computation's rows are of a pass: not those of a loop before all passes."""
        if not self.phased or self.module.entry is None or self.module.entry.index == c:
            return self.phased
        caller = int(self.t.caller()[0][c])
        first = int(self.t.first[c])
        rows = [*range(first, first + int(self.t.size[c])), *([caller] if caller >= 0 else [])]
        used = np.unique(self.scope[rows]).tolist()
        return any(self._path_at(s)[:1] in PHASES for s in used)

    def _id(self, path: Path) -> int:
        if path not in self.ids:
            self.ids[path] = len(self.paths)
            self.paths.append(path)
        return self.ids[path]

    def _of_one_pass(self, found: Repeats, recedes: list[bool]) -> Mask:
        """Rows between two stacks that both belong to the model, or both to gradients."""
        back = np.repeat(np.array(recedes), [s.count for s in found.stacks])
        most = len(back) - 1
        above = back[np.clip(found.after, 0, most)]
        below = back[np.clip(found.before, 0, most)]
        inside = (found.after >= 0) & (found.before < NEVER)
        return np.asarray(inside & (above == below))

    def _name_rest(
        self, found: Repeats, recedes: list[bool], apart: np.ndarray, anchors: Ints, work: Ints
    ) -> None:
        """Names what is around the layers without a name: embedding, loss and their gradients.

        Not where a loop elsewhere does more work than the layers: a text encoder's layers
        before a loop of denoising have no head.
        """
        placed = found.position[anchors - found.first] >= 0
        beside, spine = anchors[~placed], found.stacks[0].spine[0][0]
        heavy = beside[work[beside] > work[anchors[placed]].sum()].tolist()
        if any(not common([self._place(r), self._place(spine)]) for r in heavy):
            return
        n = len(found.position)
        rows = np.arange(n) + found.first
        free = (found.position < 0) & ~apart[rows] & ~self.t.silent[rows]
        free &= self.phase[rows] != OPTIMISER
        free &= ~of_loops(self.t, found, free, work)
        before = free & (found.after < 0) & (found.before < NEVER)
        behind = free & (found.after >= 0)
        ends = behind & (found.before == NEVER)
        early = ~np.isin(self.phase[rows], (IN_BACKWARD, REMATERIALISED))
        loose = free & early & (found.after < 0) & (found.before == NEVER)
        labels = only_for(self.t, found, loose, ends & early)  # as indices into the logits
        before |= only_for(self.t, found, loose & ~labels, ends & ~early)  # words, for a gradient
        ends |= labels
        between = behind & ~ends
        if self.phased:  # what only touches gradients is the loss
            late = np.repeat(recedes, [s.count for s in found.stacks])
            only = before & late[np.minimum(found.before, len(late) - 1)]
            only &= found.before < NEVER
            before, between = before & ~only, between | only
            only = ends & ~late[found.after] & (self.phase[rows] == IN_BACKWARD)
            ends, between = ends & ~only, between | only
        embeds = looks_up(self.t, rows[before])
        product = np.isin(self.family[rows], (ID["matmul"], ID["convolution"]))
        of_layer = int((product & (found.position == 0)).sum())
        # a layer of another kind, such as a dense one before layers of experts, is no embedding
        whole = 2 * int((product & before).sum()) > max(of_layer, 6)
        words = {
            "before": _BEFORE if whole else "embedding" if embeds else "input",
            "loss": "loss" if self.phased else "head",
        }
        phased = self._in_a_pass(int(self.t.computation[found.first]))
        inner = between & self._of_one_pass(found, recedes)
        gradients = of_gradients(self.t, found.first, self._leads(found)) if self.phased else []
        for mask, word in (
            (before, words["before"]),
            (inner, _BETWEEN),
            (between & ~inner, words["loss"]),
            (ends, ""),
        ):
            for row in rows[mask].tolist():
                path = self._path(row)
                lead = path[:1] if path[:1] in PHASES else ()
                rest = path[len(lead) :]
                if phased and not lead:
                    late = gradients[row - found.first]
                    lead = (BACKWARD,) if late else (FORWARD,)
                if any(not c.endswith(CALLED) for c in rest):
                    continue
                name = word or words["loss"]
                if lead == (BACKWARD,) and word != _BETWEEN:  # from the loss to the embedding
                    again = word and self.phase[row] == REMATERIALISED
                    name = words["loss"] if word and not again else words["before"]
                    if name == "input" or not any(recedes):
                        # The input has no gradient: these are sums of the layers' own. And if no
                        # layers of the pass were found, nothing says what is around them.
                        self.scope[row] = self._id((*lead, *rest))
                        continue
                if not self.phased and not word:
                    name = "head"
                self.scope[row] = self._id((*lead, name, *rest))

    def _leads(self, found: Repeats) -> list[Path]:
        """The pass of each row by its scope, () for none."""
        scope = self.scope[found.first : found.first + len(found.position)].tolist()
        return [self._path_at(s)[:1] for s in scope]

    def _name_optimiser(self, anchor: np.ndarray) -> None:
        free = (self.layer < 0) & ~self.t.silent & ~after_updates(self.module, self.phase)
        rows = np.flatnonzero((self.phase == OPTIMISER) & free)
        if not len(rows):
            return
        name = optimiser_name(self.module, rows)
        label = f"optimizer · {name}" if name else "optimizer"
        ids = {}
        for s in np.unique(self.scope[rows]).tolist():
            rest = without_phase(self._path_at(s))
            if rest[:1] == (name,):  # a scope of that name says no more
                rest = rest[1:]
            ids[s] = self._id((label, *rest))
        self.scope[rows] = [ids[s] for s in self.scope[rows].tolist()]
