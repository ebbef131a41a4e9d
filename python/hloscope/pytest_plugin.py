"""A pytest fixture that holds programs to budgets.

def test_step_fits(hlo_check):
    hlo_check(jax.jit(step), params, batch, max_peak="12GiB", forbid=["f64"])
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .analysis.check.result import CheckReport

_BUDGETS = (
    "max_peak", "max_wire_bytes", "forbid", "max_instructions", "require_donation", "require",
    "baseline",
)  # fmt: skip


@pytest.fixture
def hlo_check() -> Callable[..., CheckReport]:
    """``hlo_check(program, *arguments, **budgets)``: fails the test when a budget is not met.

    ``program`` is a Capture, or what ``hs.capture`` takes with its arguments; keywords that are
    not budgets of ``hs.check`` go to ``hs.capture``. Returns the report.
    """

    def check(program: Any, *arguments: Any, **keywords: Any) -> CheckReport:
        __tracebackhide__ = True
        import hloscope as hs

        budgets = {k: keywords.pop(k) for k in _BUDGETS if k in keywords}
        if not budgets:
            near = [n for k in keywords for n in get_close_matches(k, _BUDGETS, 1, 0.7)]
            hint = f"; did you mean {near[0]}?" if near else ""
            raise TypeError(f"hlo_check needs a budget: {', '.join(_BUDGETS)}{hint}")
        if not isinstance(program, hs.Capture):
            program = hs.capture(program, *arguments, **keywords)
        elif arguments or keywords:
            raise TypeError("a Capture takes no arguments")
        report: CheckReport = hs.check(program, **budgets)
        if not report:
            pytest.fail(str(report), pytrace=False)
        return report

    return check
