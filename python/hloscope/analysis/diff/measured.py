"""Two programs with measured time compared: what became slower, by instruction, line and scope.

Every instruction of either side is in one row of each table, with the seconds that it adds to a
step itself: each table adds up to the measured step of both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...hlo import Instruction
from ...hlo.texts.places import base_name, is_cell, short_place
from ..base.captured import Captured
from ..base.lines.lines import lines
from ..base.lines.op_name import parse_op_name
from ..measured.measured import Measured
from ..text.results import Row, Rows
from ..text.units import duration, grid, printed, short

Pairs = Sequence[tuple[int, int]]
_SHOWN = 8
_DEPTH = 2  # how many scopes name a place
_NO_LINE, _NO_SCOPE = "no line", "no scope"


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredChange(Row):
    """Measured seconds a step in both programs; None where it is not in one of them."""

    name: str
    a_seconds: float | None
    b_seconds: float | None

    @property
    def change(self) -> float:
        """Seconds that the second program takes longer."""
        return (self.b_seconds or 0.0) - (self.a_seconds or 0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "a_seconds": self.a_seconds,
            "b_seconds": self.b_seconds,
            "change": self.change,
        }

    def __str__(self) -> str:
        seconds = self.a_seconds, self.b_seconds
        a, b = ("not there" if s is None else duration(s) for s in seconds)
        return f"{self.name}: {a} → {b} ({_signed(self.change)})"


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredDiff(Rows[MeasuredChange]):
    """The rows are instructions, what became slower most first; so are ``lines`` and the others.

    ``total``: seconds of a step of each program, in operations, to which each table adds up.
    ``between``: seconds of a step in which no operation ran, None if a trace does not tell.
    """

    rows: tuple[MeasuredChange, ...]
    total: tuple[float, float]
    between: tuple[float | None, float | None]
    steps: tuple[int, int]
    lines: tuple[MeasuredChange, ...] = field(repr=False, default=())
    scopes: tuple[MeasuredChange, ...] = field(repr=False, default=())
    opcodes: tuple[MeasuredChange, ...] = field(repr=False, default=())

    COLUMNS = ("name", "a_seconds", "b_seconds", "change")

    def _totals(self) -> dict[str, Any]:
        return {
            "total": list(self.total),
            "between": list(self.between),
            "steps": list(self.steps),
            "lines": [row.to_dict() for row in self.lines],
            "scopes": [row.to_dict() for row in self.scopes],
            "opcodes": [row.to_dict() for row in self.opcodes],
        }

    def __str__(self) -> str:
        a, b = self.total
        share = f", {b / a - 1:+.1%}" if a else ""
        lines = [
            f"measured step: {duration(a)} → {duration(b)} ({_signed(b - a)}{share};"
            f" {self.steps[0]:,} and {self.steps[1]:,} steps)"
        ]
        if self.between[0] is not None and self.between[1] is not None:
            gap = duration(self.between[0]), duration(self.between[1])
            lines.append(f"between operations: {gap[0]} → {gap[1]}")
        for title, rows in (
            ("by operation", self.rows), ("by source line", self.lines),
            ("by scope", self.scopes), ("by opcode", self.opcodes),
        ):  # fmt: skip
            shown = list(_most_changed(rows))
            if shown:
                lines.append(f"measured {title}")
                lines += grid(("", "a", "b", "change"), shown)
        return printed(lines)


def measured_diff(
    a: Captured, b: Captured, measured: tuple[Measured, Measured], pairs: Pairs
) -> MeasuredDiff:
    """``pairs``: matching instructions of both programs, by index."""
    left, right = (m.step_seconds.mean(axis=0) for m in measured)
    partner = dict(pairs)
    taken = set(partner.values())
    rows = [
        _row(_named(a.module.instructions[n], b.module.instructions[m]), (left, n), (right, m))
        for n, m in pairs
        if left[n] or right[m]
    ]
    rows += [
        MeasuredChange(f"{a.module.instructions[n].name} (only in a)", float(left[n]), None)
        for n in np.flatnonzero(left).tolist()
        if n not in partner
    ]
    rows += [
        MeasuredChange(f"{b.module.instructions[m].name} (only in b)", None, float(right[m]))
        for m in np.flatnonzero(right).tolist()
        if m not in taken
    ]
    walls = [m.wall_seconds for m in measured]
    total = measured[0].total_seconds, measured[1].total_seconds
    between = tuple(
        max(wall - whole, 0.0) if wall > 0 else None
        for wall, whole in zip(walls, total, strict=True)
    )
    grouped = [
        _grouped((a, b), (left, right), key)
        for key in (_line_of, _scope_of, lambda p: [i.opcode for i in p.module.instructions])
    ]
    return MeasuredDiff(
        _slower_first(rows),
        total,
        (between[0], between[1]),
        (measured[0].steps, measured[1].steps),
        *grouped,
    )


def _row(name: str, a: tuple[Any, int], b: tuple[Any, int]) -> MeasuredChange:
    return MeasuredChange(name, float(a[0][a[1]]), float(b[0][b[1]]))


def _named(a: Instruction, b: Instruction) -> str:
    return a.name if a.name == b.name else f"{a.name} → {b.name}"


def _grouped(
    sides: tuple[Captured, Captured],
    seconds: tuple[Any, Any],
    key: Callable[[Captured], Sequence[str]],
) -> tuple[MeasuredChange, ...]:
    sums: list[dict[str, float]] = []
    for side, taken in zip(sides, seconds, strict=True):
        keys = key(side)
        found: dict[str, float] = {}
        for n in np.flatnonzero(taken).tolist():
            found[keys[n]] = found.get(keys[n], 0.0) + float(taken[n])
        sums.append(found)
    a, b = sums
    names = {**a, **b}
    return _slower_first([MeasuredChange(n, a.get(n), b.get(n)) for n in names])


def _line_of(p: Captured) -> list[str]:
    """The user's line of each instruction: with its text, so that an edit above changes nothing."""
    known = lines(p.module)
    texts = {file: text.splitlines() for file, text in p.target.sources.items()}
    out = []
    for i in p.module.instructions:
        at = known.of(i)
        if at is None:
            out.append(_NO_LINE)
            continue
        code = texts.get(at.file, [])
        text = code[at.line - 1].strip() if 0 < at.line <= len(code) else ""
        file = "notebook cell" if is_cell(at.file) else base_name(at.file)
        out.append(f"{file}: {text[:80]}" if text else short_place(at.file, at.line))
    return out


def _scope_of(p: Captured) -> list[str]:
    paths = [parse_op_name(i.op_name) for i in p.module.instructions]
    return [
        "/".join(part.strip("\x1f()") for part in path[:_DEPTH]) if path else _NO_SCOPE
        for path in paths
    ]


def _slower_first(rows: Sequence[MeasuredChange]) -> tuple[MeasuredChange, ...]:
    return tuple(sorted(rows, key=lambda r: (-r.change, r.name)))


def _most_changed(rows: Sequence[MeasuredChange]) -> Iterator[tuple[str, str, str, str]]:
    """The rows that changed most in either direction, slower ones first; as text."""
    most = sorted(rows, key=lambda r: -abs(r.change))[:_SHOWN]
    for row in _slower_first(most):
        a, b = ("-" if s is None else duration(s) for s in (row.a_seconds, row.b_seconds))
        if row.change:
            yield short(row.name), a, b, _signed(row.change)


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "-" if seconds < 0 else "±"
    return f"{sign}{duration(abs(seconds))}"
