"""How similar an instruction of one pass is to one of the pass before, by what is around both.

evidence                                    worth
a copy of it, its name, its place           3 to 6
the same source line; another one           3; -3
operands from the same first instructions   up to 5
the same users in the same places           up to 4
the same slice, dimensions, direction       2; another one -1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from .. import match as pass_match
from .families import Families
from .how import How
from .state import RowState
from .walk import Ids

# How far, and over how many instructions, the search goes through what is not known yet.
_DEPTH, _WIDTH = 8, 24
Use = tuple[int, str, int]  # first instruction of the user, its opcode, number of the operand
Ranking = list[tuple[float, int]]


class Evidence:
    """Scores of possible identities; ``sure_only``: without what was only guessed."""

    def __init__(self, state: RowState, families: Families, *, sure_only: bool) -> None:
        self.state, self.walk, self.families = state, state.walk, families
        self.sure_only = sure_only
        self._known: dict[int, Ids] = {}
        self._operands: dict[int, list[frozenset[int]]] = {}
        self._operands_before: dict[int, list[frozenset[int]]] = {}
        self._uses_before: dict[int, set[Use]] = {}

    def forget(self, node: int) -> None:
        """Something more is known of a node."""
        self._known.pop(node, None)

    def begin_round(self) -> None:
        """More is known of the nodes behind operands."""
        self._operands.clear()

    def rank(self, node: int, name: str) -> Ranking:
        """(score, family) for each candidate, the strongest first."""
        candidates = self.families.of(node, name)
        is_inlined = not self.walk.index.get(name)
        around = self._around(node, name)
        scores = {
            family: max((self.score(node, old, is_inlined) for old in before), default=0.0)
            + around.get(family, 0.0)
            for family, before in candidates.items()
        }
        return sorted(((s, f) for f, s in scores.items()), key=lambda x: (-x[0], x[1]))

    def score(self, node: int, old: int, is_inlined: bool = False) -> float:
        """How similar a node is to one before."""
        line, before = self.walk.present(node), self.walk.line[old]
        same_opcode = line.opcode == before.opcode
        total = self._by_name(node, old) + self._by_pairs(node, old)
        total += 1.5 * same_opcode + (line.dense == before.dense)
        if self.state.frames_hold and line.frame and before.frame and not is_inlined:
            total += 3 if line.frame == before.frame else -3
        if same_opcode and (form := line.form or before.form):
            total += 2 if form == before.form == line.form else -1
        total += self._by_operands(node, old, same_opcode)
        total += self._by_users(node, old)
        return total

    def _by_name(self, node: int, old: int) -> float:
        name, before = self.walk.present(node).name, self.walk.line[old].name
        if self.state.copied.get(node) == old:
            return 3.0
        if name == before and old not in self.state.fresh:
            return 5.0
        if name.startswith(before + ".") and old not in self.state.fresh:
            return 4.0
        return 0.5 if pass_match.stem(name) == pass_match.stem(before) else 0.0

    def _by_pairs(self, node: int, old: int) -> float:
        pairs = self.state.pairs.get(node, ())
        if any(old == other for other, _ in pairs):
            return 6.0 if self.walk.present(node).opcode == self.walk.line[old].opcode else 3.0
        if any(old in calls for _, calls in pairs):
            return 6.0  # inlined from this call, and had no op name of its own
        return 5.0 if old in self.state.replaced.get(node, ()) else 0.0

    def _around(self, node: int, name: str) -> dict[int, float]:
        """Families of its neighbours with the same op name: the parts of one operation."""
        walk = self.walk
        out: dict[int, float] = {}
        opcode = walk.present(node).opcode
        for near, worth in (
            (self.state.users.get(node, ()), 2.5),
            (walk.present_operands(node), 1.5),
        ):
            for other in near:
                if not self._counts(other):
                    continue
                for first in self.state.parts_of(other).get(name) or ():
                    family = walk.main.get(first, first)
                    if walk.first_opcode[family] != opcode:
                        out[family] = max(out.get(family, 0.0), worth)
        return out

    def _counts(self, node: int) -> bool:
        return not self.sure_only or self.state.how_of(node) <= How.NEIGHBOURS

    def _known_of(self, node: int) -> Ids:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self.state.known(node) if self._counts(node) else ()
        return found

    def _known_before(self, old: int) -> Ids:
        if self.sure_only and self.walk.how.get(old, How.FIRST) > How.NEIGHBOURS:
            return ()
        return self.walk.of(old)

    # -- operands --------------------------------------------------------------------

    def _by_operands(self, node: int, old: int, same_opcode: bool) -> float:
        now, before = self._operands_of(node), self._operands_of_before(old)
        if same_opcode and len(now) == len(before):
            rows = [(p, q) for p, q in zip(now, before, strict=True) if p or q]
            return 5 * sum(_alike(p, q) for p, q in rows) / len(rows) if rows else 0.0
        some: frozenset[int] = frozenset().union(*now)
        others: frozenset[int] = frozenset().union(*before)
        return 5 * _alike(some, others) if some and others else 0.0

    def _operands_of(self, node: int) -> list[frozenset[int]]:
        """The first instructions behind each operand, through what is not known yet."""
        operands = self.walk.present_operands
        if node not in self._operands:
            self._operands[node] = [
                self._first(o, self._outer, self._known_of, operands) for o in operands(node)
            ]
        return self._operands[node]

    def _operands_of_before(self, old: int) -> list[frozenset[int]]:
        walk = self.walk

        def operands(node: int) -> Sequence[int]:
            return walk.operands.get(node, ())

        if old not in self._operands_before:
            self._operands_before[old] = [
                self._first(o, self._outer_before, self._known_before, operands)
                for o in operands(old)
            ]
        return self._operands_before[old]

    def _first(
        self,
        operand: int,
        outer: Callable[[int], int],
        known: Callable[[int], Ids],
        operands: Callable[[int], Sequence[int]],
    ) -> frozenset[int]:
        out: set[int] = set()
        level = [operand]
        for _ in range(_DEPTH):
            following: list[int] = []
            for node in map(outer, level):
                ids = known(node)
                if ids:
                    out.update(self.walk.main.get(i, i) for i in ids)
                else:
                    following += operands(node)
            level = following[:_WIDTH]
            if not level:
                break
        return frozenset(out)

    def _outer(self, node: int) -> int:
        """Out of fusions by their parameters."""
        while node in self.state.outside:
            node = self.state.outside[node]
        return node if node in self.state.fresh else self.walk.outside.get(node, node)

    def _outer_before(self, node: int) -> int:
        while node in self.walk.outside:
            node = self.walk.outside[node]
        return node

    # -- users -----------------------------------------------------------------------

    def _by_users(self, node: int, old: int) -> float:
        """How similar the uses of both are: the same user in the same place counts most."""
        now = self._uses(node)
        if old not in self._uses_before:
            self._uses_before[old] = self._uses_of_before(old)
        before = self._uses_before[old]
        if not now or not before:
            return 0.0
        if now & before:
            return 4.0 * len(now & before) / min(len(now), len(before))
        some, others = {user for user, _, _ in now}, {user for user, _, _ in before}
        return 1.5 * len(some & others) / min(len(some), len(others))

    def _uses(self, node: int) -> set[Use]:
        state, walk = self.state, self.walk

        def users(of: int) -> Iterable[int]:
            own = state.users.get(of, ()) if of in state.order else walk.users.get(of, ())
            return (*own, *state.inside.get(of, ()))

        def use(user: int, of: int) -> set[Use] | None:
            if walk.present(user).opcode == "fusion" and state.inside.get(of):
                return set()
            if not self._known_of(user) or user in state.outside:
                return None
            operands = walk.present_operands(user)
            return self._use(walk.present(user).opcode, self._known_of(user), operands, of)

        return _used(node, users, use)

    def _uses_of_before(self, old: int) -> set[Use]:
        walk = self.walk

        def users(of: int) -> Iterable[int]:
            return (
                m for m in (*walk.users.get(of, ()), *walk.inside.get(of, ())) if m in walk.line
            )

        def use(user: int, of: int) -> set[Use] | None:
            if walk.line[user].opcode == "fusion" and walk.inside.get(of):
                return set()
            if not self._known_before(user) or user in walk.outside:
                return None
            operands = walk.operands[user]
            return self._use(walk.line[user].opcode, self._known_before(user), operands, of)

        return _used(old, users, use)

    def _use(self, opcode: str, ids: Ids, operands: Sequence[int], of: int) -> set[Use]:
        at = operands.index(of) if of in operands else -1
        return {(self.walk.main.get(i, i), opcode, at) for i in ids}


def _used(
    node: int,
    users: Callable[[int], Iterable[int]],
    use: Callable[[int, int], set[Use] | None],
) -> set[Use]:
    """The uses of a node; ``use`` gives None for a user that is not known, whose users count."""
    out: set[Use] = set()
    level, seen = [node], {node}
    for _ in range(_DEPTH):
        following: list[int] = []
        for of in level:
            for user in users(of):
                if user in seen:
                    continue
                seen.add(user)
                found = use(user, of)
                if found is None:
                    following.append(user)
                else:
                    out |= found
        level = following[:_WIDTH]
        if not level or len(out) > _WIDTH:
            break
    return out


def _alike(some: frozenset[int], others: frozenset[int]) -> float:
    return len(some & others) / max(len(some), len(others), 1)
