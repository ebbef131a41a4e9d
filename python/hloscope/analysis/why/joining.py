"""Which collectives of the partitioned program a row of the optimised program comes from.

Passes after partitioning keep the metadata and mostly the channel; they combine collectives of
several ops (only one name and line remains), split one in two, move converts across them, and
copy those of a loop in front of it. A row is joined by what cannot change: kind, device groups
and number of elements moved; then by channel, by name and line, and by the argument that moves.
Every part of a combined collective is joined separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...hlo import Instruction, Shape, opcodes, parse_shape, walk
from ...hlo.collective_kinds import KINDS, kind_of
from ...hlo.shardings.devices import DeviceGroups
from ...hlo.shardings.slices import slices_of
from ..base.lines.op_name import is_autodiff
from ..base.operands import ONE_ARRAY, source_of
from ..comms.collective import Collective
from ..comms.collectives import Collectives
from .alignment import Place, full_name, place
from .joining_slices import Exchanges
from .partitioned import REDUCTIONS, Partitioned

Key = tuple[str, object]
_GATHERINGS = tuple(k.name for k in KINDS.values() if k.gathers)


class Joining:
    """``parts(row)``: for each part of a row, the collectives that it may be."""

    def __init__(self, rows: Collectives, partitioned: Partitioned) -> None:
        self.rows, self.partitioned = rows, partitioned
        self._pool: dict[Key, list[Instruction]] = defaultdict(list)
        self._known: dict[tuple[int, frozenset[int]], list[list[Instruction]]] = {}
        self._steps_of: dict[tuple[str, str, object], list[Instruction]] = {}
        for i in partitioned.collectives:
            kind, groups = partitioned.kind(i), partitioned.groups[i.index]
            for k in REDUCTIONS if kind in REDUCTIONS else (kind,):
                self._pool[k, _who(groups)].append(i)

    def parts(self, row: Collective) -> list[list[Instruction]]:
        """One list per part; in a combined row each collective is in one part only."""
        key = row.index, self._exchanges.open
        known = self._known.get(key)
        if known is None:
            known = self._parts(row)
            if len(known) == len(row.parts):
                pairs = zip(known, row.parts, strict=True)
                known = [_of_array(one, p.shape, row) for one, p in pairs]
            self._known[key] = known
        return known

    def _parts(self, row: Collective) -> list[list[Instruction]]:
        if row.is_of_permutes:
            return [self._permute(row, p.instruction) for p in row.parts]
        flown = self._exchanges.parts(row) if self._is_told_by_flow(row) else []
        if not any(flown):
            return self._by_size(row)
        by_size = self._by_size(row) if not all(flown) else []
        out: list[list[Instruction]] = []
        for k, part in enumerate(flown):
            rest = [by_size[k]] if len(by_size) == len(flown) else [[]]
            found = part or rest
            out += [_narrowed(one, lambda i: self._phase(i) == row.phase) for one in found]
        return out

    def _is_told_by_flow(self, row: Collective) -> bool:
        """Whether data flow decides: it may be a step of another, is combined, or has no name."""
        single = len(row.parts) < 2 or kind_of(row.kind).exchanges
        nameless = not row.op_name and row.kind in REDUCTIONS
        return bool(row.network) and (self._is_step(row) or not single or nameless)

    def _by_size(self, row: Collective) -> list[list[Instruction]]:
        pool = self._pool.get((row.kind, _who(row.groups)), [])
        if not self._is_step(row) and (len(row.parts) < 2 or kind_of(row.kind).exchanges):
            one = self._one(row, pool)
            return [one or (self._of_one_line(row) if row.network else [])]
        if not self._is_step(row):
            return self._combined(row, pool)
        if row.network == "dcn" and self._exchanges.has_row_behind(row):
            return [self._of_one_line(row)]  # the collective that it is a step of was not found
        found = self._within(row)
        return found if any(found) or len(row.parts) > 1 else [self._of_one_line(row)]

    def _of_one_line(self, row: Collective) -> list[Instruction]:
        """Collectives it can be a step of, if one line of the program requests all of them by name.

        Where some are the partitioner's own, the size alone proves nothing.
        """
        elements = sum(_count(p.shape) for p in row.parts)
        fits = [i for i in self._whole_of(row) if self._exchanges.fits(row, elements, [[i]])]
        lines = {(f.file, f.line) for i in fits for f in i.frames[:1]}
        written = all(map(self.partitioned.is_written, fits))
        return fits if written and len(lines) == 1 else []

    def _is_step(self, row: Collective) -> bool:
        """Whether it is one step of a collective over both networks."""
        if not row.network:
            return False
        return row.network == "dcn" or not self._pool.get((row.kind, _who(row.groups)))

    def _within(self, row: Collective) -> list[list[Instruction]]:
        """For each part, the collectives over both networks of which it is a step on one of them.

        An all-reduce over all devices becomes a reduce-scatter in the slice, an exchange between
        slices, and an all-gather in the slice: over some of the devices, with a share of its
        elements. Exchanges have no name, but the ops before and after them and the values they
        move have.
        """
        pool = self._whole_of(row)
        if len(row.parts) > 1:
            pairs = zip(row.parts, row.instruction.operands, strict=False)
            return [self._step(row, pool, _count(p.shape), _named(_near(o))) for p, o in pairs]
        found = self._step(row, pool, sum(_count(p.shape) for p in row.parts), self._beside(row))
        before = self.rows.by_instruction.get(row.moves.instruction.index) if row.moves else None
        if before is not None and before.index < row.index:  # the previous step, by data flow
            same = [i for one in self.parts(before) for i in one if i in pool]
            found = [i for i in found if i in same] or same or found
        return [found]

    @cached_property
    def _exchanges(self) -> Exchanges:
        def stands_for(row: Collective, part: int) -> list[list[Instruction]]:
            found = self.parts(row)
            if len(found) != len(row.parts):  # several arrays in one buffer
                by_part = self._exchanges.parts(row)
                return by_part[part] if part < len(by_part) else []
            return [found[part]] if part < len(found) else []

        return Exchanges(
            self.rows, self.partitioned, stands_for, self._whole_of, _near,
            lambda i: self._made_by[i.index], _place,
        )  # fmt: skip

    def _whole_of(self, row: Collective) -> list[Instruction]:
        """Collectives of the program that ``row`` can be a step of, by kind and devices."""
        key = row.kind, row.network, row.groups.key if row.groups is not None else None
        known = self._steps_of.get(key)
        if known is None:
            known = self._steps_of[key] = self._found_whole_of(row)
        return known

    def _found_whole_of(self, row: Collective) -> list[Instruction]:
        groups = [set(g) for g in row.groups.rows()] if row.groups is not None else []
        out = []
        for i in self.partitioned.collectives:
            kind, found = self.partitioned.kind(i), self.partitioned.groups[i.index]
            steps = (*REDUCTIONS, *_GATHERINGS) if kind in REDUCTIONS else (kind,)
            if row.kind in steps and found is not None:
                if found.pairs is not None and row.groups is not None:
                    pairs, whole = row.groups.pairs, _pairs(found.pairs)
                    if pairs is None:
                        continue
                    if row.network == "dcn":  # pairs give the slices, not the devices in them
                        crossing = self._crossing(whole)
                        if crossing and crossing <= self._crossing(_pairs(pairs)):
                            out.append(i)
                    elif any(one <= whole for one in self._of_each_slice(_pairs(pairs))):
                        out.append(i)
                    continue
                sets = [set(g) for g in found.rows()]
                if all(any(g <= s for s in sets) for g in groups):
                    out.append(i)
        return out

    def _crossing(self, pairs: set[tuple[int, ...]]) -> set[frozenset[int]]:
        """The sets of slices between which pairs of devices transfer."""
        found = {frozenset(self._slice.get(d, 0) for d in pair) for pair in pairs}
        return {slices for slices in found if len(slices) > 1}

    def _of_each_slice(self, pairs: set[tuple[int, ...]]) -> list[set[tuple[int, ...]]]:
        """The pairs within each slice.

        Slices that transfer between other devices do so in branches of a conditional, of which
        each slice runs its own; the row has the pairs of one branch in all slices.
        """
        each: dict[int, set[tuple[int, ...]]] = defaultdict(set)
        for pair in pairs:
            each[self._slice.get(pair[0], 0)].add(pair)
        return list(each.values())

    @cached_property
    def _slice(self) -> dict[int, int]:
        """Slice number of each device."""
        p = self.partitioned
        slices = slices_of(self.rows[0].instruction.module, p.origins.target)
        return {d: n for n, devices in enumerate(slices) for d in devices}

    def _step(
        self, row: Collective, pool: list[Instruction], elements: int, near: set[Place]
    ) -> list[Instruction]:
        fits = []
        for i in pool:
            groups = self.partitioned.groups[i.index]
            whole = _elements(i, self.partitioned.kind(i))
            share = whole // elements if elements and whole % elements == 0 else 0
            if groups is not None and 0 < share <= max(1, groups.group_size):
                fits.append(i)
        found = [i for i in fits if near & self._around[i.index]]
        if row.moves is not None and row.moves.kind == "argument":
            number = row.moves.parameter
            found = [i for i in found or fits if self._argument.get(i.index) == number] or found
        written = all(map(self.partitioned.is_written, fits))
        if not found and len({_place(i) for i in fits}) == 1 and (len(fits) == 1 or written):
            found = fits  # no other collective has such a step; or one line requested all of them
        return _narrowed(found, lambda i: self._phase(i) == row.phase)

    def _phase(self, i: Instruction) -> str:
        """The phase of the op that takes its result, by its name."""
        users = self.partitioned.alignment.users(i)
        names = [full_name(u) for u, _ in users if u.op_name] or [full_name(i)]
        if "rematted_computation" in names[0]:
            return "rematerialised"
        return "backward" if is_autodiff(names[0]) else "forward"

    def _beside(self, row: Collective) -> set[Place]:
        """Places of a row, of its operands and of the users of its result."""
        found = {self._row_place(row)} if row.op_name else set()
        instructions = row.instruction.module.instructions
        for m in row.members:
            i = instructions[m]
            for o in i.operands if i.opcode not in ("recv", "recv-done", "send-done") else ():
                found |= _near(o)
            for u in i.users if i.opcode != "send" else ():
                found |= _near(u)
        return _named(found)

    def _permute(self, row: Collective, op: Instruction) -> list[Instruction]:
        pairs = op.attribute("source_target_pairs")
        pool = [
            i for i in self.partitioned.collectives
            if kind_of(self.partitioned.kind(i)).is_pairwise
            and i.attribute("source_target_pairs") == pairs
        ]  # fmt: skip
        found = _narrowed(pool, lambda i: _place(i) == self._row_place(row))
        return _narrowed(found, lambda i: i.attribute("channel_id") == op.attribute("channel_id"))

    def _one(self, row: Collective, pool: list[Instruction]) -> list[Instruction]:
        elements = sum(_count(p.shape) for p in row.parts)
        fits = [i for i in pool if _elements(i, row.kind) == elements]
        kind = kind_of(row.kind)
        if not fits and row.op_name and kind.reduces and kind.scatters:  # of padded shares
            fits = [i for i in pool if _place(i) == self._row_place(row)]
        channel = row.instruction.attribute("channel_id")
        exact = [i for i in fits if channel and i.attribute("channel_id") == channel]
        named = [i for i in exact if _place(i) == self._row_place(row)]
        if named:
            return named
        found = [i for i in fits if _place(i) == self._row_place(row)]
        if not found and row.op_name:  # named after the value moved, or after the op that needs it
            found = [i for i in fits if self._row_place(row) in self._around[i.index]]
        if not found:
            found = exact or fits
        found = self._moving(row, found)
        if row.op_name or not row.phase:
            return found
        return _narrowed(found, lambda i: self._phase(i) == row.phase)

    def _moving(self, row: Collective, found: list[Instruction]) -> list[Instruction]:
        """Those that move the same argument as the row; all if none does or it moves none."""
        if row.moves is None or row.moves.kind != "argument" or len(found) < 2:
            return found
        return [i for i in found if self._argument.get(i.index) == row.moves.parameter] or found

    def _combined(self, row: Collective, pool: list[Instruction]) -> list[list[Instruction]]:
        free = [i for i in pool if i.index not in self._claimed] or pool
        out: list[list[Instruction]] = []
        used: set[int] = set()
        for part, operand in zip(row.parts, row.instruction.operands, strict=False):
            fits = [i for i in free if _elements(i, row.kind) == _count(part.shape)]
            fits = [i for i in fits if i.index not in used]
            near = _near(operand)
            near.add(self._row_place(row))
            found = [i for i in fits if near & self._around[i.index]] or fits
            if kind_of(row.kind).gathers:
                number = source_of(operand, self.partitioned.origins.target).parameter
                same = [i for i in found if self._argument.get(i.index) == number]
                found = same if same and number is not None else found
            if fed := self._fed(operand):  # unrolled layers look alike, but their weights differ
                found = [i for i in found if self._feeding[i.index] == fed] or found
            found = _narrowed(found, lambda i: _last(i.op_name) in row.op_name)[:1]
            out.append(found)
            used.update(i.index for i in found)
        return out

    @cached_property
    def _claimed(self) -> frozenset[int]:
        """Collectives that rows with a single part come from."""
        out: set[int] = set()
        for row in self.rows:
            if len(row.parts) == 1 and not row.is_of_permutes and not self._is_step(row):
                found = self.parts(row)[0]
                if len(found) == 1:
                    out.add(found[0].index)
        return frozenset(out)

    @cached_property
    def _around(self) -> dict[int, set[Place]]:
        """Places of each collective, of the values it moves and of the users of its result."""
        alignment = self.partitioned.alignment
        return {
            i.index: self._made_by[i.index] | {_place(u) for u, _ in alignment.users(i)}
            for i in self.partitioned.collectives
        }

    @cached_property
    def _made_by(self) -> dict[int, set[Place]]:
        """Places of each collective and of the values it moves."""
        alignment = self.partitioned.alignment
        return {
            i.index: {_place(i), *(_place(s) for o in i.operands for s in alignment.sources(o))}
            for i in self.partitioned.collectives
        }

    @cached_property
    def _argument(self) -> dict[int, int | None]:
        """Parameter number of the argument that each collective moves."""
        target = self.partitioned.origins.target
        return {
            i.index: source_of(i.operands[0], target).parameter
            for i in self.partitioned.collectives
            if i.operands
        }

    @cached_property
    def _feeding(self) -> dict[int, frozenset[int]]:
        """Arguments from which the value that each collective moves is computed directly."""
        return {
            i.index: frozenset[int]().union(*map(self._fed, i.operands))
            for i in self.partitioned.collectives
        }

    def _fed(self, value: Instruction) -> frozenset[int]:
        """Numbers of the arguments that are operands of the op which makes ``value``."""
        target = self.partitioned.origins.target
        maker = walk.source(value, ONE_ARRAY).instruction
        numbers = {source_of(o, target).parameter for o in maker.operands}
        return frozenset(n for n in numbers if n is not None)

    def _row_place(self, row: Collective) -> Place:
        return place(row.op_name, row.frames)


def _near(operand: Instruction) -> set[Place]:
    """Places of a value and of the ops inside the fusion that makes it."""
    found: set[Place] = set()
    for at, *_ in walk.path(operand, opcodes.SAME_NUMBERS):
        found.add(_place(at))
        for called in at.called_computations[:1] if at.opcode == "fusion" else ():
            found |= {_place(i) for i in called.instructions if i.op_name}
    return found


def _named(places: set[Place]) -> set[Place]:
    return {p for p in places if p[0]}


def _pairs(found: NDArray[np.int64]) -> set[tuple[int, ...]]:
    return set(map(tuple, found.tolist()))


def _narrowed(found: list[Instruction], test: Callable[[Instruction], bool]) -> list[Instruction]:
    """Those that pass the test; all if none does."""
    return [i for i in found if test(i)] or found


def _of_array(found: list[Instruction], shape: str, row: Collective) -> list[Instruction]:
    """Those that move an array like the row's: of its kind of numbers, else of its dimensions.

    Types are rounded on the way, and steps of a sum or of a gather move other shares.
    """
    own = parse_shape(shape)
    same = _narrowed(found, lambda i: _is_whole(i.shape) == _is_whole(own))
    if kind_of(row.kind).reduces or kind_of(row.kind).gathers:
        return same
    return _narrowed(same, lambda i: i.shape.dimensions == own.dimensions)


def _is_whole(shape: Shape) -> bool:
    """Whether it holds whole numbers."""
    leaf = next(iter(shape.leaves()), None)
    return leaf is not None and leaf.element_type[:1] in "su"


def _place(i: Instruction) -> Place:
    return place(full_name(i), i.frames)


def _last(op_name: str) -> str:
    return op_name.rpartition("/")[2]


def _who(groups: DeviceGroups | None) -> object:
    """Which devices communicate, regardless of order and spelling."""
    if groups is None:
        return None
    if groups.pairs is not None:
        return frozenset(map(tuple, groups.pairs.tolist()))
    return frozenset(tuple(sorted(r)) for r in groups.rows())


def _count(shape: str) -> int:
    return parse_shape(shape).elements


def _elements(i: Instruction, kind: str) -> int:
    values: Iterable[Instruction] = (i,) if kind_of(kind).gathers else i.operands
    return sum(leaf.elements for v in values for leaf in v.shape.leaves())
