"""Why a collective is there: what the program before partitioning asked for, and who said so.

    collective (names the op it was made for) ──▶ that op before partitioning
        a dot whose contracted dimension is sharded             all-reduce, reduce-scatter
        a constraint, or an operand laid out otherwise          all-gather, all-to-all, permute
    axes of the operand and of the op ──▶ Shardy's origins ──▶ argument k, constraint at file:line

A wrong answer is worse than none: every candidate must account for the kind and the axes of
the collective, and all that do must agree; otherwise the card says what is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from ...hlo import Instruction, Mesh, Module, StackFrame, Target
from ...hlo.collective_kinds import KINDS
from ..base.table import per_target
from ..comms.collective import Collective
from ..comms.collectives import Collectives, collectives
from .compiler_messages import compiler_messages
from .provenance_card import Why
from .provenance_causes import Cause, Causes
from .provenance_origins import Origin, Origins, line_of
from .shardy_dump import ShardyDump, read_shardy_dump

# What only moves values: several of them may make one change of layout.
_STEPS = tuple(k.name for k in KINDS.values() if k.reshards)
ORIGINS = "shardy/02.after_propagation"


def reasons(module: Module, target: Target) -> tuple[Why | None, ...]:
    """The card of each collective; None for those no partitioner inserted, or without dumps."""
    return _reasons(module, target)


@per_target
def _reasons(module: Module, target: Target) -> tuple[Why | None, ...]:
    rows = collectives(module, target)
    if target.before_partitioning is None:
        return (None,) * len(rows)
    answers = Provenance(target)
    cards = [answers.why(row) if row.inserted else None for row in rows]
    return tuple(_chained(rows, cards))


def _chained(rows: Collectives, cards: list[Why | None]) -> list[Why | None]:
    """A move in several steps: what takes the result of one of them, for the same op, is the next.

    The first step's card holds for it too; steps follow each other in the list of collectives.
    """
    step_of = {member: row.index for row in rows for member in row.members}
    for row in rows:
        card = cards[row.index]
        if card is None or card.is_known or row.moves is None or row.kind not in _STEPS:
            continue
        before = step_of.get(row.moves.instruction.index)
        if before is None or before == row.index:
            continue
        first, earlier = cards[before], rows[before]
        same = _place(row.op_name, row.frames) == _place(earlier.op_name, earlier.frames)
        if first is not None and first.is_known and same and earlier.kind in _STEPS:
            cards[row.index] = first
    return cards


def explain(module: Module, target: Target, row: Collective) -> Why:
    """The card of one collective of the module, with what the compiler said about it."""
    card = reasons(module, target)[row.index] or Provenance(target).why(row)
    members = set(row.members)
    said = (m for m in compiler_messages(module, target) if members & set(m.instructions))
    return replace(card, collective=f"{row.name} over {row.axes_or_groups}", messages=tuple(said))


class Provenance:
    """Answers ``why(collective)`` for one captured program."""

    def __init__(self, target: Target):
        self.target = target
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
    def origins(self) -> Origins | None:
        return Origins(self.target, self.before, self.dump) if self.before is not None else None

    @cached_property
    def by_metadata(self) -> dict[tuple[object, ...], list[Instruction]]:
        out: dict[tuple[object, ...], list[Instruction]] = {}
        for i in self.before.instructions if self.before is not None else ():
            if i.op_name and i.opcode not in ("parameter", "get-tuple-element", "tuple"):
                out.setdefault(_place(i.op_name, i.frames), []).append(i)
        return out

    def argument(self, op_name: str) -> Instruction | None:
        """ENTRY's parameter of that name, if there is just one."""
        entry = self.before.entry if self.before is not None else None
        found = [p for p in entry.parameters if p.op_name == op_name] if entry and op_name else []
        return found[0] if len(found) == 1 else None

    def why(self, row: Collective) -> Why:
        """The card; its ``unknown`` is filled where the join is not certain."""
        if row.inserted is False:
            return Why(op_name=row.op_name, line=row.line, by_user=True)
        if row.inserted is None:
            return Why(unknown="it carries no op_name, so what it was made for cannot be found")
        if self.before is None or self.mesh is None:
            return Why(unknown="the program before partitioning was not captured")
        if row.axes is None:
            return Why(unknown="its groups are no mesh axes")
        if len(row.parts) > 1 and row.kind not in ("collective-matmul", "all-to-all"):
            return self._combined(row)
        return self._one(row, row.op_name, row.frames, row.parts[0].shape if row.parts else "")

    def parts(self, row: Collective) -> list[Why]:
        """A card for each part of a combined collective, by the op of its operand."""
        pairs = zip(row.parts, row.instruction.operands, strict=False)
        return [self._one(row, o.op_name, o.frames, part.shape) for part, o in pairs]

    def _combined(self, row: Collective) -> Why:
        """A combined collective keeps the metadata of one part only: ask each part's operand."""
        cards = self.parts(row)
        known = [c for c in cards if c.is_known]
        if not known or len(known) < len(cards):
            return Why(unknown=f"{len(cards)} collectives were combined; not all could be traced")
        first = known[0]
        origins = tuple(dict.fromkeys(o for c in known for o in c.origins))
        return Why(
            first.op_name, first.opcode, f"{len(known)} arrays", first.line, first.operand,
            first.had, first.needs, origins,
        )  # fmt: skip

    def _one(
        self, row: Collective, op_name: str, frames: tuple[StackFrame, ...], shape: str
    ) -> Why:
        candidates = self.by_metadata.get(_place(op_name, frames), [])
        if not candidates and "/" not in op_name:  # named after the argument that moves
            found = self.argument(op_name)
            candidates = [found] if found is not None else []
        if not candidates:
            return Why(unknown="no op before partitioning has its name and line")
        axes = frozenset((row.axes or "").split("+"))
        assert self.origins is not None
        asked = Causes(self.origins)
        causes = [c for op in candidates for c in asked.causes(op, row.kind, axes, shape)]
        if not causes:  # some are named after the value that moves, not after the op that asks
            users = dict.fromkeys(u for op in candidates for u in op.users)
            later = [c for op in users for c in asked.causes(op, row.kind, axes, shape)]
            causes = [c for c in later if c.operand in candidates]
        if not causes and row.kind in ("collective-permute", "all-gather"):
            causes = [c for op in candidates for c in asked.reshards(op, row, axes, shape)]
            causes = causes if len(causes) == 1 else []
        if not causes:
            return Why(unknown="no op of that name and line accounts for it")
        cards = sorted({self.card(c) for c in causes}, key=lambda c: (c.operand, c.shape, c.needs))
        if len({(c.had, c.needs, c.origins, c.line) for c in cards}) == 1:
            return cards[0]
        if len({c.operand for c in causes}) > 1:
            return Why(unknown=f"{len(cards)} ops of that name and line would each account for it")
        # one value, moved once for several ops
        needs = "; ".join(dict.fromkeys(c.needs for c in cards))
        origins = _telling(o for c in cards for o in c.origins)
        return replace(cards[0], needs=needs, origins=origins)

    def card(self, cause: Cause) -> Why:
        op, known = cause.op, self.origins
        assert known is not None
        origins = _telling(known.origin(*a) for a in cause.axes)
        return Why(
            op.op_name,
            op.opcode,
            op.shape.dense_text,
            line_of(op.frames),
            known.describe(cause.operand) if cause.operand is not None else "",
            cause.had,
            cause.needs,
            origins,
        )


def _telling(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """Each once, without the unknown ones of an axis whose origin another operand gives."""
    found = tuple(dict.fromkeys(origins))
    known = {(o.axis, o.of) for o in found if o.kind != "unknown"}
    known |= {(axis, "result") for axis, of in known if of == "operand"}
    return tuple(o for o in found if o.kind != "unknown" or (o.axis, o.of) not in known)


def _place(op_name: str, frames: tuple[StackFrame, ...]) -> tuple[object, ...]:
    return (op_name, tuple((f.file, f.line, f.column) for f in frames))
