"""The card of one collective, as ``print(cap.why(collective))`` shows it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from ...hlo.texts.places import whole_place
from ..text.results import Row
from ..text.units import printed
from .compiler_messages import CompilerMessage
from .provenance_origins import AxisOrigin


@dataclass(frozen=True, slots=True, repr=False)
class Why(Row):
    """Why one collective exists. ``print`` shows it in a few lines; ``str`` is the same text.

    It holds the op before partitioning that it was made for (``op_name``, ``opcode``, ``shape``,
    ``line``), which of its operands moves, how that is sharded, what the op needs or makes, and
    where the shardings came from. ``unknown`` says what could not be found, or ''.
    """

    op_name: str = ""
    opcode: str = ""
    shape: str = ""
    line: str = ""
    operand: str = ""  # which operand moves: "params['w1']", "result of tanh"
    had: str = ""  # its sharding
    needs: str = ""  # what the op needs or makes
    origins: tuple[AxisOrigin, ...] = ()
    unknown: str = ""
    by_user: bool = False  # the program requests it by name, at ``line``
    by_autodiff: bool = False  # then: the derivative of what is at ``line`` does
    asked_as: str = ""  # "all_gather", where XLA wrote another kind of collective for it
    callers: tuple[str, ...] = ()  # lines that called ``line``, nearest first
    parts: tuple[Why, ...] = ()  # if it serves several ops: the card of each
    listed: str = ""  # the line that tables show for it, if different, and why
    # set by ``cap.why`` only:
    collective: str = field(default="", compare=False)  # "all-gather.3 over model"
    messages: tuple[CompilerMessage, ...] = field(default=(), compare=False)

    @property
    def is_known(self) -> bool:
        return not self.unknown

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; each origin is a dict, ``unknown`` None if the card is known."""
        return {
            "collective": self.collective or None,
            "by_user": self.by_user,
            "by_autodiff": self.by_autodiff,
            "op_name": self.op_name,
            "opcode": self.opcode,
            "shape": self.shape,
            "line": self.line,
            "line_listed": self.listed or None,
            "asked_as": self.asked_as or None,
            "callers": list(self.callers),
            "operand": self.operand,
            "had": self.had,
            "needs": self.needs,
            "origins": [
                {
                    "axis": o.axis,
                    "of": o.of,
                    "kind": o.kind,
                    "name": o.name,
                    "line": o.line,
                    "via": list(o.via),
                }
                for o in self.origins
            ],
            "parts": [part.to_dict() for part in self.parts],
            "unknown": self.unknown or None,
            "messages": [str(m) for m in self.messages],
        }

    def __str__(self) -> str:
        rows = [*self._rows(), *([("in tables at", self.listed)] if self.listed else [])]
        rows += [("XLA warned", str(m)) for m in self.messages]
        width = max(len(name) for name, _ in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows]
        return printed([self.collective or "why", *lines])

    def _what(self) -> str:
        if self.shape.endswith(" arrays"):
            return f", {self.shape} combined"
        return f" {self.shape}" if self.shape else ""

    def _rows(self) -> list[tuple[str, str]]:
        if self.by_user:
            return self._asked()
        if self.unknown:
            return [("unknown", self.unknown), *self._made_for()]
        rows = [("requested by", f"{self.opcode}{self._what()}{_at(self.line)}"), *self._called()]
        rows += self._others()
        rows += [
            ("operand", f"{self.operand}: {self.had}"),
            ("needed", self.needs.removeprefix("needed as ")),
        ]
        return rows + [
            (("because of" if k == 0 else ""), _said(o)) for k, o in enumerate(self.origins)
        ]

    def _asked(self) -> list[tuple[str, str]]:
        """Rows of one requested by name: its line, or every line if several were combined."""
        lines = {(p.line, p.by_autodiff, p.by_user, p.unknown): p for p in self.parts or (self,)}
        rows = []
        for k, part in enumerate(lines.values()):
            how = "by autodiff, for the gradient of what is" if part.by_autodiff else "by name"
            if not part.by_user:  # the partitioner's, combined with what was requested
                how = f"by {part.opcode}{part._what()}"
            told = f"unknown: {part.unknown}" if part.unknown else f"{how}{_at(part.line)}"
            if part.asked_as:
                told += f" as {part.asked_as}, of which XLA made this"
            rows.append(("" if k else "requested", told))
            rows += part._called()
        return rows

    def _made_for(self) -> list[tuple[str, str]]:
        """Rows of what is known about an unknown one."""
        name = self.op_name.rpartition("/")[2]
        rows = [("named after", f"{name}{_at(self.line)}"), *self._called()] if name else []
        return rows + [
            ("" if k else "known about them", p.brief) for k, p in enumerate(self.parts[:_MOST])
        ]

    def _called(self) -> list[tuple[str, str]]:
        return [("called from", " ← ".join(self.callers))] if self.callers else []

    def _others(self) -> list[tuple[str, str]]:
        rows = [("and by" if k == 0 else "", b) for k, b in enumerate(self.others[:_MOST])]
        left = len(self.others) - _MOST
        return [*rows, ("", f"and {left} more")] if left > 0 else rows

    @property
    def others(self) -> tuple[str, ...]:
        """The other ops that it serves, without duplicates: ``dot f32[8,16] at train.py:31``.

        For one that the program requests by name, the other lines.
        """
        if self.by_user:
            lines = dict.fromkeys(p.line for p in self.parts)
            return tuple(line for line in lines if line != self.line)
        each = {(p.brief, p.callers): p for p in self.parts}
        alike = Counter(brief for brief, _ in each)  # one line of a helper, several callers
        if self.parts and not self.unknown:
            each.pop((replace(self, shape=self.parts[0].shape).brief, self.callers), None)
        return tuple(
            f"{brief} called from {whole_place(callers[0])}"
            if callers and alike[brief] > 1
            else brief
            for brief, callers in each
        )

    @property
    def brief(self) -> str:
        """``dot f32[8,16] at train.py:31``."""
        if self.by_user:
            return f"{'autodiff' if self.by_autodiff else 'by name'}{_at(self.line)}"
        return f"{self.opcode}{self._what()}{_at(self.line)}"


_MOST = 12  # most lines of a card for other ops


def _at(line: str) -> str:
    return f" at {whole_place(line)}" if line else ""


def _said(o: AxisOrigin) -> str:
    what = f"{o.of}'s {o.axis}" if o.axis else o.of
    if o.kind == "unknown":
        return f"{what} from unknown"
    who = f"{o.kind} {o.name}"
    if o.kind == "constraint":
        helper = f" (called from {whole_place(o.stack[1])})" if len(o.stack) > 1 else ""
        who = f"{o.name or 'the constraint'} at {whole_place(o.line)}{helper}"
    return f"{what} from {who}" + (f", along {' ← '.join(o.via[:12])}" if o.via else "")
