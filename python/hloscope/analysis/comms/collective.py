"""One logical collective, and sums over several."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...hlo import Instruction, Module, StackFrame, Target
from ...hlo.collective_kinds import KINDS, OF_PERMUTES, asked_kind, kind_of
from ...hlo.shardings.devices import DeviceGroups
from ..base.lines.frames import own_line
from ..base.lines.op_name import is_autodiff
from ..base.loops.branches import Path, span
from ..base.operands import ValueSource
from ..text.results import Row


@dataclass(frozen=True, slots=True, repr=False)
class Part(Row):
    """One array of a combined collective, or one transfer of several that belong together."""

    shape: str
    bytes: int  # in one execution of the part
    instruction: Instruction
    executions: int = 1  # of the part per execution of the whole; -1 unknown
    groups: DeviceGroups | None = None  # of a transfer: its source-target pairs
    moves: ValueSource | None = None  # what it is

    @property
    def element_type(self) -> str:
        """``bf16``; "" if its shape is unknown."""
        return self.shape.partition("[")[0]


class AskedLines:
    """The line of each row by its card (``Target.asked_lines``), made when the first is asked."""

    def __init__(self, module: Module, target: Target) -> None:
        self.module, self.target = module, target

    @cached_property
    def all(self) -> tuple[tuple[StackFrame, ...], ...]:
        made = self.target.asked_lines
        return made(self.module, self.target) if made is not None else ()

    def of(self, index: int) -> tuple[StackFrame, ...]:
        return self.all[index]


@dataclass(frozen=True, eq=False, repr=False)
class Collective(Row):
    """One logical collective. Bytes are for one execution; ``executions`` counts loop trips.

    ``payload_bytes`` is the larger of operand and result; for a collective matmul or a halo
    exchange, all that its permutes move. ``wire_bytes`` is what one device sends, by ring
    formulas; None if unknown. ``executions`` is None if a trip count is unknown, and in a branch
    of a conditional: it runs 0 to ``most_executions`` times, see ``branches``.
    """

    index: int
    kind: str
    instruction: Instruction  # the op itself; the start of an async pair
    anchor: Instruction  # the instruction that runs it: itself, or the fusion around it
    members: tuple[int, ...]  # indices of all instructions that belong to it
    parts: tuple[Part, ...]
    payload_bytes: int
    wire_bytes: int | None
    groups: DeviceGroups | None
    group_size: int
    axes: str | None  # "model", "data+fsdp"; None: no mesh axes match, see ``groups``
    executions: int | None
    phase: str  # one of phase_names
    inserted: bool | None  # by the partitioner; False: requested by the program; None: unknown
    op_name: str
    frames: tuple[StackFrame, ...]
    moves: ValueSource | None
    guessed: str = ""  # how ``frames`` were inferred if it has no line: "made from `dot.9`"
    most_executions: int | None = None  # how often its branches are reached; None if unknown
    executions_a_trip: int = 1  # … in one trip of each loop of unknown trip count around it
    branches: Path = ()  # branches of conditionals around it, outermost first
    ruled: tuple[StackFrame, ...] = ()  # the rule of a derivative that asks for it by name
    _by_card: AskedLines | None = None  # the lines of all rows by their cards, where known
    network: str = ""  # "ici" or "dcn" in a program over several TPU slices, else ""
    may_not_run: bool = False  # a loop of unknown trip count around it may run 0 times

    @property
    def name(self) -> str:
        return self.instruction.name

    @property
    def is_of_permutes(self) -> bool:
        """Whether it consists of several permutes: a collective matmul or a halo exchange."""
        return self.kind in OF_PERMUTES

    @property
    def is_combined(self) -> bool:
        """Whether it moves several arrays that have nothing else to do with one another."""
        pieces = self.is_of_permutes or (self.kind in KINDS and KINDS[self.kind].exchanges)
        return len(self.parts) > 1 and not pieces

    @property
    def moved(self) -> str:
        """Name of what it moves, or of how many arrays: "3 arrays"; "" if unknown."""
        if self.is_combined:
            return f"{len(self.parts):,} arrays"
        return self.moves.name if self.moves is not None else ""

    @property
    def element_types(self) -> str:
        """``bf16``; ``f32, bf16`` of a combined one, that of most bytes first; "" if unknown."""
        sums: dict[str, int] = {}
        for part in self.parts:
            sums[part.element_type] = sums.get(part.element_type, 0) + part.bytes
        return "+".join(sorted(filter(None, sums), key=lambda name: -sums[name]))

    @property
    def reduces(self) -> bool:
        """Whether it combines values, as an all-reduce does."""
        return self.kind in KINDS and KINDS[self.kind].reduces

    @property
    def assumes(self) -> str:
        """Assumption behind its wire bytes and time; "" for most kinds."""
        known = KINDS.get(self.kind)
        return known.assumes if known is not None else ""

    @property
    def multiplicity(self) -> int | None:
        """The same as ``executions``."""
        return self.executions

    @property
    def counted(self) -> int:
        """The number of executions that its totals count: the most possible.

        A loop of unknown trip count counts once, as in ``Cost``.
        """
        for known in (self.executions, self.most_executions):
            if known is not None:
                return known
        return self.executions_a_trip

    @property
    def is_unknown(self) -> bool:
        """Whether even its most executions are unknown: it is in a loop of unknown trip count."""
        return self.executions is None and self.most_executions is None

    @property
    def executions_text(self) -> str:
        """ "8", "0–1" in a branch, "unknown"."""
        if self.executions is not None:
            return f"{self.executions:,}"
        return "unknown" if self.most_executions is None else f"0–{self.most_executions:,}"

    @property
    def total_payload_bytes(self) -> int:
        """Payload of all ``counted`` executions."""
        return self.payload_bytes * self.counted

    @property
    def total_wire_bytes(self) -> int | None:
        """Bytes sent by one device in all ``counted`` executions; None if unknown."""
        return None if self.wire_bytes is None else self.wire_bytes * self.counted

    @property
    def asked(self) -> tuple[StackFrame, ...]:
        """The line that asks for it and its callers, by its card, if not ``frames``; else ().

        Figures do not depend on it: the cards of all rows are made when the first is asked.
        """
        return self.ruled if self._by_card is None else self._by_card.of(self.index)

    @property
    def inferred(self) -> str:
        """How its line was inferred if neither XLA nor its card gives one, or ''."""
        return self.guessed if self._by_card is None or not self.asked else ""

    @property
    def source(self) -> StackFrame | None:
        """The line that it comes from: the innermost frame outside installed packages."""
        return own_line(self.asked or self.frames)

    @property
    def line(self) -> str:
        """``train.py:31``; '' if unknown."""
        found = self.source
        return f"{found.file}:{found.line}" if found is not None else ""

    @property
    def written_by(self) -> str:
        """``partitioner``, ``user``, ``autodiff`` or ``unknown``.

        ``autodiff``: the derivative of what the user wrote requests it by name, such as the sum of
        a gradient over an axis along which its argument was replicated. What a backward rule of
        theirs (``custom_vjp``) requests is the user's.
        """
        if self.inserted is False and is_autodiff(self.op_name) and not self.ruled:
            return "autodiff"
        return {True: "partitioner", False: "user", None: "unknown"}[self.inserted]

    @property
    def asked_as(self) -> str:
        """``all_gather`` where the program asks for that, and XLA wrote this kind instead; ""
        where it wrote what was asked for, or nothing was."""
        return asked_otherwise(self.op_name, self.kind) if self.inserted is False else ""

    @property
    def axes_or_groups(self) -> str:
        """The mesh axes, or else the device groups: ``4 groups of 2``, ``8 pairs``."""
        if self.axes is not None:
            return self.axes
        if self.groups is None:
            return "unknown"
        if self.groups.pairs is not None:
            return f"{len(self.groups.pairs)} pairs"
        if self.groups.num_groups == 1:
            return f"one group of {self.group_size}"
        return f"{self.groups.num_groups} groups of {self.group_size}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "axes": self.axes,
            "network": self.network or None,
            "element_types": self.element_types or None,
            "group_size": self.group_size,
            "groups": self.groups.rows() if self.groups is not None else None,
            "payload_bytes": self.payload_bytes,
            "wire_bytes": self.wire_bytes,
            "executions": self.executions,
            "executions_most": self.most_executions,
            "phase": self.phase or None,
            "written_by": self.written_by,
            "asked_as": self.asked_as or None,
            "moves": self.moved or None,
            "op_name": self.op_name,
            "line": self.line,
            "line_inferred": self.inferred or None,
            "parts": [
                {
                    "shape": p.shape,
                    "element_type": p.element_type or None,
                    "bytes": p.bytes,
                    "moves": p.moves.name if p.moves is not None else None,
                }
                for p in self.parts
            ],
        }


def asked_otherwise(op_name: str, kind: str) -> str:
    """The primitive of jax in a name, if it asks for another kind of collective."""
    asked = op_name.rpartition("/")[2].partition("[")[0]
    wanted = asked_kind(asked).name
    return asked if wanted and kind_of(kind).name not in ("", wanted) else ""


@dataclass(frozen=True, slots=True, repr=False)
class Total(Row):
    """Sums over the collectives that share ``key``; bytes are summed over executions.

    ``wire_bytes`` is what one device sends. Only one branch of a conditional runs: the figures
    are the most possible, ``least_…`` the least (``base.branches``). ``is_lower_bound``: some
    have unknown wire bytes, which are 0, or are in a loop of unknown trip count that runs at least
    once and counts once. ``is_one_trip``: some are in such a loop that may run 0 times, so that the
    figures are no bound. ``wire_is_unknown``: no wire bytes are known at all; ``wire_bytes`` is
    then 0.
    """

    key: tuple[str | None, ...]
    count: int
    executions: int
    payload_bytes: int
    wire_bytes: int
    least_executions: int
    least_payload_bytes: int
    least_wire_bytes: int
    is_lower_bound: bool
    wire_is_unknown: bool = False
    is_one_trip: bool = False

    @property
    def known_wire_bytes(self) -> int | None:
        """``wire_bytes``, or None if none of it is known."""
        return None if self.wire_is_unknown else self.wire_bytes

    @property
    def is_range(self) -> bool:
        """Whether figures depend on which branches run."""
        return self.least_executions != self.executions or self.least_wire_bytes != self.wire_bytes


def total_of(key: tuple[str | None, ...], rows: list[Collective]) -> Total:
    """Sums of ``rows``, all of which share ``key``."""
    runs, payload, wire = (
        span([(r.branches, value(r)) for r in rows])
        for value in (
            lambda r: r.counted,
            lambda r: r.total_payload_bytes,
            lambda r: r.total_wire_bytes or 0,
        )
    )
    one_trip = any(r.may_not_run for r in rows)
    return Total(
        key,
        count=len(rows),
        executions=int(runs[1]),
        payload_bytes=int(payload[1]),
        wire_bytes=int(wire[1]),
        least_executions=int(runs[0]),
        least_payload_bytes=int(payload[0]),
        least_wire_bytes=int(wire[0]),
        is_lower_bound=not one_trip and any(r.is_unknown or r.wire_bytes is None for r in rows),
        wire_is_unknown=not wire[1] and any(r.wire_bytes is None for r in rows),
        is_one_trip=one_trip,
    )
