"""Budgets: limits that a program must keep, for tests and CI.

    budgets ─▶ RULES (rules.py), each ─▶ breaches   over the limit
                                              problems   cannot be evaluated, so do not pass

A new budget needs a field in result.py, a keyword here and a rule in rules.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.captured import Captured
from .result import MAIN_MEMORY, BudgetError, Budgets, CheckReport, Size
from .rules import RULES, Result
from .sizes import parse_size


def budgets(
    *,
    max_peak: Size | Mapping[str, Size] | None = None,
    max_wire_bytes: Size | Mapping[str, Size] | None = None,
    forbid: str | Sequence[str] = (),
    max_instructions: int | None = None,
    require_donation: bool | str | Sequence[str] = False,
    require: str | Sequence[str] = (),
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
    )


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


def check(
    cap: Captured,
    *,
    max_peak: Size | Mapping[str, Size] | None = None,
    max_wire_bytes: Size | Mapping[str, Size] | None = None,
    forbid: str | Sequence[str] = (),
    max_instructions: int | None = None,
    require_donation: bool | str | Sequence[str] = False,
    require: str | Sequence[str] = (),
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
    when it is tried, which compiles; changes that may alter values are left out.

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
