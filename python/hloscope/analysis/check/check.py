"""Budgets: limits that a program must keep, for tests and CI.

    budgets ─▶ RULES (rules.py), each ─▶ breaches   over the limit
                                              problems   cannot be evaluated, so do not pass

A new budget needs a field in result.py, a keyword here and a rule in rules.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..base.captured import Captured
from .result import MAIN_MEMORY, BudgetError, Budgets, CheckReport, Size
from .rules import RULES, Result
from .sizes import parse_size

TOLERANCE = Budgets().tolerance


def budgets(
    *,
    max_peak: Size | Mapping[str, Size] | None = None,
    max_wire_bytes: Size | Mapping[str, Size] | None = None,
    forbid: str | Sequence[str] = (),
    max_instructions: int | None = None,
    require_donation: bool | str | Sequence[str] = False,
    require: str | Sequence[str] = (),
    baseline: str | os.PathLike[str] | None = None,
    tolerance: float | str = TOLERANCE,
) -> Budgets:
    """``Budgets`` from what a user writes. Raises ``ValueError`` for an invalid size."""
    if max_instructions is not None and (
        isinstance(max_instructions, bool) or not isinstance(max_instructions, int)
    ):
        raise ValueError(f"max_instructions is a whole number, not {max_instructions!r}")
    if max_instructions is not None and max_instructions < 0:
        raise ValueError(f"max_instructions cannot be below 0: {max_instructions}")
    if isinstance(require_donation, str):
        require_donation = (require_donation,)
    return Budgets(
        max_peak=_sizes(max_peak, MAIN_MEMORY),
        max_wire_bytes=_sizes(max_wire_bytes, "total"),
        forbid=(forbid,) if isinstance(forbid, str) else tuple(forbid),
        max_instructions=max_instructions,
        require_donation=require_donation
        if isinstance(require_donation, bool)
        else tuple(require_donation),
        require=_required(require),
        baseline=None if baseline is None else os.fspath(baseline),
        tolerance=_part(tolerance),
    )


def _part(given: float | str) -> float:
    """0.05 of ``0.05`` or ``"5%"``. Raises ``ValueError``."""
    try:
        text = str(given).strip()
        part = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 <= part < 100:
        raise ValueError(f'tolerance is a part such as 0.05 or "5%", not {given!r}')
    return part


def _required(given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name != "proved":
            raise ValueError(f'require is "proved", not {name!r}')
    return names


def _sizes(given: Size | Mapping[str, Size] | None, single: str) -> dict[str, int] | None:
    """Sizes by name; one without a name gets the name ``single``."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {str(name): parse_size(size) for name, size in given.items()}
    return {single: parse_size(given)}


def check(  # noqa: PLR0913  # a keyword for each budget
    cap: Captured,
    *,
    max_peak: Size | Mapping[str, Size] | None = None,
    max_wire_bytes: Size | Mapping[str, Size] | None = None,
    forbid: str | Sequence[str] = (),
    max_instructions: int | None = None,
    require_donation: bool | str | Sequence[str] = False,
    require: str | Sequence[str] = (),
    baseline: str | os.PathLike[str] | None = None,
    tolerance: float | str = TOLERANCE,
    raises: bool = False,
) -> CheckReport:
    """Checks a capture against limits; ``raises``: ``AssertionError`` if one is not kept.

    Sizes are bytes of one device, or text such as "12GiB". ``max_peak`` is of the device's main
    memory, or by memory: ``{"HBM": "16GiB", "host": "64GiB"}``. ``max_wire_bytes`` is by mesh axis
    (a collective over ``data+model`` counts for both) or one number for all. ``forbid`` names
    collectives ("all-gather", "all-gather over model"), element types ("f64"), opcodes,
    "host-transfer", "findings" or the rule of one ("gathered-twice"). ``require_donation``:
    True if every donated argument must be used for an output, or patterns of arguments
    ("params*") that must be. ``require="proved"``: the advice of no finding gains more than 5 %
    when it is tried, which compiles; changes that may alter values are left out. ``baseline`` is a
    file of ``hs.write_baseline``: peak memory, wire bytes, instructions and the modelled step may
    exceed what is stored by the part ``tolerance`` (0.02, or "2%").

    >>> hs.check(cap, max_peak="12GiB", forbid=["all-gather over model"], raises=True)
    """
    __tracebackhide__ = True  # pytest then ends at the user's line
    found = budgets(
        max_peak=max_peak,
        max_wire_bytes=max_wire_bytes,
        forbid=forbid,
        max_instructions=max_instructions,
        require_donation=require_donation,
        require=require,
        baseline=baseline,
        tolerance=tolerance,
    )
    report = check_budgets(cap, found)
    if raises and not report:
        raise BudgetError(str(report))
    return report


def check_budgets(cap: Captured, wanted: Budgets) -> CheckReport:
    """The report for ``Budgets``."""
    result = Result()
    for rule in RULES:
        rule(cap, wanted, result)
    return CheckReport(
        cap.title, tuple(result.breaches), tuple(result.problems), tuple(result.kept)
    )
