"""The card of one collective: what ``print(cap.why(collective))`` shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .compiler_messages import CompilerMessage
from .provenance_origins import Origin


@dataclass(frozen=True, slots=True)
class Why:
    """Why one collective is there. ``print`` shows it in a few lines, ``str`` is the same text.

    The op before partitioning that it was made for (``op_name``, ``opcode``, ``shape``,
    ``line``), which of its operands moves, how that is cut and what the op needs or makes, and
    who said so. ``unknown`` says what could not be found, or ''.
    """

    op_name: str = ""
    opcode: str = ""
    shape: str = ""
    line: str = ""
    operand: str = ""  # which operand moves: "params['w1']", "result of tanh"
    had: str = ""  # its sharding
    needs: str = ""  # what the op needs or makes
    origins: tuple[Origin, ...] = ()
    unknown: str = ""
    by_user: bool = False  # the program asks for it by name, at ``line``
    # of ``cap.why`` alone:
    collective: str = field(default="", compare=False)  # "all-gather.3 over model"
    messages: tuple[CompilerMessage, ...] = field(default=(), compare=False)

    @property
    def is_known(self) -> bool:
        return not self.unknown

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; ``origins`` one dict each, ``unknown`` None where it is known."""
        return {
            "collective": self.collective or None,
            "by_user": self.by_user,
            "op_name": self.op_name,
            "opcode": self.opcode,
            "shape": self.shape,
            "line": self.line,
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
            "unknown": self.unknown or None,
            "messages": [str(m) for m in self.messages],
        }

    def __str__(self) -> str:
        rows = [*self._rows(), *(("XLA warned", str(m)) for m in self.messages)]
        width = max(len(name) for name, _ in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows]
        return "\n".join([self.collective or "why", *lines])

    def _what(self) -> str:
        return f", {self.shape} combined" if self.shape.endswith(" arrays") else f" {self.shape}"

    def _rows(self) -> list[tuple[str, str]]:
        if self.by_user:
            return [("asked for", f"by name{_at(self.line)}")]
        if self.unknown:
            return [("unknown", self.unknown)]
        rows = [
            ("asked for by", f"{self.opcode}{self._what()}{_at(self.line)}"),
            ("operand", f"{self.operand}: {self.had}"),
            ("needed", self.needs.removeprefix("needed as ")),
        ]
        return rows + [
            (("who said so" if k == 0 else ""), _said(o)) for k, o in enumerate(self.origins)
        ]

    __repr__ = __str__


def _at(line: str) -> str:
    return f" at {line}" if line else ""


def _said(o: Origin) -> str:
    what = f"{o.of}'s {o.axis}" if o.axis else o.of
    if o.kind == "unknown":
        return f"{what} from unknown"
    who = f"the constraint at {o.line}" if o.kind == "constraint" else f"{o.kind} {o.name}"
    return f"{what} from {who}" + (f", along {' ← '.join(o.via[:12])}" if o.via else "")
