"""One pass: the instructions whose origin it leaves in question, and their answers so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....readers.hlo.pass_lines import Line, called
from .. import match as pass_match
from ..steps import SOURCE
from .how import How
from .op_names import components
from .walk import IdentityWalk, Ids

Question = tuple[int, str]  # a node, and one component of its op name
# A node before, and the calls through which it was reached.
Reached = tuple[int, tuple[int, ...]]
# Share of the instructions that kept their op name and must have kept their stack frame too, for
# frames to say anything: a pass that writes the module anew numbers frames anew.
_FRAMES_KEPT = 0.8


@dataclass(eq=False)
class RowState:
    """Nodes are numbers; "before" is the row before this pass, which ``walk`` still describes."""

    walk: IdentityWalk
    row: int
    written_anew: bool
    parts: dict[int, dict[str, Ids]] = field(default_factory=dict)
    unnamed: dict[int, Ids] = field(default_factory=dict)
    how: dict[int, How] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    # new nodes (True), and those with another name (False)
    fresh: dict[int, bool] = field(default_factory=dict)
    outside: dict[int, int] = field(default_factory=dict)  # parameter of a fusion → its operand
    inside: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    users: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    order: dict[int, int] = field(default_factory=dict)  # as printed
    place: dict[int, int] = field(default_factory=dict)
    # nodes before: those that others took the place of, copies, and those paired by structure
    replaced: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    copied: dict[int, int] = field(default_factory=dict)
    pairs: dict[int, dict[Reached, None]] = field(default_factory=dict)
    frames_hold: bool = True
    guesses: bool = False
    _callers: dict[str, list[int]] | None = None

    def parts_of(self, node: int) -> dict[str, Ids]:
        """The first instructions of a node, now, by component of its op name."""
        found = self.parts.get(node)
        return self.walk.parts.get(node, {}) if found is None else found

    def known(self, node: int) -> Ids:
        """The first instructions of a node, now."""
        parts = self.parts.get(node)
        if parts:
            return tuple(dict.fromkeys(i for ids in parts.values() for i in ids))
        return self.unnamed.get(node, ()) if node in self.fresh else self.walk.of(node)

    def how_of(self, node: int) -> How:
        """What the identity of a node is based on, now."""
        if node in self.parts:
            return self.how.get(node, How.FIRST)
        return self.how.get(node, self.walk.how.get(node, How.FIRST))

    def decide(self, node: int, name: str, ids: Ids, how: How) -> None:
        """Records an answer."""
        self.parts[node][name] = ids
        self.how[node] = max(how, self.how.get(node, How.FIRST))
        self.guesses |= self.how[node] > How.NEIGHBOURS

    def computation(self, node: int) -> str:
        """The name of the computation that a node is in, now."""
        return self.walk.steps.places[self.place[node]].name

    def callers(self, computation: str) -> list[int]:
        """The nodes that call a computation, now."""
        if self._callers is None:
            found: defaultdict[str, list[int]] = defaultdict(list)
            for _, _, now in self.walk.changes:
                for node in now.values():
                    for callee in called(self.walk.present(node)):
                        found[callee].append(node)
            self._callers = found
        return self._callers.get(computation) or list(self.walk.callers.get(computation, ()))

    # -- collecting ------------------------------------------------------------------

    @classmethod
    def of_row(cls, walk: IdentityWalk, row: int) -> RowState:
        """What the pass of a row leaves in question."""
        state = cls(walk, row, _is_written_anew(walk), guesses=walk.guesses)
        for place, was, now in walk.changes:
            names_before = {node: name for name, node in was.items()}
            for name, node in now.items():
                state.order[node] = len(state.order)
                state.place[node] = place
                state._add(node, name, names_before.get(node))
        for link in walk.steps.links[walk.links_seen :]:
            if link.how != SOURCE:
                state.replaced[link.new].add(link.old)
        walk.links_seen = len(walk.steps.links)
        kept = [
            walk.line[node].frame == walk.present(node).frame
            for _, _, now in walk.changes
            for node in now.values()
            if node in walk.line
            and walk.line[node].frame
            and walk.line[node].op_name == walk.present(node).op_name
        ]
        state.frames_hold = not kept or sum(kept) >= _FRAMES_KEPT * len(kept)
        return state

    def _add(self, node: int, name: str, name_before: str | None) -> None:
        walk = self.walk
        line, operands = walk.present(node), walk.present_operands(node)
        for operand in operands:
            self.users[operand].append(node)
        if line.opcode in ("fusion", "call"):
            self._look_inside(line, operands)
        is_argument = line.opcode == "parameter" and walk.steps.places[self.place[node]].entry
        if name_before is None:
            self.fresh[node] = True
        elif self.written_anew or name_before != name or line.opcode != walk.line[node].opcode:
            self.fresh[node] = False
        else:
            if line.op_name != walk.line[node].op_name and not is_argument:
                self._renamed_operation(node, line)
            return
        names = () if is_argument else components(line.op_name)
        self.parts[node] = {}
        self.questions += [(node, c) for c in names]
        if not names and not self.fresh[node] and not self.written_anew:
            self.unnamed[node] = walk.of(node)

    def _look_inside(self, line: Line, operands: Sequence[int]) -> None:
        walk = self.walk
        for place in [walk.place_of[name] for name in called(line) if name in walk.place_of]:
            for node in walk.alive[place].values():
                inner = walk.present(node)
                if inner.opcode == "parameter" and inner.arguments.isdecimal():
                    number = int(inner.arguments)
                    if number < len(operands):
                        self.outside[node] = operands[number]
                        self.inside[operands[number]].append(node)

    def _renamed_operation(self, node: int, line: Line) -> None:
        """An instruction that only got another op name: by a merge into it, or around it."""
        old = self.walk.parts.get(node, {})
        parts = self.parts[node] = {}
        self.how[node] = self.walk.how.get(node, How.FIRST)
        for name in components(line.op_name):
            same = old.get(name)
            if same is None:
                alike = [
                    ids
                    for other, ids in old.items()
                    if name.endswith("/" + other) or other.endswith("/" + name)
                ]
                same = alike[0] if len(alike) == 1 else None
            if same is not None:
                parts[name] = same
            else:
                self.questions.append((node, name))


def _is_written_anew(walk: IdentityWalk) -> bool:
    """Whether the whole module was written anew: then an old name may now belong to another."""
    both = [(was, now) for _, was, now in walk.changes if was]
    before = sum(len(was) for was, _ in both)
    lost = sum(now.get(name) != node for was, now in both for name, node in was.items())
    new = sum(was.get(name) != node for was, now in both for name, node in now.items())
    return pass_match.written_anew(before, lost, new)
