"""Tables and remarks of reports, at the numbers of rows where they change."""

from __future__ import annotations

import numpy as np
import pytest
from hloscope.analysis.diff.page import LIMIT, SHOWN, _table
from hloscope.analysis.report.own_values import OwnValues


@pytest.mark.parametrize(
    ("rows", "shown", "more", "left_out"),
    [
        (1, 1, "", ""),
        (SHOWN + 2, SHOWN + 2, "", ""),
        (SHOWN + 3, SHOWN + 3, "3 more", ""),
        (LIMIT, LIMIT, f"{LIMIT - SHOWN:,} more", ""),
        (LIMIT + 1, LIMIT, f"{LIMIT + 1 - SHOWN:,} more", "and 1 more"),
    ],
)
def test_rows_of_a_table(rows: int, shown: int, more: str, left_out: str) -> None:
    page = _table("Lines", ("a", "b"), [(f"r{k}", "x") for k in range(rows)], " n")
    assert page.count("<td>r") == shown
    assert page.count('<td class="n">x') == shown
    assert f"<h2>Lines ({rows:,})</h2>" in page
    assert ("<details>" in page) == bool(more)
    assert not more or f"<summary>{more}</summary>" in page
    assert ("<p>" in page) == bool(left_out)
    assert not left_out or f"<p>{left_out}</p>" in page


def test_a_table_of_nothing() -> None:
    assert _table("Lines", ("a",), [], "") == ""
    assert "<h2>Lines</h2>" in _table("Lines", ("a",), [("r",)], "", across=False)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("", ""),
        ("a", "own: no instruction is called a"),
        ("a b c", "own: no instruction is called a, b, c"),
        ("a b c d", "own: no instruction is called a, b, c and 1 more"),
        ("a b c d e", "own: no instruction is called a, b, c and 2 more"),
    ],
)
def test_names_that_match_nothing(names: str, said: str) -> None:
    found = OwnValues("own", "", np.array([1.0, np.nan, 2.0]), tuple(names.split()))
    assert found.remark == said
    assert found.matched == 2
