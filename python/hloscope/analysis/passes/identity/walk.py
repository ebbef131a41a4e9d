"""Which instruction of the first dump each later one comes from, if there are no marks.

    first dump           after some pass             how it is found
    %dot.3  "f/dot"      %dot.3  "f/dot"             it kept its name
    %add.4  "f/add"      %add.9.clone "f/add"        the only one of that op name
    %mul.5  "g/mul"      %mul.17 "g/mul"             of two with that op name, the one with the
    %mul.6  "g/mul"                                  same operands and users

XLA copies the metadata of what it replaces, so the op name gives the candidates; if there are
several, their operands, users, shapes, stack frames and names decide (``resolve.py``). What
has no op name was made by XLA, as in programs with marks.
"""

from __future__ import annotations

from collections import defaultdict

from ....readers.hlo.pass_lines import Body, Line, called
from ..follow import PassWalk
from .how import How
from .op_names import components

Ids = tuple[int, ...]
# Written before an operation to prepare its operands: several instructions for one equation.
HELPERS = frozenset(["broadcast", "convert", "reshape", "constant", "transpose"])


class IdentityWalk(PassWalk):
    """Follows nodes as ``PassWalk`` does, and knows from which first ones each comes.

    A first instruction is identified by its node's number.
    """

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        # each node as it was in the row before
        self.line: dict[int, Line] = {}
        self.operands: dict[int, tuple[int, ...]] = {}
        self.users: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self.place: dict[int, int] = {}
        self.order: dict[int, int] = {}
        self.callers: defaultdict[str, dict[int, None]] = defaultdict(dict)  # of computations
        self.outside: dict[int, int] = {}  # parameter of a fusion → its operand
        self.inside: defaultdict[int, dict[int, None]] = defaultdict(dict)  # the reverse
        # what is known
        self.parts: dict[int, dict[str, Ids]] = {}  # node → component of its op name → first ones
        self.unnamed: dict[int, Ids] = {}  # nodes without an op name
        self.how: dict[int, How] = {}
        self.guesses = False  # whether any identity is based on a guess
        self.first_opcode: dict[int, str] = {}
        self.index: defaultdict[str, dict[int, None]] = defaultdict(dict)
        self.ever: defaultdict[str, dict[Ids, None]] = defaultdict(dict)
        self.main: dict[int, int] = {}  # helper → the first instruction that it helps
        self.helper: dict[tuple[int, str], int] = {}  # (main, opcode) → helper
        self.changes: list[tuple[int, dict[str, int], dict[str, int]]] = []
        self.links_seen = 0
        # as they were before the current row
        self.row = 0
        self.names_before: dict[int, str] = {}
        self.prior: dict[str, Body] = {}
        self.prior_alive: dict[int, dict[str, int]] = {}
        self.prior_place_of: dict[str, int] = {}
        # node → from which row on, from which first ones, how, and whether it has an op name
        self.history: dict[int, list[tuple[int, Ids, How, bool]]] = {}

    def _body(self, row: int, place: int, old: Body | None, b: Body) -> list[tuple[str, int]]:
        was = self.alive.get(place, {})
        out = super()._body(row, place, old, b)
        self.changes.append((place, was, self.alive[place]))
        return out

    def step(self, row: int, bodies: list[Body]) -> None:
        """Follows the nodes; ``before`` and the like become those of this row."""
        self.changes = []
        self.row = row
        self.names_before = {p: n for n, p in self.place_of.items()}
        self.prior, self.prior_alive, self.prior_place_of = (
            self.before,
            dict(self.alive),
            self.place_of,
        )
        super().step(row, bodies)

    def of(self, node: int) -> Ids:
        """The first instructions that a node comes from, as far as known."""
        parts = self.parts.get(node)
        if not parts:
            return self.unnamed.get(node, ())
        if len(parts) == 1:
            return next(iter(parts.values()))
        return tuple(dict.fromkeys(i for ids in parts.values() for i in ids))

    def present(self, node: int) -> Line:
        """A node's line after the current pass."""
        return self.steps.versions[self.steps.nodes[node].versions[-1]].line

    def present_operands(self, node: int) -> tuple[int, ...]:
        return self.steps.versions[self.steps.nodes[node].versions[-1]].operands

    def begin(self) -> None:
        """The instructions of the first row come from themselves."""
        for _, _, now in self.changes:
            for n in now.values():
                line = self.present(n)
                names = components(line.op_name) if line.opcode != "parameter" else ()
                if names:
                    self.parts[n] = dict.fromkeys(names, (n,))
                else:
                    self.unnamed[n] = (n,)
                self.how[n] = How.FIRST
                self.first_opcode[n] = line.opcode
        for _, _, now in self.changes:
            for n in now.values():
                self._helped(n)

    def _helped(self, n: int) -> None:
        """Records the helper instructions that the same equation wrote before ``n``."""
        line = self.present(n)
        if line.opcode in HELPERS or not line.op_name:
            return
        waiting = list(self.present_operands(n))
        for o in waiting:
            other = self.present(o)
            if other.opcode not in HELPERS or other.op_name != line.op_name or o in self.main:
                continue
            if other.frame != line.frame:
                continue
            self.main[o] = n
            self.helper.setdefault((n, other.opcode), o)
            waiting += [k for k in self.present_operands(o) if k not in waiting]

    def remember(self) -> None:
        """The present becomes the past."""
        for k, (_, _, now) in enumerate(self.changes):
            order = k << 24
            for n in now.values():
                order += 1
                self.order[n] = order
        for place, _, now in self.changes:
            for n in now.values():
                line, operands = self.present(n), self.present_operands(n)
                old = self.line.get(n)
                if old is line and self.operands.get(n) == operands:
                    continue
                if old is None or old.op_name != line.op_name:
                    for c in components(old.op_name) if old is not None else ():
                        self.index[c].pop(n, None)
                    for c in components(line.op_name):
                        self.index[c][n] = None
                for c, ids in self.parts.get(n, {}).items():
                    self.ever[c][ids] = None
                if old is None or old.attributes != line.attributes:
                    self._calls(n, old, line)
                for o in self.operands.get(n, ()):
                    self.users[o].pop(n, None)
                for o in operands:
                    self.users[o][n] = None
                self.line[n], self.operands[n], self.place[n] = line, operands, place
        for n in self.gone:
            old = self.line.pop(n, None)
            if old is not None:
                for c in components(old.op_name):
                    self.index[c].pop(n, None)
                for o in self.operands.pop(n, ()):
                    self.users[o].pop(n, None)
                self._calls(n, old, None)
                self.users.pop(n, None)
                self.order.pop(n, None)

    def _calls(self, n: int, old: Line | None, line: Line | None) -> None:
        for name in called(old) if old is not None else ():
            self.callers[name].pop(n, None)
        for name in called(line) if line is not None else ():
            self.callers[name][n] = None
