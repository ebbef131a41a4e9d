"""What ``check`` gets and returns: budgets, breaches, the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...hlo.texts.places import whole_place
from ..text.results import Row
from ..text.units import printed

Size = int | str  # bytes, or "12GiB"
MAIN_MEMORY = "device"  # the memory that ``max_peak`` is for if it names none


class BudgetError(AssertionError):
    """A budget is exceeded or cannot be evaluated; the message has one line for each."""


@dataclass(frozen=True, slots=True, repr=False)
class Breach(Row):
    """One limit that is not kept. ``file`` and ``line`` are of the user's source; '' and 0 if
    unknown."""

    budget: str  # "max_peak", "forbid: all-gather over model"
    message: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        at = f"{whole_place(f'{self.file}:{self.line}')}: " if self.file else ""
        return f"{at}{self.budget}: {self.message}"


@dataclass(frozen=True, slots=True, repr=False)
class CheckReport(Row):
    """What ``hs.check`` returns; true if every budget was evaluated and is kept."""

    title: str
    breaches: tuple[Breach, ...]
    problems: tuple[Breach, ...]  # budgets that cannot be evaluated
    kept: tuple[str, ...]  # "max_peak: 9.1 GiB of 12.0 GiB"

    def __bool__(self) -> bool:
        return not self.breaches and not self.problems

    @property
    def status(self) -> int:
        """The exit status of the command: 0 kept, 1 a breach, 2 something cannot be evaluated."""
        return 2 if self.problems else 1 if self.breaches else 0

    def to_dict(self) -> dict[str, Any]:
        return {"ok": bool(self), **asdict(self)}

    def __str__(self) -> str:
        lines = [str(b) for b in self.breaches]
        lines += [f"cannot be evaluated: {p}" for p in self.problems]
        lines += [f"ok: {k}" for k in self.kept]
        return printed([f"{self.title}:", *(f"  {line}" for line in lines)])


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits, all optional. Sizes are bytes per device."""

    max_peak: Mapping[str, int] | None = None  # by memory; MAIN_MEMORY is the main one
    max_wire_bytes: Mapping[str, int] | None = None  # by mesh axis; "total" is all
    forbid: tuple[str, ...] = ()
    max_instructions: int | None = None
    require_donation: bool | tuple[str, ...] = False
    require: tuple[str, ...] = ()  # "proved"
    baseline: str | None = None  # a file of ``write_baseline``
    tolerance: float = 0.02  # part of a stored figure by which it may be exceeded

    def __bool__(self) -> bool:
        return replace(self, tolerance=Budgets().tolerance) != Budgets()
