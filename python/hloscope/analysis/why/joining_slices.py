"""Find the collectives of the partitioned program of which an exchange between slices is a step.

Transfers between slices have neither name nor line, are padded to whole tiles, and every layer
has several of one size; XLA puts some together in one buffer. Data flow distinguishes them:

    partitioned   dot ─ all-reduce in the slice ─ reshape ─ all-reduce between slices
    optimised     dot ─ reduce-scatter (row 7, part 2) ─ bitcast, the next trip of a loop ─ send

The path back from a send ends at rows of the slice's own network, or at ops that compute. From
what these stand for, the path forward in the partitioned program leads to the collective between
slices; a collective over both networks is its own next step. Its size must fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice, permutations
from math import prod

from ...hlo import Instruction, opcodes, parse_shape, walk
from ...hlo.collective_kinds import is_collective, kind_of
from ...hlo.walk import Position
from ..base.operands import ONE_ARRAY
from ..comms.collective import Collective
from ..comms.collectives import Collectives
from .alignment import Place
from .partitioned import Partitioned

# What only moves, pads, masks or joins data.
_MOVING = opcodes.MOVES | {"select", "maximum"}
_BEHIND = _MOVING | ONE_ARRAY | opcodes.BUNDLES
_TILE = (8, 128)  # sublanes and lanes


@dataclass
class Ends:
    """Where the path back from a value ends: at parts of rows, and at ops that compute, each with
    the number of its elements that are meant."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    makers: list[tuple[Instruction, int]] = field(default_factory=list)


def ends_of(value: Instruction, rows: Collectives) -> Ends:
    """Follow ``value`` back through moves, fusions of moves and trips of loops."""
    found = Ends()

    def passes(i: Instruction) -> bool:
        return walk.acts_as(i) in _BEHIND and i.index not in rows.by_instruction

    starts = [(Position(value), 0)]  # with the number of elements after a reduction

    def go_on(start: Position, reduced: int) -> None:
        if start not in (p for p, _ in starts):
            starts.append((start, reduced))

    for start, reduced in starts:
        for p in walk.sources(start, passes):
            at = p.instruction
            row = rows.by_instruction.get(at.index)
            if row is not None and at.opcode == "fusion":  # besides the transfer, it computes
                inside = at.called_computations[0].root if at.called_computations else None
                if inside is not None:
                    go_on(Position(inside, p.element), reduced)
            elif row is not None and at.opcode not in ("send", "recv", "send-done"):
                part = p.element[0] if p.element and len(row.parts) > 1 else 0
                if (row.index, part) not in found.rows:
                    found.rows.append((row.index, part))
            elif at.opcode == "parameter":
                for given in islice(walk.back(p, opcodes.FUSIONS), 1, 2):  # out of such a fusion
                    go_on(given, reduced)
            elif at.opcode == "reduce" and not at.op_name:  # the second half of a reduction
                go_on(Position(at.operands[0]), reduced or at.shape.elements)
            elif at.opcode not in opcodes.LITERALS:
                found.makers.append((at, reduced or _elements(p)))
    return found


def _elements(p: Position) -> int:
    """How many elements a position has; of a tuple its first array's."""
    leaves = list(p.instruction.shape.leaves())
    number = p.element[0] if p.element and p.element[0] < len(leaves) else 0
    return leaves[number].elements if leaves else 0


class Exchanges:
    """``parts(row)`` of a row of a program over several slices: per part, one list per array in it.

    ``stands_for(row, part)`` gives the collectives of the partitioned program that a part of
    another row stands for, one list per array in it; ``pool(row)`` those that a row can be a step
    of; ``near(i)`` the places of an instruction of the optimised program and of the ops in it,
    ``own(i)`` its own; ``made_by(i)`` the places of a collective of the partitioned program and
    of the values it moves.
    """

    def __init__(
        self,
        rows: Collectives,
        partitioned: Partitioned,
        stands_for: Callable[[Collective, int], list[list[Instruction]]],
        pool: Callable[[Collective], list[Instruction]],
        near: Callable[[Instruction], set[Place]],
        made_by: Callable[[Instruction], set[Place]],
        own: Callable[[Instruction], Place],
    ) -> None:
        self.rows, self.partitioned, self.stands_for = rows, partitioned, stands_for
        self.pool, self.near, self.made_by, self.own = pool, near, made_by, own
        self._before: dict[int, set[int]] = {}
        self._asked: set[int] = set()  # rows whose parts are being searched for

    @property
    def open(self) -> frozenset[int]:
        """The rows that are being searched for, without which others are found meanwhile."""
        return frozenset(self._asked)

    def parts(self, row: Collective) -> list[list[list[Instruction]]]:
        """For each part of the row, one list per array in it; [] for a part that was not found.

        Rows in a loop can each depend on the other: a row that is reached again is skipped.
        """
        if row.index in self._asked:
            return []
        self._asked.add(row.index)
        try:
            return self._parts(row)
        finally:
            self._asked.discard(row.index)

    def _parts(self, row: Collective) -> list[list[list[Instruction]]]:
        out: list[list[list[Instruction]]] = []
        values = row.instruction.operands[: len(row.parts)]
        if row.instruction.opcode == "recv" or len(values) < len(row.parts):
            return []
        pool = self.pool(row)
        for value, part in zip(values, row.parts, strict=True):
            found = self._arrays(row, value, pool)
            fits = found and self.fits(row, parse_shape(part.shape).elements, found)
            out.append(found if fits else [])
        return out

    def has_row_behind(self, row: Collective) -> bool:
        """Whether the value it sends comes from another row: then its size alone proves nothing."""
        return any(ends_of(v, self.rows).rows for v in row.instruction.operands[:1])

    def _arrays(
        self, row: Collective, value: Instruction, pool: list[Instruction]
    ) -> list[list[Instruction]]:
        ends = ends_of(value, self.rows)
        groups = {frozenset(g) for g in row.groups.rows()} if row.groups is not None else set()
        out: list[list[Instruction]] = []
        # besides others, those of its own network are what the buffer held: results of other trips
        others = [r for r in ends.rows if self.rows[r[0]].network != row.network]
        for number, part in others or ends.rows:
            if number in self._asked:
                continue
            for one in self.stands_for(self.rows[number], part) or [[]]:
                first = {i.index for i in one}
                same = [i for i in pool if i.index in first and not self._is_of(i, groups)]
                fed = [i for i in pool if first & self._fed_by(i)]
                if others:
                    fed = same + [i for i in fed if self._is_first(i, groups)]
                out.append(fed)
        for maker, elements in ends.makers:
            near = {p for p in self.near(maker) if p[0]}
            found = [i for i in pool if near & self.made_by(i) and _size(i) == elements]
            out.append([i for i in found if self.own(maker) in self.made_by(i)] or found)
        # the initial value and the trips of a loop yield the same array
        return [] if not all(out) else list({tuple(i.index for i in f): f for f in out}.values())

    def _is_first(self, i: Instruction, groups: set[frozenset[int]]) -> bool:
        """Whether the row can be its first step: sums begin in the slice, transfers anywhere."""
        return kind_of(self.partitioned.kind(i)).is_pairwise or self._is_of(i, groups)

    def _is_of(self, i: Instruction, groups: set[frozenset[int]]) -> bool:
        """Whether it runs over exactly the device groups of the row."""
        found = self.partitioned.groups[i.index]
        return found is not None and {frozenset(g) for g in found.rows()} == groups

    def _fed_by(self, i: Instruction) -> set[int]:
        """Collectives whose results it takes, through moves alone."""
        known = self._before.get(i.index)
        if known is None:
            known = self._before[i.index] = set()
            for o in i.operands:
                known |= {j.index for j in _collectives_behind(o)}
        return known

    def fits(self, row: Collective, elements: int, found: list[list[Instruction]]) -> bool:
        """Whether one collective of each list can make up the array, including padding.

        A step moves all of it, or one device's share if the slice has split it.
        """
        least = sum(min(_size(i) / self._inside(i, row) for i in one) for one in found)
        most = sum(max(_size(i) * _padding(i) for i in one) for one in found)
        return least <= elements <= max(most, prod(_TILE))

    def _inside(self, i: Instruction, row: Collective) -> int:
        """Devices of a group of ``i`` per device of a group of the row."""
        groups = self.partitioned.groups[i.index]
        return max(1, (groups.group_size if groups else 0) // max(1, row.group_size))


def _size(i: Instruction) -> int:
    return sum(leaf.elements for o in i.operands for leaf in o.shape.leaves())


def _collectives_behind(value: Instruction) -> Iterator[Instruction]:
    way = (p.instruction for p in walk.back(value, _MOVING))
    return (i for i in way if is_collective(i.opcode))


def _padding(i: Instruction) -> float:
    """Largest factor by which padding to tiles can enlarge it, for any two minor dimensions."""
    dims = [n for leaf in i.shape.leaves() for n in leaf.dimensions] or [1]
    if len(dims) == 1:
        dims = [1, *dims]
    return max(
        (-(-a // _TILE[0]) * _TILE[0] * -(-b // _TILE[1]) * _TILE[1]) / (a * b)
        for a, b in permutations(dims, 2)
    )
