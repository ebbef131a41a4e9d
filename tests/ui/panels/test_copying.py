"""Every figure of a panel can be copied: alone, with its row, or as a table of tabs and lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import hloscope as hs
from boxes_program import program

if TYPE_CHECKING:
    from playwright.sync_api import Page

KEPT = """Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => {
  window.copied = text; }}});"""


def test_a_figure_its_row_and_its_table(
    renderer: Path, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    cap = hs.read(program(), hardware="tpu-v5e")
    path = cap.to_html(tmp_path / "f.html")
    page = open_page(path.as_uri(), width=1500, height=950, script=KEPT)
    page.get_by_role("tab", name="Cost", exact=True).click()
    value = page.locator(".totals dd").first
    value.click(button="right")
    page.get_by_role("menuitem", name=f"Copy “{value.inner_text()}”").click()
    assert page.evaluate("copied") == value.inner_text()
    value.click(button="right")
    page.get_by_role("menuitem", name="Copy the table").click()
    lines = page.evaluate("copied").splitlines()
    assert [line.split("\t")[0] for line in lines][:2] == ["FLOPs", "Bytes accessed"]
    cell = page.locator(".figures-table tbody td.num").nth(1)
    cell.click(button="right")
    page.get_by_role("menuitem", name="Copy the row").click()
    assert cell.inner_text() in page.evaluate("copied").split("\t")
    bar = page.locator(".cost .bars .bar").first
    bar.click(button="right")
    page.get_by_role("menuitem", name="Copy the table").click()
    assert page.evaluate("copied").startswith("compute\t")
    assert page.get_by_role("menu").count() == 0
