"""How similar an instruction of one pass is to one of the pass before, by what is around both.

evidence                                    worth
a copy of it, its name, its place           3 to 6
the same source line; another one           3; -3
operands from the same first instructions   up to 5
the same users in the same places           up to 4
the same slice, dimensions, direction       2; another one -1
in what the same operation calls            2; another one -2
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....readers.hlo.pass_lines import called
from .. import match as pass_match
from .how import How

if TYPE_CHECKING:
    from .walk import IdentityWalk, Ids

# How far, and over how many instructions, the search goes through what is not known yet.
_DEPTH, _WIDTH = 8, 24


class Seen:
    """What was already found, so that it is computed once."""

    def __init__(self) -> None:
        self.old_behind: dict[int, list[frozenset[int]]] = {}
        self.behind: dict[int, list[frozenset[int]]] = {}
        self.of: dict[int, Ids] = {}
        self.old_used: dict[int, set[tuple[int, str, int]]] = {}


class Evidence:
    """What is known of one row so far, and the score it gives each possible identity."""

    def __init__(self, walk: IdentityWalk, row: int) -> None:
        self.w, self.row = walk, row
        self.parts: dict[int, dict[str, Ids]] = {}
        self.unnamed: dict[int, Ids] = {}
        self.how: dict[int, How] = {}
        self.open: list[tuple[int, str]] = []
        self.fresh: dict[int, bool] = {}  # new nodes, and those with another name
        self.outside: dict[int, int] = {}
        self.inside: defaultdict[int, list[int]] = defaultdict(list)
        self.users: defaultdict[int, list[int]] = defaultdict(list)
        self.at: dict[int, int] = {}  # printed order
        self.place: dict[int, int] = {}
        self.named: dict[str, int] = {}
        self.clone_of: defaultdict[int, list[int]] = defaultdict(list)
        self.almost: dict[int, int] = {}
        self.replaced: defaultdict[int, set[int]] = defaultdict(set)
        self._groups: dict[tuple[str, int], dict[int, list[int]]] = {}
        self._seen = self._all = Seen()
        self._sure = Seen()
        self._new_callers: dict[str, list[int]] | None = None
        self.pairs: dict[int, dict[tuple[int, tuple[int, ...]], None]] = {}
        self.frames_hold = True
        self._guesses = walk.guesses
        self._undecided: defaultdict[int, list[str]] = defaultdict(list)
        self._held: set[tuple[int, str]] = set()  # waiting for what they are a part of

    def _parts(self, n: int) -> dict[str, Ids]:
        found = self.parts.get(n)
        return self.w.parts.get(n, {}) if found is None else found

    def _part(self, n: int, c: str) -> Ids | None:
        return self._parts(n).get(c)

    def _around(self, n: int, c: str) -> dict[int, float]:
        """Families of its neighbours with the same op name: the parts of one operation."""
        w = self.w
        out: dict[int, float] = {}
        opcode = w.present(n).opcode
        for near, worth in ((self.users.get(n, ()), 2.5), (w.present_operands(n), 1.5)):
            for m in near:
                if self._seen is self._sure and self._how(m) > How.NEIGHBOURS:
                    continue
                for i in self._part(m, c) or ():
                    f = w.main.get(i, i)
                    if w.first_opcode[f] != opcode:
                        out[f] = max(out.get(f, 0.0), worth)
        return out

    def _score(self, n: int, y: int, inlined: bool = False) -> float:
        w = self.w
        line, old = w.present(n), w.line[y]
        s = 0.0
        if y in self.clone_of.get(n, ()):
            s += 6
        elif self.almost.get(n) == y:
            s += 3
        elif line.name == old.name and y not in self.fresh:
            s += 5
        elif line.name.startswith(old.name + ".") and y not in self.fresh:
            s += 4
        elif pass_match.stem(line.name) == pass_match.stem(old.name):
            s += 0.5
        s += 1.5 * (line.opcode == old.opcode) + (line.dense == old.dense)
        pairs = self.pairs.get(n, ())
        if any(y == k for k, _ in pairs):
            s += 6 if line.opcode == old.opcode else 3
        elif any(y in calls for _, calls in pairs):
            s += 6  # inlined from this call, and had no op name of its own
        elif y in self.replaced.get(n, ()):
            s += 5
        if self.frames_hold and line.frame and old.frame and not inlined:
            s += 3 if line.frame == old.frame else -3
        if line.opcode == old.opcode and (form := line.form or old.form):
            s += 2 if form == old.form == line.form else -1
        s += self._operands(n, y, line.opcode == old.opcode)
        s += self._used(n, y)
        s += self._called_by(n, y)
        return s

    def _called_by(self, n: int, y: int) -> float:
        """Whether the computations that they are in are called by the same instructions."""
        w = self.w
        old = w.names_before.get(w.place.get(y, -1), "")
        a = {i for z in self._callers(w.steps.places[self.place[n]].name) for i in self._known(z)}
        b = {i for z in w.callers.get(old, ()) for i in self._old_known(z)}
        if not a or not b:
            return 0.0
        return 2.0 if a & b else -2.0

    def _operands(self, n: int, y: int, same_opcode: bool) -> float:
        a, b = self._new_operands(n), self._old_operands(y)
        if same_opcode and len(a) == len(b):
            rows = [(p, q) for p, q in zip(a, b, strict=True) if p or q]
            if not rows:
                return 0.0
            return 5 * sum(_alike(p, q) for p, q in rows) / len(rows)
        p: frozenset[int] = frozenset().union(*a)
        q: frozenset[int] = frozenset().union(*b)
        return 5 * _alike(p, q) if p and q else 0.0

    def _new_operands(self, n: int) -> list[frozenset[int]]:
        found = self._seen.behind.get(n)
        if found is None:
            found = self._seen.behind[n] = [self._reach(o) for o in self.w.present_operands(n)]
        return found

    def _reach(self, o: int) -> frozenset[int]:
        """The first instructions behind an operand, through what is not known yet."""
        return self._first(o, self._outer, self._known, self.w.present_operands)

    def _outer(self, k: int) -> int:
        while k in self.outside:
            k = self.outside[k]
        return self.w.outside.get(k, k) if k not in self.fresh else k

    def _first(
        self,
        o: int,
        outer: Callable[[int], int],
        known: Callable[[int], Ids],
        operands: Callable[[int], Sequence[int]],
    ) -> frozenset[int]:
        out: set[int] = set()
        level = [o]
        for _ in range(_DEPTH):
            following: list[int] = []
            for k in map(outer, level):
                ids = known(k)
                if ids:
                    out.update(self.w.main.get(i, i) for i in ids)
                else:
                    following += operands(k)
            level = following[:_WIDTH]
            if not level:
                break
        return frozenset(out)

    def _known(self, n: int) -> Ids:
        """The identities of a node, now."""
        found = self._seen.of.get(n)
        if found is None:
            if self._seen is self._sure and self._how(n) > How.NEIGHBOURS:
                found = ()
            elif self.parts.get(n):
                found = tuple(dict.fromkeys(i for ids in self.parts[n].values() for i in ids))
            elif n in self.fresh:
                found = self.unnamed.get(n, ())
            else:
                found = self.w.of(n)
            self._seen.of[n] = found
        return found

    def _old_operands(self, y: int) -> list[frozenset[int]]:
        found = self._seen.old_behind.get(y)
        if found is None:
            found = self._seen.old_behind[y] = [
                self._old_reach(o) for o in self.w.operands.get(y, ())
            ]
        return found

    def _old_reach(self, o: int) -> frozenset[int]:
        return self._first(
            o, self._old_outer, self._old_known, lambda k: self.w.operands.get(k, ())
        )

    def _old_known(self, y: int) -> Ids:
        """The identities of a node, before."""
        if self._seen is self._sure and self.w.how.get(y, How.FIRST) > How.NEIGHBOURS:
            return ()
        return self.w.of(y)

    def _how(self, n: int) -> How:
        """What the identity of a node is based on, now."""
        return self.how.get(n, How.FIRST if n in self.parts else self.w.how.get(n, How.FIRST))

    def _callers(self, name: str) -> list[int]:
        if self._new_callers is None:
            found: defaultdict[str, list[int]] = defaultdict(list)
            for _, _, now in self.w.changes:
                for n in now.values():
                    for k in called(self.w.present(n)):
                        found[k].append(n)
            self._new_callers = found
        return self._new_callers.get(name) or list(self.w.callers.get(name, ()))

    def _old_outer(self, k: int) -> int:
        while k in self.w.outside:
            k = self.w.outside[k]
        return k

    def _used(self, n: int, y: int) -> float:
        """How similar the uses of both are: the same user in the same place counts most."""
        new = self._new_uses(n)
        old = self._old_uses(y)
        if not new or not old:
            return 0.0
        if new & old:
            return 4.0 * len(new & old) / min(len(new), len(old))
        a = {f for f, _, _ in new}
        b = {f for f, _, _ in old}
        return 1.5 * len(a & b) / min(len(a), len(b))

    def _new_uses(self, n: int) -> set[tuple[int, str, int]]:
        out: set[tuple[int, str, int]] = set()
        w = self.w
        level, seen = [n], {n}
        for _ in range(_DEPTH):
            following: list[int] = []
            for k in level:
                users = self.users.get(k, ()) if k in self.at else w.users.get(k, ())
                for m in (*users, *self.inside.get(k, ())):
                    if m in seen:
                        continue
                    seen.add(m)
                    ids = self._known(m)
                    line = w.present(m)
                    if line.opcode == "fusion" and self.inside.get(k):
                        continue
                    if not ids or m in self.outside:
                        following.append(m)
                        continue
                    at = w.present_operands(m).index(k) if k in w.present_operands(m) else -1
                    out.update((w.main.get(i, i), line.opcode, at) for i in ids)
            level = following[:_WIDTH]
            if not level or len(out) > _WIDTH:
                break
        return out

    def _old_uses(self, y: int) -> set[tuple[int, str, int]]:
        w = self.w
        known = self._seen.old_used.get(y)
        if known is not None:
            return known
        out: set[tuple[int, str, int]] = set()
        level, seen = [y], {y}
        for _ in range(_DEPTH):
            following: list[int] = []
            for k in level:
                for m in (*w.users.get(k, ()), *w.inside.get(k, ())):
                    if m in seen or m not in w.line:
                        continue
                    seen.add(m)
                    line = w.line[m]
                    if line.opcode == "fusion" and w.inside.get(k):
                        continue
                    ids = self._old_known(m)
                    if not ids or m in w.outside:
                        following.append(m)
                        continue
                    at = w.operands[m].index(k) if k in w.operands[m] else -1
                    out.update((w.main.get(i, i), line.opcode, at) for i in ids)
            level = following[:_WIDTH]
            if not level or len(out) > _WIDTH:
                break
        self._seen.old_used[y] = out
        return out


def _alike(a: frozenset[int], b: frozenset[int]) -> float:
    return len(a & b) / max(len(a), len(b), 1)
