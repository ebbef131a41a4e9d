"""Why a collective exists: which op before partitioning needs it, and who chose the shardings.

    row ─ joining.py ─▶ collective as the partitioner made it
        ─ partitioned.py, alignment.py ─▶ the op that needs it, the value that moves
        a dot whose contracted dimension is sharded             all-reduce, reduce-scatter
        a constraint, or an operand sharded differently         all-gather, all-to-all, permute
    axes of the operand and of the op ──▶ Shardy's origins ──▶ argument k, constraint at file:line

A wrong answer is worse than none: if several ops could need it, or if the card would name
another argument than the row moves, the card says what is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from ...hlo import Instruction, Mesh, Module, StackFrame, Target, opcodes
from ...hlo.collective_kinds import kind_of
from ...hlo.shardings.specs import axis_of
from ...hlo.texts.places import whole_place
from ...readers.stablehlo.shardy_dump import ShardyDump, read_shardy_dump
from ..base.lines.op_name import is_autodiff
from ..base.lines.rules import with_rule
from ..base.operands import ValueSource
from ..comms.collective import Collective, asked_otherwise
from ..comms.collectives import Collectives
from .alignment import full_name, place
from .by_metadata import ByMetadata
from .joining import Joining
from .partitioned import Partitioned
from .provenance_card import Why
from .provenance_causes import Cause
from .provenance_origins import AxisOrigin, ShardingOrigins, callers_of, line_of

ORIGINS = "shardy/02.after_propagation"


class Provenance:
    """Answers ``why(collective)`` for one captured program; ``rows`` are its collectives."""

    def __init__(self, target: Target, rows: Collectives | None = None):
        self.target = target
        self.rows = rows
        self.mesh: Mesh | None = target.mesh

    @cached_property
    def before(self) -> Module | None:
        """The program just before partitioning."""
        read = self.target.before_partitioning
        return read() if read is not None else None

    @cached_property
    def dump(self) -> ShardyDump | None:
        text = self.target.dumps.get(ORIGINS)
        return read_shardy_dump(text) if text else None

    @cached_property
    def origins(self) -> ShardingOrigins | None:
        return (
            ShardingOrigins(self.target, self.before, self.dump)
            if self.before is not None
            else None
        )

    @cached_property
    def joining(self) -> Joining | None:
        """Joins rows to the collectives that the partitioner made; None without its dump."""
        read = self.target.after_partitioning
        after = read() if read is not None else None
        if after is None or self.before is None or self.origins is None or self.rows is None:
            return None
        return Joining(self.rows, Partitioned(self.origins, self.before, after))

    @cached_property
    def by_metadata(self) -> ByMetadata:
        assert self.before is not None
        assert self.origins is not None
        return ByMetadata(self.before, self.origins)

    def why(self, row: Collective) -> Why:
        """The card; ``unknown`` gives the reason if the join is not certain."""
        known = _what_is_known(row)
        if row.inserted is False:
            return self._written(row)
        if self.before is None or self.mesh is None:
            return replace(known, unknown="the program before partitioning was not captured")
        if row.axes is None and self.joining is None:
            return replace(known, unknown="its groups match no mesh axes")
        cards = self.parts(row)
        if any(c.by_user for c in cards) and len(cards) > 1:
            return self._written(row)
        if len(cards) == 1:
            return cards[0] if cards[0].is_known else replace(known, unknown=cards[0].unknown)
        return _together(cards, known, row)

    def _written(self, row: Collective) -> Why:
        """The card of a collective that the program requests by name; if combined, with every line.

        It may have been combined with collectives that the partitioner inserted.
        """
        found = self.joining.parts(row) if self.joining is not None else []
        nameless = not row.op_name  # its line is only inferred: the request is at another
        if self.joining is None or not all(found) or (len(found) < 2 and not nameless):
            if nameless and row.inferred:
                return Why(unknown="it has lost its name, and with it the line that asks for it")
            return self._by_name(row, row.op_name, row.frames)
        each = []
        for one in found:
            written = self.joining.partitioned.is_written(one[0])
            each.append(self._asked_for(row, one) if written else self._joined(row, one))
        first = next((c for c in each if c.by_user), None)
        if first is None:
            return each[0] if nameless else self._by_name(row, row.op_name, row.frames)
        if len(each) == 1:
            return first
        return replace(first, parts=tuple(dict.fromkeys(each)))

    def parts(self, row: Collective) -> list[Why]:
        """A card for each part of a combined collective."""
        if self.joining is not None:
            found = self.joining.parts(row)
            if row.is_of_permutes:
                found = [list(dict.fromkeys(i for one in found for i in one))]
            return [self._joined(row, one) for one in found]
        if row.inserted is None:
            lost = "it carries no op_name, so what it was made for cannot be found"
            return [Why(unknown=lost)]
        if len(row.parts) > 1 and not row.is_of_permutes and not kind_of(row.kind).exchanges:
            pairs = zip(row.parts, row.instruction.operands, strict=False)
            return [self._one(row, o.op_name, o.frames, part.shape) for part, o in pairs]
        shape = row.parts[0].shape if row.parts else ""
        return [self._one(row, row.op_name, row.frames, shape)]

    def _joined(self, row: Collective, found: list[Instruction]) -> Why:
        """The card of a row that may be any of these collectives of the partitioned program."""
        if not found:
            return Why(unknown="no collective of the partitioned program has its groups and size")
        assert self.joining is not None
        if all(self.joining.partitioned.is_written(i) for i in found):
            return self._asked_for(row, found)
        # in program order: a card must not differ from one run to the next
        each = dict.fromkeys(tuple(self.joining.partitioned.causes(i)) for i in found)
        causes = list(dict.fromkeys(c for one in each for c in one))
        if () in each or not causes:
            return Why(unknown="no op of the program accounts for its axes")
        moves = row.moves
        if moves is not None and moves.kind == "argument":
            causes = [c for c in causes if not self._contradicts(c, moves)]
            if not causes:
                return Why(unknown=f"it moves {moves.name}, and no op before partitioning does")
        if len(each) == 1:  # one collective: the users of its result need it
            at = place(row.op_name, row.frames)
            causes.sort(key=lambda c: place(c.op.op_name, c.op.frames) != at)
            return _of_axes(self._merged([self.card(c) for c in causes]), row)
        return _of_axes(self._agreed(causes), row)

    def _asked_for(self, row: Collective, found: list[Instruction]) -> Why:
        """The card of a row that may be any of these collectives, all requested by name."""
        each = (self._by_name(row, full_name(i), i.frames) for i in reversed(found))
        cards = {c.line: c for c in each}
        if len(cards) > 1 and not row.op_name:
            lines = ", ".join(whole_place(line) for line in reversed(cards))
            return Why(unknown=f"{len(cards)} lines ask for one like it: {lines}")
        return self._by_name(row, full_name(found[0]), found[0].frames)

    def _by_name(self, row: Collective, op_name: str, frames: tuple[StackFrame, ...]) -> Why:
        """The card of a collective that the program, or its derivative, requests by name."""
        ruled = with_rule(op_name, frames, self.target.sources)
        derived = is_autodiff(op_name) and ruled == frames
        return Why(
            op_name=op_name, line=line_of(ruled), by_user=True, by_autodiff=derived,
            callers=callers_of(ruled, op_name), asked_as=asked_otherwise(op_name, row.kind),
        )  # fmt: skip

    def _contradicts(self, cause: Cause, moves: ValueSource) -> bool:
        """Whether the cause concerns another argument than the row moves."""
        assert self.origins is not None
        operand = cause.operand
        if operand is None or cause.is_reduced or cause.is_own_result:
            return False
        number = self.origins.moved_argument(operand)
        if number is None:  # loop-carried values cannot always be traced
            return operand.opcode not in opcodes.BUNDLES | opcodes.LOOPS | {"parameter"}
        return number != moves.parameter

    def _one(
        self, row: Collective, op_name: str, frames: tuple[StackFrame, ...], shape: str
    ) -> Why:
        causes, unknown = self.by_metadata.causes(row, op_name, frames, shape)
        return self._agreed(causes) if causes else Why(unknown=unknown)

    def _agreed(self, causes: list[Cause]) -> Why:
        """One card for causes that concern one value; unknown if they concern several."""
        each = dict.fromkeys(self.card(c) for c in causes)
        cards = sorted(each, key=lambda c: (c.operand, c.shape, c.needs))
        if len({(c.had, c.needs, c.origins, c.line) for c in cards}) == 1:
            return cards[0]
        if len({c.operand for c in cards}) > 1:
            lines = ", ".join(
                dict.fromkeys(
                    f"{c.opcode} at {whole_place(c.line)}" if c.line else c.opcode
                    for c in cards[:4]
                )
            )
            return Why(unknown=f"{len(cards)} ops would each account for it: {lines}")
        return self._merged(cards)

    def _merged(self, cards: list[Why]) -> Why:
        """One card for a value that is moved once for several ops."""
        cards = list(dict.fromkeys(cards))
        if len(cards) == 1:
            return cards[0]
        needs = "; ".join(dict.fromkeys(c.needs for c in cards))
        origins = _telling(o for c in cards for o in c.origins)
        return replace(cards[0], needs=needs, origins=origins, parts=tuple(cards))

    def card(self, cause: Cause) -> Why:
        op, known = cause.op, self.origins
        assert known is not None
        said = [
            known.origin(axis, of, value) if axis else known.fixed_by(value)
            for axis, of, value in cause.axes
        ]
        if cause.output >= 0:
            said.append(known.output(cause.output))
        return Why(
            op.op_name,
            "output" if cause.output >= 0 else op.opcode,
            op.shape.dense_text if op.shape.is_array else "",
            line_of(op.frames),
            known.describe(cause.operand) if cause.operand is not None else "",
            cause.had,
            cause.needs,
            _telling(o for o in said if o is not None),
            callers=callers_of(op.frames, full_name(op)),
        )


def _telling(origins: Iterable[AxisOrigin]) -> tuple[AxisOrigin, ...]:
    """Distinct origins, without unknown ones of an axis whose origin another operand gives."""
    found = tuple(dict.fromkeys(origins))
    known = {(o.axis, o.of) for o in found if o.kind != "unknown"}
    known |= {(axis, "result") for axis, of in known if of == "operand"}
    return tuple(o for o in found if o.kind != "unknown" or (o.axis, o.of) not in known)


def _of_axes(card: Why, row: Collective) -> Why:
    """The card without origins of axes that another step of the same move covers."""
    if row.axes is None or not row.network:
        return card
    axes = {axis_of(a) for a in row.axes.split("+")}
    if not axes & {o.axis for o in card.origins}:  # it is the only step over them
        return card
    return replace(card, origins=tuple(o for o in card.origins if o.axis in {"", *axes}))


def _what_is_known(row: Collective) -> Why:
    """What the row itself says about the op that it was made for."""
    return Why(op_name=row.op_name, line=row.line, callers=callers_of(row.frames, row.op_name))


def _together(cards: list[Why], known: Why, row: Collective) -> Why:
    """The card of a combined collective, with every op that it serves."""
    found = _heaviest_first([c for c in cards if c.is_known], cards, row)
    each = tuple(dict.fromkeys(found))
    lost = len(cards) - len(found)
    if lost:
        unknown = f"{len(cards)} collectives were combined; {lost} could not be traced"
        return replace(known, unknown=unknown, parts=each)
    first = found[0]
    if len(each) == 1:
        return replace(first, shape=f"{len(cards)} arrays")
    origins = tuple(dict.fromkeys(o for c in each for o in c.origins))
    return replace(first, shape=f"{len(cards)} arrays", origins=origins, parts=each)


def _heaviest_first(found: list[Why], cards: list[Why], row: Collective) -> list[Why]:
    """Cards in order of the bytes that their lines move; as they are where these are unknown."""
    if len(cards) != len(row.parts):
        return found
    moved: dict[str, int] = defaultdict(int)
    for card, part in zip(cards, row.parts, strict=True):
        moved[card.line] += part.bytes
    return sorted(found, key=lambda c: -moved[c.line])
