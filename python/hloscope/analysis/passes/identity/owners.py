"""Whose identity instructions without an op name of their own share: a call's, or a whole's."""

from __future__ import annotations

from collections import defaultdict

from ....hlo import opcodes
from .how import How
from .parts import Wholes
from .state import Question, RowState
from .walk import Ids

# What has no op name unless it was inlined from a call that has one.
NAMELESS = opcodes.BUNDLES | opcodes.GIVEN | {"broadcast", "bitcast"}
_LOOPS = 6  # most loops in one another through which an inlined call is looked for
Answers = dict[Ids, How]  # each with what it is based on


class Owners:
    """Answers questions by what the instruction is a part of or was inlined from."""

    def __init__(self, state: RowState) -> None:
        self.state, self.walk = state, state.walk
        self.wholes = Wholes(state.walk)
        self._undecided: defaultdict[int, list[str]] = defaultdict(list)
        self.waiting: set[Question] = set()  # ends of transfers whose beginning is undecided

    def answer(self) -> list[Question]:
        """Decides the questions that have one answer; returns the others."""
        self._undecided.clear()
        self.waiting.clear()
        for node, name in self.state.questions:
            self._undecided[node].append(name)
        return [q for q in self.state.questions if not self._decide(*q)]

    def is_undecided(self, computation: str, name: str) -> bool:
        """Whether the caller of a computation has that op name and is not known yet."""
        return any(
            other == name or other.endswith("/" + name)
            for caller in self.state.callers(computation)
            for other in self._undecided.get(caller, ())
        )

    def _decide(self, node: int, name: str) -> bool:
        state, walk = self.state, self.walk
        opcode = walk.present(node).opcode
        whole = self.wholes.of(node, name)
        if whole >= 0:
            ids = state.parts_of(whole).get(name)
            if ids or name in self._undecided.get(whole, ()):
                if not ids and opcode.endswith("-done"):
                    self.waiting.add((node, name))
                return self._only(node, name, {ids: state.how_of(whole)} if ids else {})
        nameless = self._nameless_before(node)
        if opcode != "parameter" and not nameless:
            return False
        if opcode not in NAMELESS:
            answers = {walk.of(old): walk.how.get(old, How.FIRST) for old in nameless}
            return self._only(node, name, answers)
        computation = state.computation(node)
        found = {
            ids: state.how_of(caller)
            for caller in state.callers(computation)
            for other, ids in state.parts_of(caller).items()
            if other == name or other.endswith("/" + name)
        }
        if not found and self.is_undecided(computation, name):
            return False
        return self._only(node, name, found or self._inlined_from(node))

    def _nameless_before(self, node: int) -> list[int]:
        """The nodes before that it may be, if none of them has an op name."""
        walk = self.walk
        opcode = walk.present(node).opcode
        before = [old for old, _ in self.state.pairs.get(node, ())]
        before = [old for old in before if old in walk.line and walk.line[old].opcode == opcode]
        if node not in self.state.fresh:
            before = [node]
        return [] if any(walk.line[old].op_name for old in before) else before

    def _only(self, node: int, name: str, answers: Answers) -> bool:
        """Takes the answer if there is only one."""
        if len(answers) != 1:
            return False
        ids, how = next(iter(answers.items()))
        if ids:
            self.state.decide(node, name, ids, max(how, How.NEIGHBOURS))
        return bool(ids)

    def _inlined_from(self, node: int, depth: int = _LOOPS) -> Answers:
        """The innermost call that a node was inlined from, or that its loop was."""
        state, walk = self.state, self.walk
        found = {
            walk.of(calls[-1]): walk.how.get(calls[-1], How.FIRST)
            for _, calls in state.pairs.get(node, ())
            if calls
        }
        if not found and depth:
            for caller in state.callers(state.computation(node)):
                if caller in state.place:
                    found |= self._inlined_from(caller, depth - 1)
        return found
