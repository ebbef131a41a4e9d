"""One pass: from which of the instructions before it each new one comes.

The op name of a new instruction leaves several candidate *families*: first instructions of that
op name, with those that the same equation wrote before them. Evidence is summed: a family is
taken if it leads by a margin, and what is known of it helps its neighbours; this repeats until
nothing changes. Remaining ties are decided by order, and reported so.

    RowState      what the pass leaves in question
    Pairs         what replaces what, by walking both graphs from what stayed
    copied_from   copies of computations
    nameless      instructions without an op name
    Owners        what is part of another, or was inlined from a call
    Families      candidates by op name
    Evidence      their scores
"""

from __future__ import annotations

import math

from .copies import copied_from
from .evidence import Evidence, Ranking
from .families import Families
from .how import How
from .nameless import identify_nameless
from .op_names import components
from .owners import Owners
from .pairs import Pairs
from .state import Question, RowState
from .walk import IdentityWalk, Ids

_ROUNDS = 60
# By how much the strongest family must lead: clear cases first, which help to decide the rest.
_MARGINS = (5.0, 3.0, 1.5, 0.6)


def resolve(walk: IdentityWalk, row: int) -> None:
    """Finds the identities of the instructions that the pass of a row made, and records them."""
    state = RowState.of_row(walk, row)
    if state.fresh or state.questions:
        state.copied = copied_from(walk)
        state.pairs = Pairs(walk, state.fresh, state.outside, state.written_anew).of
        identify_nameless(state)
        _Decisions(state).run()
    _record(state)


class _Decisions:
    """Answers the questions of a row."""

    def __init__(self, state: RowState) -> None:
        self.state, self.walk = state, state.walk
        self.families = Families(state)
        self.owners = Owners(state)
        self.evidence = Evidence(state, self.families, sure_only=False)
        self.sure = Evidence(state, self.families, sure_only=True)
        self.ranked: dict[Question, Ranking] = {}

    def run(self) -> None:
        self._by_owners()
        self._only_candidates()
        self._by_owners()
        margin = 0
        for _ in range(_ROUNDS):
            if not self.state.questions:
                return
            before = len(self.state.questions)
            self._by_evidence(_MARGINS[margin])
            if len(self.state.questions) < before:
                margin = 0
            elif margin + 1 < len(_MARGINS):
                margin += 1
            else:
                self._in_order(every=False)
                margin = 0
        self._in_order(every=True)

    def _by_owners(self) -> None:
        undecided = self.owners.answer()
        for node, _ in set(self.state.questions) - set(undecided):
            self._forget(node)
        self.state.questions = undecided

    def _forget(self, node: int) -> None:
        self.evidence.forget(node)
        self.sure.forget(node)

    def _only_candidates(self) -> None:
        still = []
        for node, name in self.state.questions:
            candidates = self.families.of(node, name)
            if len(candidates) == 1:
                self._take(node, name, next(iter(candidates)), How.ONLY)
            elif candidates or self.owners.is_undecided(self.state.computation(node), name):
                still.append((node, name))
        self.state.questions = still

    def _by_evidence(self, margin: float) -> None:
        """One round: takes the families that lead by a margin."""
        self.evidence.begin_round()
        self.sure.begin_round()
        self.ranked = {}
        still = []
        for node, name in self.state.questions:
            if (node, name) in self.owners.waiting:
                still.append((node, name))
                continue
            ranked = self.ranked[node, name] = self.evidence.rank(node, name)
            # if there is no second, only its caller can decide
            if len(ranked) > 1 and ranked[0][0] - ranked[1][0] >= margin:
                family = ranked[0][1]
                self._take(node, name, family, self._based_on(node, name, family))
            else:
                still.append((node, name))
        self.state.questions = still
        self._by_owners()

    def _based_on(self, node: int, name: str, family: int) -> How:
        """Whether the neighbours give the same answer without those that were only guessed."""
        if not self.state.guesses:
            return How.NEIGHBOURS
        first, second = self.sure.rank(node, name)[:2]
        is_sure = first[1] == family and first[0] - second[0] >= _MARGINS[-1]
        return How.NEIGHBOURS if is_sure else How.GUESSED

    def _take(self, node: int, name: str, family: int, how: How) -> None:
        """Within a family, what has the same opcode: the most similar one before, or the helper."""
        walk = self.walk
        opcode = walk.present(node).opcode
        every = self.families.of(node, name)[family]
        same = [old for old in every if walk.line[old].opcode == opcode]
        ids: Ids = (walk.helper.get((family, opcode), family),)
        if not same and (family, opcode) not in walk.helper:
            paired = {old for old, _ in self.state.pairs.get(node, ())}
            paired |= self.state.replaced.get(node, set())
            same = [old for old in every if old in paired]
        if same:
            one = len(same) == 1
            best = same[0] if one else max(same, key=lambda old: self.evidence.score(node, old))
            of_family = (
                i for i in walk.parts[best].values() if walk.main.get(i[0], i[0]) == family
            )
            ids = next(of_family, ids)
        # no more certain than its source
        before = min((walk.how.get(old, How.FIRST) for old in same or every), default=How.FIRST)
        self.state.decide(node, name, ids, max(how, before))
        self._forget(node)

    def _in_order(self, every: bool) -> None:
        """Resolves equal ones in their printed order; the first group only, or all of them."""
        walk = self.walk
        groups: dict[tuple[str, str, str, Ids], list[Question]] = {}
        waiting = set() if every else self.owners.waiting
        for node, name in self.state.questions:
            if (node, name) in waiting:
                continue
            ranked = self.ranked.get((node, name)) or self.evidence.rank(node, name)
            if not ranked:
                continue
            top = ranked[0][0]
            tied = tuple(sorted(f for score, f in ranked if top - score < _MARGINS[-1]))
            line = walk.present(node)
            groups.setdefault((name, line.opcode, line.dense, tied), []).append((node, name))
        taken: set[Question] = set()
        for (_, _, _, tied), members in groups.items():
            members.sort(key=lambda question: self.state.order[question[0]])
            candidates = self.families.of(*members[0])
            order = sorted(
                tied,
                key=lambda f: min((walk.order[old] for old in candidates[f]), default=math.inf),
            )
            for k, (node, name) in enumerate(members):
                if len(members) % len(order) == 0:
                    family = order[k * len(order) // len(members)]
                else:
                    family = order[min(k, len(order) - 1)]
                self._take(node, name, family, How.ORDER)
                taken.add((node, name))
            if not every:
                break
        self.state.questions = [q for q in self.state.questions if q not in taken]


def _record(state: RowState) -> None:
    walk = state.walk
    for node, parts in state.parts.items():
        names = components(walk.present(node).op_name)
        ordered = {name: parts[name] for name in names if name in parts}
        if ordered:
            walk.parts[node] = ordered
        else:
            walk.parts.pop(node, None)
        if node in state.fresh:
            walk.unnamed.pop(node, None)
            if node in state.unnamed and not ordered:
                walk.unnamed[node] = state.unnamed[node]
        how = walk.how[node] = state.how.get(node, How.FIRST)
        walk.guesses |= how > How.NEIGHBOURS
        entry = (state.row, walk.of(node), how, bool(ordered))
        walk.history.setdefault(node, []).append(entry)
    for inner, operand in state.outside.items():
        old = walk.outside.get(inner)
        if old is not None:
            walk.inside[old].pop(inner, None)
        walk.outside[inner] = operand
        walk.inside[operand][inner] = None
