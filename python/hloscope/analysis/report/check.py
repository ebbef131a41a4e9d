"""Budgets: limits a program must keep, for tests and CI.

    budgets ─▶ RULES (check_rules.py), each ─▶ breaches   over the limit
                                              problems   cannot be evaluated, so it is no pass

Adding a budget is one field here, one rule there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ...hlo import Module, Target
from .check_sizes import parse_size

Size = int | str  # bytes, or "12GiB"


class Program(Protocol):
    """What is checked: a Capture."""

    @property
    def module(self) -> Module: ...
    @property
    def target(self) -> Target: ...
    @property
    def title(self) -> str: ...


class BudgetError(AssertionError):
    """A budget is exceeded or cannot be evaluated; the message has one line for each."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One limit that is not kept. ``file`` and ``line`` are of the person's source; '' and 0
    unknown."""

    budget: str  # "max_peak", "forbid: all-gather over model"
    message: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}: " if self.file else ""
        return f"{at}{self.budget}: {self.message}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What ``hs.check`` returns; true when every budget was evaluated and is kept."""

    title: str
    breaches: tuple[Breach, ...]
    problems: tuple[Breach, ...]  # budgets that cannot be evaluated
    kept: tuple[str, ...]  # "max_peak: 9.1 GiB of 12.0 GiB"

    def __bool__(self) -> bool:
        return not self.breaches and not self.problems

    @property
    def status(self) -> int:
        """0 kept, 1 a breach, 2 something cannot be evaluated: what the command exits with."""
        return 2 if self.problems else 1 if self.breaches else 0

    def to_dict(self) -> dict[str, Any]:
        return {"ok": bool(self), **asdict(self)}

    def __str__(self) -> str:
        lines = [str(b) for b in self.breaches]
        lines += [f"cannot be evaluated: {p}" for p in self.problems]
        lines += [f"ok: {k}" for k in self.kept]
        return "\n".join([f"{self.title}:", *(f"  {line}" for line in lines)])

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits, all optional. Sizes are bytes of one device."""

    max_peak: int | None = None
    max_wire_bytes: Mapping[str, int] | None = None  # by mesh axis; "total" for all
    forbid: tuple[str, ...] = ()
    max_instructions: int | None = None
    require_donation: bool | tuple[str, ...] = False

    def __bool__(self) -> bool:
        return self != Budgets()


def budgets(
    *,
    max_peak: Size | None = None,
    max_wire_bytes: Size | Mapping[str, Size] | None = None,
    forbid: str | Sequence[str] = (),
    max_instructions: int | None = None,
    require_donation: bool | str | Sequence[str] = False,
) -> Budgets:
    """``Budgets`` of what a person writes. Raises ``ValueError`` for a size that is none."""
    wire: dict[str, int] | None = None
    if isinstance(max_wire_bytes, Mapping):
        wire = {str(axis): parse_size(size) for axis, size in max_wire_bytes.items()}
    elif max_wire_bytes is not None:
        wire = {"total": parse_size(max_wire_bytes)}
    if max_instructions is not None and (
        isinstance(max_instructions, bool) or not isinstance(max_instructions, int)
    ):
        raise ValueError(f"max_instructions is a whole number, not {max_instructions!r}")
    if max_instructions is not None and max_instructions < 0:
        raise ValueError(f"max_instructions cannot be below 0: {max_instructions}")
    if isinstance(require_donation, str):
        require_donation = (require_donation,)
    return Budgets(
        max_peak=None if max_peak is None else parse_size(max_peak),
        max_wire_bytes=wire,
        forbid=(forbid,) if isinstance(forbid, str) else tuple(forbid),
        max_instructions=max_instructions,
        require_donation=require_donation
        if isinstance(require_donation, bool)
        else tuple(require_donation),
    )


def check(
    cap: Program,
    *,
    max_peak: Size | None = None,
    max_wire_bytes: Size | Mapping[str, Size] | None = None,
    forbid: str | Sequence[str] = (),
    max_instructions: int | None = None,
    require_donation: bool | str | Sequence[str] = False,
    raises: bool = False,
) -> CheckReport:
    """Holds a capture to limits; with ``raises`` an ``AssertionError`` when one is not kept.

    Sizes are bytes of one device, or text such as "12GiB". ``max_wire_bytes`` is by mesh axis
    (a collective over ``data+model`` counts for both) or one number for all. ``forbid`` names
    collectives ("all-gather", "all-gather over model"), element types ("f64"), opcodes, or
    "host-transfer". ``require_donation``: True for every donated argument being used for an
    output, or patterns of arguments ("params*") that must be.

    >>> hs.check(cap, max_peak="12GiB", forbid=["all-gather over model"], raises=True)
    """
    __tracebackhide__ = True  # pytest then ends at the person's line
    found = budgets(
        max_peak=max_peak,
        max_wire_bytes=max_wire_bytes,
        forbid=forbid,
        max_instructions=max_instructions,
        require_donation=require_donation,
    )
    report = check_budgets(cap, found)
    if raises and not report:
        raise BudgetError(str(report))
    return report


def check_budgets(cap: Program, wanted: Budgets) -> CheckReport:
    """The report for ``Budgets``."""
    from .check_rules import RULES, Result

    result = Result()
    for rule in RULES:
        rule(cap, wanted, result)
    return CheckReport(
        cap.title, tuple(result.breaches), tuple(result.problems), tuple(result.kept)
    )
