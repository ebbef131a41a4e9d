"""Repeated neighbours become one box with a count: ``layer_[0..23]``.

Members of a fold are scopes whose names differ only in a number, of equal or nearly equal
structure (boundary layers differ by an instruction or two), or equal components of a wide group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.labels.families import ID, families
from ..base.structure import computation_hashes, instruction_hashes, mix, tokens
from ..base.table import Ints, Table, intern, table
from .groups import KINDS, GroupTree
from .layers.names import ITERATION, UNNAMED
from .layers.repeats import Graph

if TYPE_CHECKING:
    from ...hlo import Module

# Near matches: how many instructions may differ, as a share of the bigger one, and at least.
NEAR_SHARE = 0.25
NEAR_COUNT = 6
MIN_MEMBERS = 2
# The same of levels whose arrays differ.
MIN_LEVELS = 3
# Calls of one kind differ in the number of a part's products by at most this share of the larger:
# the first layer's input has no gradient, and XLA splits or merges a few at the ends.
ALIKE = 0.34

_FOLDABLE = frozenset(KINDS.index(k) for k in ("scope", "component"))
_NUMBER = re.compile(r"\d+")


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
    contents = _Contents(module, t, tree)
    out: list[Fold] = []
    of_group = np.full(len(tree.parent), -1, np.int64)
    below = tree.children()
    for parent, children in enumerate(below):
        foldable = [g for g in children if int(tree.kind[g]) in _FOLDABLE]
        if len(foldable) < MIN_MEMBERS:
            continue
        for fold in _runs(foldable, tree, group_class, contents, below):
            of_group[list(fold.members)] = len(out)
            out.append(Fold(parent, fold.label, fold.members))
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

    def __init__(self, module: Module, t: Table, tree: GroupTree) -> None:
        self.table = t
        self.token: NDArray[Any] = tokens(t)
        self.opcode = t.opcode
        self.labels = tree.label
        unnamed = [KINDS.index(k) for k in ("component", "section")]
        self.unnamed = set(np.flatnonzero(np.isin(tree.kind, unnamed)).tolist())
        self.is_product = np.isin(families(module), [ID["matmul"], ID["convolution"]])
        self.order = np.argsort(tree.group, kind="stable")
        self.bounds = np.searchsorted(tree.group[self.order], np.arange(len(tree.parent) + 1))
        self.children: dict[int, list[int]] = {}
        nested = [KINDS.index(k) for k in _NESTED]
        for g in np.flatnonzero(np.isin(tree.kind, nested)).tolist():
            self.children.setdefault(int(tree.parent[g]), []).append(g)
        self.depths: dict[int, Ints] = {}
        self.graphs: dict[int, Graph] = {}
        self.cache: dict[tuple[int, bool], Counter[int]] = {}

    def of(self, g: int, shapes: bool = True) -> Counter[int]:
        """Opcodes with shapes, or without, as levels of a network differ in resolution."""
        if (g, shapes) not in self.cache:
            rows = np.concatenate([self._rows(x) for x in self._subtree(g)])
            column = self.token if shapes else self.opcode
            self.cache[g, shapes] = Counter(column[rows].tolist())
        return self.cache[g, shapes]

    def parts(self, g: int) -> Counter[str]:
        """How many products each named part of a group has, "" for those in none."""
        out: Counter[str] = Counter()
        for child in [g, *self.children.get(g, ())]:
            own = child == g or child in self.unnamed
            rows = self._rows(g) if child == g else np.concatenate(
                [self._rows(x) for x in self._subtree(child)]
            )  # fmt: skip
            count = int(self.is_product[rows].sum())
            if count:
                out["" if own else _NUMBER.sub("#", self.labels[child])] += count
        return out

    def on_the_way(self, a: int, b: int, between: list[int]) -> bool:
        """Whether one of ``between`` needs one of ``a`` and ``b`` and serves the other.

        What serves the products of both is before them, though XLA merged something of it later.
        """
        groups = [a, b, *between]
        products = {g: self._products(g) for g in groups}
        multiply = {g for g in groups if len(products[g])}
        for g in groups:  # without products: all that it does
            if g not in multiply:
                products[g] = np.concatenate([self._rows(x) for x in self._subtree(g)])
        graph = self._graph(int(self.table.computation[products[a][0]]))
        bits = {r - graph.first: 1 << n for n, g in enumerate(groups) for r in products[g].tolist()}
        above = graph.ancestors(bits)
        needs = {
            g: reduce(or_, (above[r - graph.first] for r in products[g].tolist()), 0)
            for g in groups
        }
        return any(
            needs[x] & 1 << groups.index(first)
            and needs[last] & 1 << n
            and not (first in multiply and needs[first] & 1 << n)
            for n, x in enumerate(between, 2)
            for first, last in ((a, b), (b, a))
        )

    def product_shapes(self, g: int) -> Counter[int]:
        """The shapes that a group's products make."""
        return Counter(self.table.shape[self._products(g)].tolist())

    def _products(self, g: int) -> Ints:
        rows = np.concatenate([self._rows(x) for x in self._subtree(g)])
        return np.asarray(rows[self.is_product[rows]])

    def _graph(self, c: int) -> Graph:
        if c not in self.graphs:
            self.graphs[c] = Graph(self.table, c)
        return self.graphs[c]

    def depth(self, g: int) -> float:
        """How many products are before the last one of a group."""
        rows = self._products(g)
        if not len(rows):
            return 0.0
        c = int(self.table.computation[rows[0]])
        if c not in self.depths:
            graph = self._graph(c)
            here = slice(graph.first, graph.first + graph.size)
            self.depths[c] = np.array(graph.depth(self.is_product[here].tolist()), np.int64)
        return float(self.depths[c][rows - self.table.first[c]].max())

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
) -> list[Fold]:
    """Folds among the groups of one parent, whose number is left open."""
    out: list[Fold] = []
    by_hint: dict[str, list[int]] = {}
    for g in groups:
        if tree.hint[g]:
            by_hint.setdefault(tree.hint[g], []).append(g)
    for members in by_hint.values():
        if len(members) >= MIN_MEMBERS:
            out.append(Fold(-1, tree.label[members[0]], tuple(members)))
    named = [g for g in groups if not tree.hint[g]]
    with_products = [g for g in groups if contents.parts(g)]
    place = {g: contents.depth(g) for g in with_products}
    stems = _stems([(g, tree.label[g]) for g in named])
    for stem, numbered in stems.items():
        numbers = {g: n for n, g in numbered}
        ordered = [g for _, g in sorted(numbered)]
        layers = [g for g in ordered if g in place]
        turns = [g for other, of in stems.items() if other != stem for _, g in of if g not in place]
        sets = _of_one_kind(layers, contents, with_products, turns, place)
        others = [g for g in ordered if g not in place]
        for part in _without_products(others, group_class, contents, numbers):
            sets += _that_follow(part, tree, contents, with_products)
        for members in sets:
            label = stem.replace("\0", _range([numbers[g] for g in members]))
            if stem.partition(" ")[0] in (UNNAMED, ITERATION) and all(
                tree.layer[g] for g in members
            ):
                label += _inside(members[0], tree, children)
            out.append(Fold(-1, label, tuple(members)))
    return out


def _without_products(
    ordered: list[int], group_class: Ints, contents: _Contents, numbers: dict[int, int]
) -> list[list[int]]:
    """Sets of groups that do the same with equal arrays; where such take turns or none are
    equal, with any arrays."""
    sets = _alike(ordered, group_class, contents, NEAR_SHARE)[0]
    ranges = sorted((min(n), max(n)) for n in ([numbers[g] for g in of] for of in sets))
    if not sets or any(b[0] < a[1] for a, b in pairwise(ranges)):
        sets = _alike(ordered, group_class, contents, NEAR_SHARE, shapes=False)[0]
    return sets


def _that_follow(
    members: list[int], tree: GroupTree, contents: _Contents, siblings: list[int]
) -> list[list[int]]:
    """Runs of calls with no product between them: two norms around a layer are no fold."""
    if not siblings or any(KINDS[int(tree.kind[g])] != "scope" for g in members):
        return [members]
    out = [members[:1]]
    for a, b in pairwise(members):
        if contents.on_the_way(a, b, siblings):
            out.append([b])
        else:
            out[-1].append(b)
    return [part for part in out if len(part) >= MIN_MEMBERS]


def _stages(members: list[int], contents: _Contents) -> list[list[int]]:
    """Runs of calls whose products have the same shapes, if there are any: stages of a network.

    Levels that all differ, each half as large as the one before, are one fold; two that differ,
    such as both products of an MLP, are none.
    """
    out: list[list[int]] = []
    shapes: Counter[int] = Counter()
    for g in members:
        mine = contents.product_shapes(g)
        shared = (mine & shapes).total()
        if out and shared >= (1 - ALIKE) * min(mine.total(), shapes.total()):
            out[-1].append(g)
        else:
            out.append([g])
            shapes = mine
    if any(len(part) >= MIN_MEMBERS for part in out):
        return out
    return [members] if len(members) >= MIN_LEVELS else []


def _of_one_kind(
    ordered: list[int],
    contents: _Contents,
    siblings: list[int],
    turns: list[int],
    place: dict[int, float],
) -> list[list[int]]:
    """Runs of calls that follow one another and do the same.

    A dense layer and those of experts are no fold, nor are blocks with others between them.
    ``place`` is when each of the ``siblings`` runs; gradients run from the last to the first.
    ``turns``: numbered calls without products, such as norms, that may take turns with these.
    """
    out: list[list[int]] = []
    kinds: list[Counter[str]] = []
    for g in ordered:
        kind = contents.parts(g)
        last = out[-1][-1] if out else -1
        if out and _same_kind(kinds[-1], kind):
            ends = sorted((place[last], place[g]))
            between = turns + [x for x in siblings if ends[0] < place[x] < ends[1]]
            if not between or not contents.on_the_way(last, g, between):
                out[-1].append(g)
                continue
        out.append([g])
        kinds.append(kind)
    parts = [stage for part in out for stage in _stages(part, contents)]
    return [part for part in parts if len(part) >= MIN_MEMBERS]


def _same_kind(a: Counter[str], b: Counter[str]) -> bool:
    """Whether two calls have their products in the same parts, about as many."""
    return all(abs(a[k] - b[k]) <= max(1, ALIKE * max(a[k], b[k])) for k in a | b)


def _inside(layer: int, tree: GroupTree, children: list[list[int]]) -> str:
    """``: attention, mlp``: the biggest parts of a layer that has no name of its own, in order."""
    parts = [g for g in children[layer] if KINDS[tree.kind[g]] == "scope"]
    named = {tree.label[g]: g for g in parts if not _NUMBER.search(tree.label[g])}
    biggest = sorted(named, key=lambda x: -int(tree.size[named[x]]))[:3]
    words = [x for x in named if x in biggest and len(x) <= 24]
    return f": {', '.join(words)}" if words else ""


_PLACE = re.compile(r", line (\d+:)?\Z")


def _stems(labels: list[tuple[int, str]]) -> dict[str, list[tuple[int, int]]]:
    """Label with one number cut out → (number, group); each group under its best stem.

    Labels with several numbers, as ``stage1_block0``, all lose the same one: the one whose
    neighbours are closer together or, if two are as close, that leaves the fewest stems. What is
    the same in all, as in two calls of ``VGG19``, is no number.
    """
    options: dict[int, list[tuple[tuple[str, int], str, int]]] = {}
    numbers: dict[str, set[int]] = {}
    places: dict[tuple[str, int], dict[str, list[int]]] = {}  # kind of number → stem → places
    for place, (g, label) in enumerate(labels):
        masked = _NUMBER.sub("\0", label)
        for n, m in enumerate(_NUMBER.finditer(label)):
            if len(m.group()) > 9 or _PLACE.search(label[: m.start()]):
                continue
            stem = f"{label[: m.start()]}\0{label[m.end() :]}"
            options.setdefault(g, []).append(((masked, n), stem, int(m.group())))
            numbers.setdefault(stem, set()).add(int(m.group()))
            places.setdefault((masked, n), {}).setdefault(stem, []).append(place)
    rank = {kind: (-_far(of.values()), -len(of)) for kind, of in places.items()}
    out: dict[str, list[tuple[int, int]]] = {}
    for g, choices in options.items():
        several = [c for c in choices if len(numbers[c[1]]) >= MIN_MEMBERS]
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
