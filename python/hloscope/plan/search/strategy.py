"""Which candidates to compile when there are too many: seeds, then one group at a time.

    seeds      on every mesh: data and parameters the usual ways (replicated, by their first
               dimension, by their larger one, widening layers by columns, narrowing by rows)
    a pass     from the best so far, every choice of one group after another, keeping what is
               better; large groups first
    pairs      two groups at once on one axis, where one alone would have to gather
    meshes     the best so far on the other meshes
    again      from the best that was not yet a starting point, until the budget is spent

Everything is decided by costs alone, in a fixed order, so that the same candidates are evaluated
whatever runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from .space import Group, Selection, Space, Spec, canonical

Key = tuple[float, ...]
# At most this many starting points are expanded, best first.
BEAM = 6
PAIRS = 24
# At least this many seeds per mesh, whatever the budget: replicated, data, data and tensor, and
# those with FSDP.
FEWEST = 4


class Spent(Exception):
    """The budget of candidates is used up."""


class Exploration:
    """``seen``: candidate → its cost, in the order they were evaluated."""

    def __init__(
        self, space: Space, look: Callable[[Sequence[Selection]], list[Key]], budget: int
    ) -> None:
        self.space, self._look, self.budget = space, look, budget
        self.seen: dict[Selection, Key] = {}

    def look(self, choices: Sequence[Selection]) -> None:
        """Compiles those not seen yet, as far as the budget allows."""
        new = [c for c in dict.fromkeys(choices) if c not in self.seen]
        room = self.budget - len(self.seen)
        some = new[:room]
        if some:
            self.seen |= zip(some, self._look(some), strict=True)
        if len(new) > room:
            raise Spent

    def best(self) -> Selection:
        """The cheapest so far; of equals the one seen first."""
        return min(self.seen, key=lambda c: self.seen[c])


def explore(
    space: Space, look: Callable[[Sequence[Selection]], list[Key]], budget: int
) -> dict[Selection, Key]:
    """Evaluates no more than ``budget`` candidates; their costs in that order."""
    e = Exploration(space, look, budget)
    try:
        for mesh in range(len(space.meshes)):
            some = max(FEWEST, budget // (3 * len(space.meshes)))
            e.look(list(seeds(space, mesh))[:some])
        expanded: set[Selection] = set()
        for _ in range(BEAM):
            ranked = sorted(e.seen, key=lambda c: e.seen[c])
            start = next((c for c in ranked if c not in expanded), None)
            if start is None:
                break
            end = _climb(e, start, expanded)
            e.look([_on_mesh(space, end, m) for m in range(len(space.meshes))])
    except Spent:
        pass
    return e.seen


def _climb(e: Exploration, start: Selection, expanded: set[Selection]) -> Selection:
    """Passes over all groups until nothing improves, then pairs, then passes again."""
    space = e.space
    order = sorted(range(len(space.groups)), key=lambda g: (-space.groups[g].bytes, g))
    at = start
    while True:
        expanded.add(at)
        before = at
        for g in order:
            options = [_with(at, g, n) for n in space.choices(at.mesh, g)]
            e.look(options)
            at = min([at, *options], key=lambda c: e.seen[c])
        if at != before:
            continue
        pairs = list(_pairs(space, at, order))
        e.look(pairs[:PAIRS])
        at = min([at, *(p for p in pairs if p in e.seen)], key=lambda c: e.seen[c])
        if at == before:
            return at


def _with(choice: Selection, group: int, pick: int) -> Selection:
    picks = list(choice.picks)
    picks[group] = pick
    return Selection(choice.mesh, tuple(picks))


def _pairs(space: Space, at: Selection, order: Sequence[int]) -> Iterator[Selection]:
    """Two groups moved to the same axis together, large ones first."""
    sizes = space.meshes[at.mesh]
    for a, b in combinations(order, 2):
        for axis in (x for x, n in sizes.items() if n > 1):
            for i in _only_on(space, at.mesh, a, axis):
                for j in _only_on(space, at.mesh, b, axis):
                    if at.picks[a] != i and at.picks[b] != j:
                        yield _with(_with(at, a, i), b, j)


def _only_on(space: Space, mesh: int, group: int, axis: str) -> list[int]:
    """Choices of a group that use one axis on one dimension and no other."""
    sizes = space.meshes[mesh]
    out = []
    for n in space.choices(mesh, group):
        spec = canonical(space.groups[group].choices[n], sizes)
        if [entry for entry in spec if entry is not None] == [axis]:
            out.append(n)
    return out


def _on_mesh(space: Space, choice: Selection, mesh: int) -> Selection:
    """The same specs on another mesh; a group's first choice where it lacks one."""
    picks = []
    for g, n in enumerate(choice.picks):
        wanted = canonical(space.groups[g].choices[n], space.meshes[mesh])
        picks.append(_pick(space, mesh, g, wanted))
    return Selection(mesh, tuple(picks))


def _pick(space: Space, mesh: int, group: int, wanted: Spec) -> int:
    options = space.choices(mesh, group)
    sizes = space.meshes[mesh]
    wanted = canonical(wanted, sizes)
    for n in options:
        if canonical(space.groups[group].choices[n], sizes) == wanted:
            return n
    for n in options:
        if not canonical(space.groups[group].choices[n], sizes):
            return n
    return options[0]


def _dim(group: Group, rule: str) -> int | None:
    """Which dimension a rule shards."""
    shape = group.shapes[0]
    if not shape:
        return None
    if rule == "first":
        return 0
    if rule == "last":
        return len(shape) - 1
    if rule == "larger":
        return max(range(len(shape)), key=lambda d: (shape[d], d))
    # by columns where a layer widens, by rows where it narrows
    if len(shape) < 2:
        return None
    return len(shape) - 2 if shape[-2] > shape[-1] else len(shape) - 1


def _spec(group: Group, parts: Sequence[tuple[str, str]]) -> Spec:
    """Axes on the dimensions that rules choose; two rules on one dimension keep the first."""
    dims: list[str | None] = [None] * len(group.shapes[0])
    for rule, axis in parts:
        d = _dim(group, rule)
        if d is not None and dims[d] is None:
            dims[d] = axis
    return tuple(dims)


def seeds(space: Space, mesh: int) -> Iterator[Selection]:
    """The usual ways to shard, on one mesh; all replicated first."""
    axes = [a for a, n in space.meshes[mesh].items() if n > 1]
    recipes: list[tuple[str | None, list[tuple[str, str]]]] = [(None, [])]
    for a in axes:
        others = [b for b in axes if b != a]
        recipes.append((a, []))
        for b in others:
            recipes += [(a, [("widen", b)]), (a, [("widen", b), ("larger", a)])]
        recipes += [(a, [("larger", a)]), (a, [("first", a)]), (None, [("widen", a)])]
        recipes += [(a, [("last", b)]) for b in others]
    for data, parts in recipes:
        picks = []
        for g, group in enumerate(space.groups):
            rules = [("first", data)] if group.is_data and data else []
            spec = _spec(group, rules if group.is_data else parts)
            picks.append(_pick(space, mesh, g, spec))
        yield Selection(mesh, tuple(picks))
