"""One pass: from which of the instructions before it each new one comes. See identity_walk.py.

The op name of a new instruction leaves several candidate *families*: first instructions of that
op name, with those that the same equation wrote before them. Evidence is summed: a family is
taken if it leads by a margin, which tells more about its neighbours; this repeats until nothing
changes. Remaining ties are decided by order, and reported so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ....readers.hlo.pass_lines import called
from .. import match as pass_match
from ..steps import SOURCE
from .how import How
from .known import Known
from .op_names import components, inlined
from .pairs import Pairs
from .parts import Wholes

if TYPE_CHECKING:
    from ....readers.hlo.pass_lines import Line
    from .walk import Ids

# What has no op name unless it was inlined from a call that has one.
PLUMBING = frozenset(
    ["constant", "parameter", "tuple", "get-tuple-element", "broadcast", "iota", "bitcast"]
)
_ROUNDS = 60
# By how much the strongest family must lead: clear cases first, which tell more about the rest.
_MARGINS = (5.0, 3.0, 1.5, 0.6)


class Row(Known):
    """Resolves one row; reads the walk as it was before and the steps as they are now."""

    def resolve(self) -> None:
        self._collect()
        if self.fresh or self.open:
            self._clones()
            self.pairs = Pairs(self.w, self.fresh, self.outside, self.anew).of
            self.wholes = Wholes(self.w, self.named)
            self._plumbing()
            self._owners()
            self._only()
            self._rounds()
        self._write()

    # -- what is in question ---------------------------------------------------------

    def _collect(self) -> None:
        w = self.w
        anew = self.anew = self._anew()
        for place, was, now in w.changes:
            back = {n: name for name, n in was.items()}
            for name, n in now.items():
                self.at[n], self.place[n], self.named[name] = len(self.at), place, n
                line, operands = w.present(n), w.present_operands(n)
                for o in operands:
                    self.users[o].append(n)
                if line.opcode in ("fusion", "call"):
                    self._look_inside(line, operands)
                if n not in back:
                    self.fresh[n] = True
                elif anew or back[n] != name or line.opcode != w.line[n].opcode:
                    self.fresh[n] = False
                elif line.op_name != w.line[n].op_name:
                    if line.opcode != "parameter" or not w.steps.places[place].entry:
                        self._reworded(n, line)
                    continue
                else:
                    continue
                argument = line.opcode == "parameter" and w.steps.places[place].entry
                names = () if argument else components(line.op_name)
                self.parts[n] = {}
                self.open += [(n, c) for c in names]
                if not names and not self.fresh[n] and not anew:
                    self.unnamed[n] = w.of(n)
        for link in w.steps.links[w.links_seen :]:
            if link.how != SOURCE:
                self.replaced[link.new].add(link.old)
        w.links_seen = len(w.steps.links)
        same = [
            w.line[n].frame == w.present(n).frame
            for _, was, now in w.changes
            for n in now.values()
            if n in w.line and w.line[n].frame and w.line[n].op_name == w.present(n).op_name
        ]
        self.frames_hold = not same or sum(same) >= 0.8 * len(same)

    def _anew(self) -> bool:
        """Whether the whole module was written anew: then an old name may now belong to another."""
        w = self.w
        both = [(was, now) for _, was, now in w.changes if was]
        before = sum(len(was) for was, _ in both)
        lost = sum(now.get(name) != n for was, now in both for name, n in was.items())
        new = sum(was.get(name) != n for was, now in both for name, n in now.items())
        return pass_match.written_anew(before, lost, new)

    def _look_inside(self, line: Line, operands: Sequence[int]) -> None:
        w = self.w
        for place in [w.place_of[name] for name in called(line) if name in w.place_of]:
            for m in w.alive[place].values():
                inner = w.present(m)
                if inner.opcode == "parameter" and inner.arguments.isdecimal():
                    k = int(inner.arguments)
                    if k < len(operands):
                        self.outside[m] = operands[k]
                        self.inside[operands[k]].append(m)

    def _reworded(self, n: int, line: Line) -> None:
        """An instruction that only got another op name: by a merge into it, or around it."""
        old = self.w.parts.get(n, {})
        parts = self.parts[n] = {}
        self.how[n] = self.w.how.get(n, How.FIRST)
        for c in components(line.op_name):
            same = old.get(c)
            if same is None:
                like = [ids for k, ids in old.items() if c.endswith("/" + k) or k.endswith("/" + c)]
                same = like[0] if len(like) == 1 else None
            if same is not None:
                parts[c] = same
            else:
                self.open.append((n, c))

    # -- families: what an op name leaves in question ---------------------------------

    def _only(self) -> None:
        still = []
        places = self.w.steps.places
        for n, c in self.open:
            families = self._families(n, c)
            if len(families) == 1:
                self._take(n, c, next(iter(families)), How.ONLY)
            elif families or self._waits(places[self.place[n]].name, c):
                still.append((n, c))
        self.open = still

    def _families(self, n: int, c: str) -> dict[int, list[int]]:
        """Candidate first instructions → the nodes before this row that come from them."""
        w = self.w
        place = -1
        found: Iterable[int] = w.index.get(c, ())
        key = c
        if not found:
            for outer, own in inlined(c):
                found = w.index.get(own, ())
                if found:
                    key, place = own, self.place[n]
                    called = self._called_as(outer, found)
                    found = called or found
                    break
        cached = self._groups.get((c, place))
        if cached is not None:
            return cached
        out: dict[int, list[int]] = {}
        for y in found:
            ids = w.parts.get(y, {}).get(key)
            if ids:
                out.setdefault(w.main.get(ids[0], ids[0]), []).append(y)
        if not out:
            for ids in w.ever.get(c, ()):
                out.setdefault(w.main.get(ids[0], ids[0]), [])
        self._groups[c, place] = out
        return out

    def _called_as(self, outer: str, found: Iterable[int]) -> list[int]:
        """Those whose computation is called with a name that ``outer`` ends with."""
        w = self.w
        known: dict[int, bool] = {}

        def called(place: int) -> bool:
            if place not in known:
                known[place] = False
                known[place] = any(
                    (by := w.line[k].op_name) == outer
                    or (by and outer.endswith("/" + by))
                    or (not by and k in w.place and called(w.place[k]))  # named by its own caller
                    for k in w.callers.get(w.names_before.get(place, ""), ())
                    if k in w.line
                )
            return known[place]

        return [y for y in found if called(w.place[y])]

    def _take(self, n: int, c: str, family: int, how: How) -> None:
        """Within a family, what has the same opcode: the most similar one before, or the helper."""
        w = self.w
        opcode = w.present(n).opcode
        every = self._families(n, c)[family]
        same = [y for y in every if w.line[y].opcode == opcode]
        ids: Ids = (w.helper.get((family, opcode), family),)
        if not same and (family, opcode) not in w.helper:
            paired = {y for y, _ in self.pairs.get(n, ())} | self.replaced.get(n, set())
            same = [y for y in every if y in paired]
        if same:
            y = same[0] if len(same) == 1 else max(same, key=lambda y: self._score(n, y))
            ids = next((i for i in w.parts[y].values() if w.main.get(i[0], i[0]) == family), ids)
        # no more certain than its source
        before = min((w.how.get(y, How.FIRST) for y in same or every), default=How.FIRST)
        self._put(n, c, ids, max(how, before))

    def _put(self, n: int, c: str, ids: Ids, how: How) -> None:
        self.parts[n][c] = ids
        self.how[n] = max(how, self.how.get(n, How.FIRST))
        self._all.of.pop(n, None)
        self._sure.of.pop(n, None)
        self._guesses |= self.how[n] > How.NEIGHBOURS

    # -- evidence --------------------------------------------------------------------

    def _rounds(self) -> None:
        self._owners()
        strict = 0
        for _ in range(_ROUNDS):
            if not self.open:
                return
            self._all.behind.clear()
            self._sure.behind.clear()
            before = len(self.open)
            self.ranked: dict[tuple[int, str], list[tuple[float, int]]] = {}
            still = []
            for n, c in self.open:
                if (n, c) in self._held:
                    still.append((n, c))
                    continue
                ranked = self.ranked[n, c] = self._rank(n, c)
                if len(ranked) < 2:
                    still.append((n, c))  # only its caller can decide
                elif ranked[0][0] - ranked[1][0] >= _MARGINS[strict]:
                    self._take(n, c, ranked[0][1], self._rests_on(n, c, ranked[0][1]))
                else:
                    still.append((n, c))
            self.open = still
            self._owners()
            if len(self.open) < before:
                strict = 0
            elif strict + 1 < len(_MARGINS):
                strict += 1
            else:
                self._in_order(every=False)
                strict = 0
        while self._held:
            before = len(self.open)
            self._in_order(every=True)
            self._owners()
            if len(self.open) == before:
                self._held.clear()
        self._in_order(every=True)

    def _owners(self) -> None:
        """Gives what had no op name of its own that of the call it was inlined from or is in."""
        self._undecided = defaultdict(list)
        for n, c in self.open:
            self._undecided[n].append(c)
        self._held.clear()
        self.open = [x for x in self.open if not self._of_owner(*x)]

    def _of_owner(self, n: int, c: str) -> bool:
        w = self.w
        line = w.present(n)
        whole = self.wholes.of(n, c)
        if whole >= 0:
            ids = self._part(whole, c)
            if ids or c in self._undecided.get(whole, ()):
                if not ids and line.opcode.endswith("-done"):
                    self._held.add((n, c))
                return self._put_only(n, c, {ids: self._how(whole)} if ids else {})
        before = [
            y
            for y in (*self.clone_of.get(n, ()), *(y for y, _ in self.pairs.get(n, ())))
            if y in w.line and w.line[y].opcode == line.opcode
        ]
        if n not in self.fresh:
            before = [n]
        unnamed = [y for y in before if not w.line[y].op_name]
        if line.opcode != "parameter" and (not unnamed or len(unnamed) < len(before)):
            return False
        if line.opcode not in PLUMBING:
            return self._put_only(n, c, {w.of(y): w.how.get(y, How.FIRST) for y in unnamed})
        name = w.steps.places[self.place[n]].name
        found = {
            ids: self._how(z)
            for z in self._callers(name)
            for k, ids in self._parts(z).items()
            if k == c or k.endswith("/" + c)
        }
        if not found and self._waits(name, c):
            return False
        return self._put_only(n, c, found or self._came_out_of(n))

    def _waits(self, computation: str, c: str) -> bool:
        """Whether its caller has that op name and is not known yet."""
        return any(
            k == c or k.endswith("/" + c)
            for z in self._callers(computation)
            for k in self._undecided.get(z, ())
        )

    def _put_only(self, n: int, c: str, found: dict[Ids, How]) -> bool:
        """Takes the only answer; ``found``: answers and what each is based on."""
        if len(found) != 1:
            return False
        ids, how = next(iter(found.items()))
        if ids:
            self._put(n, c, ids, max(how, How.NEIGHBOURS))
        return bool(ids)

    def _came_out_of(self, n: int, depth: int = 6) -> dict[Ids, How]:
        """The innermost call that a node was inlined from, or what its loop was inlined from."""
        w = self.w
        found = {
            w.of(calls[-1]): w.how.get(calls[-1], How.FIRST)
            for _, calls in self.pairs.get(n, ())
            if calls
        }
        if not found and depth:
            for z in self._callers(w.steps.places[self.place[n]].name):
                if z in self.place:
                    found |= self._came_out_of(z, depth - 1)
        return found

    def _rank(self, n: int, c: str) -> list[tuple[float, int]]:
        """(evidence, family) for each candidate, the strongest first."""
        families = self._families(n, c)
        own = not self.w.index.get(c)
        around = self._around(n, c)
        scores = {
            f: max((self._score(n, y, own) for y in ys), default=0.0) + around.get(f, 0.0)
            for f, ys in families.items()
        }
        return sorted(((s, f) for f, s in scores.items()), key=lambda x: (-x[0], x[1]))

    def _rests_on(self, n: int, c: str, family: int) -> How:
        """Whether the neighbours give the same answer without those that were only guessed."""
        if not self._guesses:
            return How.NEIGHBOURS
        self._seen = self._sure
        first, second = self._rank(n, c)[:2]
        self._seen = self._all
        sure = first[1] == family and first[0] - second[0] >= _MARGINS[-1]
        return How.NEIGHBOURS if sure else How.GUESSED

    # -- ties ------------------------------------------------------------------------

    def _in_order(self, every: bool) -> None:
        """Resolves equal ones in their printed order; the first group only, or all of them."""
        w = self.w
        groups: dict[tuple[str, str, str, Ids], list[tuple[int, str]]] = {}
        for n, c in self.open:
            ranked = self.ranked.get((n, c)) or self._rank(n, c)
            if not ranked or (n, c) in self._held:
                continue
            top = ranked[0][0]
            tied = tuple(sorted(f for s, f in ranked if top - s < 0.6))
            line = w.present(n)
            groups.setdefault((c, line.opcode, line.dense, tied), []).append((n, c))
        taken: set[tuple[int, str]] = set()
        for (_, _, _, tied), members in groups.items():
            members.sort(key=lambda x: self.at[x[0]])
            n, c = members[0]
            families = self._families(n, c)
            order = sorted(
                tied,
                key=lambda f: min((w.order[y] for y in families[f]), default=math.inf),
            )
            for k, (n, c) in enumerate(members):
                if len(members) % len(order) == 0:
                    f = order[k * len(order) // len(members)]
                else:
                    f = order[min(k, len(order) - 1)]
                self._take(n, c, f, How.ORDER)
                taken.add((n, c))
            if not every:
                break
        self.open = [x for x in self.open if x not in taken]

    # -- writing down ----------------------------------------------------------------

    def _write(self) -> None:
        w = self.w
        for n, parts in self.parts.items():
            line = w.present(n)
            ordered = {c: parts[c] for c in components(line.op_name) if c in parts}
            w.parts[n] = ordered
            if not ordered:
                w.parts.pop(n)
            if n in self.fresh:
                w.unnamed.pop(n, None)
                if n in self.unnamed and not ordered:
                    w.unnamed[n] = self.unnamed[n]
            how = self.how.get(n, How.FIRST)
            w.how[n] = how
            w.guesses |= how > How.NEIGHBOURS
            w.history.setdefault(n, []).append((self.row, w.of(n), how, bool(ordered)))
        for m, o in self.outside.items():
            old = w.outside.get(m)
            if old is not None:
                w.inside[old].pop(m, None)
            w.outside[m] = o
            w.inside[o][m] = None
