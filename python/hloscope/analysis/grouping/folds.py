"""Repeated neighbours become one box with a count: ``layer_[0..23]``.

Members of a fold are scopes whose names differ only in a number, of equal or nearly equal
structure (boundary layers differ by an instruction or two), or equal components of a wide group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.structure import computation_hashes, instruction_hashes, mix, tokens
from ..base.table import Ints, Table, intern, table
from .groups import KINDS, GroupTree

if TYPE_CHECKING:
    from ...hlo import Module

# Near matches: how many instructions may differ, as a share of the bigger one, and at least.
NEAR_SHARE = 0.25
NEAR_COUNT = 6
# Layers found by repetition do the same work, whatever XLA merged into the first and the last.
LAYER_SHARE = 0.75
MIN_MEMBERS = 2
# From this many on, scopes whose names differ only in a number are levels of one thing.
LEVELS = 3

_FOLDABLE = frozenset(KINDS.index(k) for k in ("scope", "component"))
_NUMBER = re.compile(r"\d+")
_INDEXES = ("s32", "s64", "u32", "u64", "pred")  # tokens, labels, masks: not weights


@dataclass(frozen=True, slots=True)
class Fold:
    parent: int
    label: str
    members: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Folds:
    folds: tuple[Fold, ...]
    of_group: Ints  # fold of each group, or -1
    group_class: Ints  # equal for isomorphic groups


def folds(module: Module, tree: GroupTree) -> Folds:
    """Classes of equal groups, and runs of equal or nearly equal siblings."""
    t = table(module)
    group_class = classes(t, tree)
    contents = _Contents(t, tree)
    out: list[Fold] = []
    of_group = np.full(len(tree.parent), -1, np.int64)
    below = tree.children()
    for parent, children in enumerate(below):
        foldable = [g for g in children if int(tree.kind[g]) in _FOLDABLE]
        if len(foldable) < MIN_MEMBERS:
            continue
        for label, members in _runs(foldable, tree, group_class, contents, below):
            of_group[members] = len(out)
            out.append(Fold(parent, label, tuple(members)))
    return Folds(tuple(out), of_group, group_class)


def no_folds(tree: GroupTree) -> Folds:
    """Every group on its own."""
    n = len(tree.parent)
    return Folds((), np.full(n, -1, np.int64), np.arange(n))


def classes(t: Table, tree: GroupTree) -> Ints:
    """Equal small numbers for isomorphic groups, by first appearance."""
    base = instruction_hashes(t, tree.group)
    _, full = computation_hashes(t, base)
    sums = np.zeros(len(tree.parent), np.uint64)
    with np.errstate(over="ignore"):
        np.add.at(sums, tree.group, full)
        own = mix(sums + mix(tree.kind.astype(np.uint64)))
        # A called computation is already in its caller's hash; scopes add to their parent's.
        nested = np.flatnonzero(np.isin(tree.kind, [KINDS.index(k) for k in _NESTED]))
        total = own.copy()
        depth = np.zeros(len(total), np.int64)
        for g in nested.tolist():
            depth[g] = depth[tree.parent[g]] + 1
        for level in range(int(depth.max(initial=0)), 0, -1):  # children before parents
            at = nested[depth[nested] == level]
            np.add.at(total, tree.parent[at], mix(total[at]))
    return intern(total.tolist())[0]


_NESTED = ("scope", "component", "section")


class _Contents:
    """Multisets of tokens in a group, at any depth of scopes, made on demand."""

    def __init__(self, t: Table, tree: GroupTree) -> None:
        self.table = t
        self.token: NDArray[Any] = tokens(t)
        self.opcode = t.opcode
        self.order = np.argsort(tree.group, kind="stable")
        self.bounds = np.searchsorted(tree.group[self.order], np.arange(len(tree.parent) + 1))
        self.children: dict[int, list[int]] = {}
        nested = [KINDS.index(k) for k in _NESTED]
        for g in np.flatnonzero(np.isin(tree.kind, nested)).tolist():
            self.children.setdefault(int(tree.parent[g]), []).append(g)
        self.cache: dict[tuple[int, bool], Counter[int]] = {}

    def of(self, g: int, shapes: bool = True) -> Counter[int]:
        """Opcodes with shapes, or without, as levels of a network differ in resolution."""
        if (g, shapes) not in self.cache:
            rows = np.concatenate([self._rows(x) for x in self._subtree(g)])
            column = self.token if shapes else self.opcode
            self.cache[g, shapes] = Counter(column[rows].tolist())
        return self.cache[g, shapes]

    def weights(self, g: int) -> Counter[str]:
        """Shapes of the arguments of ENTRY that it uses: rank 2 or more, no integers."""
        t = self.table
        mine = np.concatenate([self._rows(x) for x in self._subtree(g)]).tolist()
        given = {
            o
            for i in mine
            for o in t.operands.values[t.operands.offsets[i] : t.operands.offsets[i + 1]].tolist()
        }
        parameter = [o for o in given if t.opcodes[t.opcode[o]] == "parameter"]
        shapes = [t.shapes[t.shape[o]] for o in parameter]
        weights = [
            s for s in shapes if len(s.dimensions) > 1 and not s.dense_text.startswith(_INDEXES)
        ]
        return Counter(s.dense_text for s in weights)

    def _rows(self, g: int) -> Ints:
        return np.asarray(self.order[self.bounds[g] : self.bounds[g + 1]])

    def _subtree(self, g: int) -> list[int]:
        out, stack = [], [g]
        while stack:
            at = stack.pop()
            out.append(at)
            stack.extend(self.children.get(at, ()))
        return out


def near(a: Counter[int], b: Counter[int], share: float = NEAR_SHARE) -> bool:
    """Whether two multisets differ only by a few instructions."""
    differ = sum((a - b).values()) + sum((b - a).values())
    return differ <= max(NEAR_COUNT, share * max(a.total(), b.total()))


def _runs(
    groups: list[int],
    tree: GroupTree,
    group_class: Ints,
    contents: _Contents,
    children: list[list[int]],
) -> list[tuple[str, list[int]]]:
    out: list[tuple[str, list[int]]] = []
    by_hint: dict[str, list[int]] = {}
    for g in groups:
        if tree.hint[g]:
            by_hint.setdefault(tree.hint[g], []).append(g)
    for members in by_hint.values():
        if len(members) >= MIN_MEMBERS:
            out.append((tree.label[members[0]], members))
    named = [g for g in groups if not tree.hint[g]]
    for stem, numbered in _stems([(g, tree.label[g]) for g in named]).items():
        ordered = [g for _, g in sorted(numbered)]
        numbers = {g: n for n, g in numbered}
        found_here = all(tree.layer[g] for g in ordered)
        layers = found_here or all(tree.named[g] for g in ordered)
        share = LAYER_SHARE if layers else NEAR_SHARE
        sets, left = _alike(ordered, group_class, contents, share)
        few = len(ordered) >= LEVELS and 2 * len(left) >= len(ordered) and not layers
        few = few and _consecutive(sorted(numbers.values()))
        if few and len({_numbered(g, tree, children) for g in ordered}) == 1:
            # the user's own numbers say more than what XLA made of each level; stages of three
            # and of four units are not levels
            found = _alike(ordered, group_class, contents, LAYER_SHARE, shapes=False)
            if len(found[0]) == 1 and not found[1]:
                sets, left = found
        if layers or len(left) >= LEVELS:  # levels with different resolutions
            parts: dict[tuple[str, ...], list[int]] = {}
            for g in left:
                key = () if layers else _numbered(g, tree, children)
                parts.setdefault(key, []).append(g)
            left = []
            for of in parts.values():
                more, others = _alike(of, group_class, contents, share, shapes=False)
                in_turn = [
                    m
                    for m in more
                    if layers or len(m) >= LEVELS or _consecutive([numbers[g] for g in m])
                ]
                sets += in_turn
                left = [*left, *others, *(g for m in more if m not in in_turn for g in m)]
            most = len(sets) == 1 and len(left) < len(sets[0])
            if layers and (most or (found_here and not sets)):
                # XLA may use many more instructions for one level: it is still a layer
                sets = [[g for g in ordered if g in {*left, *(sets[0] if sets else ())}]]
        if layers:
            sets = _of_one_shape(sets, contents)
        else:
            sets = _interleaved(sets, contents, numbers)
        for members in sets:
            label = stem.replace("\0", _range([numbers[g] for g in members]))
            if found_here:
                label += _inside(members[0], tree, children)
            out.append((label, members))
    return out


def _numbered(group: int, tree: GroupTree, children: list[list[int]]) -> tuple[str, ...]:
    """Labels with a number in a group, without their numbers."""
    scopes = (tree.label[g] for g in children[group] if KINDS[tree.kind[g]] == "scope")
    return tuple(sorted(_NUMBER.sub("#", label) for label in scopes if _NUMBER.search(label)))


def _consecutive(numbers: list[int]) -> bool:
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _of_one_shape(sets: list[list[int]], contents: _Contents) -> list[list[int]]:
    """``sets`` of layers, joined where their weights have the same shapes.

    Each may halve its input, and XLA then compiles the larger ones differently.
    """
    if len(sets) < 2:
        return sets
    by_weights: dict[object, list[int]] = {}
    for n, members in enumerate(sets):
        all_have = contents.weights(members[0])
        for g in members[1:]:
            all_have &= contents.weights(g)
        by_weights.setdefault(tuple(sorted(all_have.elements())) or n, []).extend(members)
    return [sorted(members) for members in by_weights.values()]


def _interleaved(
    sets: list[list[int]], contents: _Contents, numbers: dict[int, int]
) -> list[list[int]]:
    """``sets``, joined where they alternate and do the same with arrays of other shapes.

    Such are the norms of a model's parameters: one thing, done to each. Sets that follow one
    another are stages.
    """
    out: list[list[int]] = []
    for members in sets:
        for other in out:
            turns = sorted([(numbers[g], 0) for g in members] + [(numbers[g], 1) for g in other])
            alternates = sum(a[1] != b[1] for a, b in pairwise(turns)) > 1
            same = contents.of(members[0], shapes=False) == contents.of(other[0], shapes=False)
            if alternates and same:
                other += members
                other.sort(key=numbers.__getitem__)
                break
        else:
            out.append(list(members))
    return out


def _inside(layer: int, tree: GroupTree, children: list[list[int]]) -> str:
    """``: attention, mlp``: the biggest parts of a layer, in order."""
    parts = [g for g in children[layer] if KINDS[tree.kind[g]] == "scope"]
    named = {tree.label[g]: g for g in parts if not _NUMBER.search(tree.label[g])}
    biggest = sorted(named, key=lambda x: -int(tree.size[named[x]]))[:3]
    words = [x for x in named if x in biggest and len(x) <= 24]
    return f": {', '.join(words)}" if words else ""


def _stems(labels: list[tuple[int, str]]) -> dict[str, list[tuple[int, int]]]:
    """Label with one number cut out → (number, group); each group under its best stem.

    Labels with several numbers, as ``stage1_block0``, all lose the same one: the one that leaves
    the fewest stems or, if two leave as many, whose neighbours are closer together.
    """
    options: dict[int, list[tuple[tuple[str, int], str, int]]] = {}
    count: Counter[str] = Counter()
    places: dict[tuple[str, int], dict[str, list[int]]] = {}  # kind of number → stem → places
    for place, (g, label) in enumerate(labels):
        masked = _NUMBER.sub("\0", label)
        for n, m in enumerate(_NUMBER.finditer(label)):
            if len(m.group()) > 9:
                continue
            stem = f"{label[: m.start()]}\0{label[m.end() :]}"
            options.setdefault(g, []).append(((masked, n), stem, int(m.group())))
            count[stem] += 1
            places.setdefault((masked, n), {}).setdefault(stem, []).append(place)
    rank = {kind: (-len(of), -_far(of.values())) for kind, of in places.items()}
    out: dict[str, list[tuple[int, int]]] = {}
    for g, choices in options.items():
        several = [c for c in choices if count[c[1]] >= MIN_MEMBERS]
        if several:
            _, stem, number = max(several, key=lambda choice: rank[choice[0]])
            out.setdefault(stem, []).append((number, g))
    return out


def _far(runs: Iterable[list[int]]) -> float:
    """How far apart neighbours are, on average."""
    gaps = [b - a for places in runs for a, b in pairwise(places)]
    return sum(gaps) / len(gaps) if gaps else 0.0


def _alike(
    groups: list[int],
    group_class: Ints,
    contents: _Contents,
    share: float,
    shapes: bool = True,
) -> tuple[list[list[int]], list[int]]:
    """Sets of equal or nearly equal groups, the most common class first; and the rest."""
    out, alone = [], []
    left = list(groups)
    while len(left) >= MIN_MEMBERS:
        common, _ = Counter(int(group_class[g]) for g in left).most_common(1)[0]
        model = contents.of(next(g for g in left if group_class[g] == common), shapes)
        known: dict[int, bool] = {}
        members = []
        for g in left:
            key = int(group_class[g])
            if key not in known:
                known[key] = key == common or near(model, contents.of(g, shapes), share)
            if known[key]:
                members.append(g)
        chosen = set(members)
        left = [g for g in left if g not in chosen]
        if len(members) >= MIN_MEMBERS:
            out.append(members)
        else:
            alone += members
    return out, sorted([*alone, *left])


def _range(numbers: list[int]) -> str:
    """``[0..23]``, ``[0,4,8]``, ``[0..22 step 2]``, ``[0..23, 26]`` cut short when long."""
    numbers = sorted(numbers)
    step = numbers[1] - numbers[0]
    if len(numbers) > 2 and step > 0 and all(b - a == step for a, b in pairwise(numbers)):
        return f"[{numbers[0]}..{numbers[-1]}{f' step {step}' if step > 1 else ''}]"
    parts: list[str] = []
    begin = previous = numbers[0]
    for n in [*numbers[1:], None]:
        if n is not None and n == previous + 1:
            previous = n
            continue
        parts.append(f"{begin}..{previous}" if previous > begin + 1 else str(begin))
        if previous == begin + 1:
            parts.append(str(previous))
        if n is not None:
            begin = previous = n
    if len(parts) > 4:
        parts = [*parts[:2], "…", parts[-1]]
    return f"[{','.join(parts)}]"
