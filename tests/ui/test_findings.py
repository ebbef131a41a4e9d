"""The Findings panel opens first, says what a finding costs, and leads to its boxes and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import hloscope as hs
from hloscope.hlo import Target
from test_cost_memory import ROOT, SOURCE

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]

CALLS = """HloModule jit_step, is_scheduled=true

ENTRY %main (x: f32[512,512]) -> f32[512,512] {
  %x = f32[512,512]{1,0} parameter(0)
  %sine = f32[512,512]{1,0} sine(%x), metadata={op_name="jit(step)/sin" source_file="/home/me/train.py" source_line=4}
  %print.1 = (f32[]) custom-call(%sine), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true, metadata={op_name="jit(step)/<img src=x onerror=alert(1)>" source_file="/home/me/train.py" source_line=5}
  ROOT %cosine = f32[512,512]{1,0} cosine(%sine), metadata={op_name="jit(step)/cos" source_file="/home/me/train.py" source_line=4}
}
"""  # noqa: E501


def opened(text: str, renderer: Path, open_page: OpenPage, path: Path) -> Page:
    read = hs.read(text)
    cap = hs.Capture(read.module, Target(sources={"/home/me/train.py": SOURCE}))
    page = open_page(cap.to_html(path).as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Findings", exact=True).wait_for()
    return page


def test_findings_open_first_and_lead_to_the_boxes_and_the_line(renderer, open_page, tmp_path):
    page = opened(CALLS, renderer, open_page, tmp_path / "step.html")
    tab = page.get_by_role("tab", name="Findings", exact=True)
    assert tab.get_attribute("aria-selected") == "true"
    card = page.locator(".finding").first
    assert "The step calls back into the host 1 times" in card.inner_text()
    assert card.locator("details").first.get_attribute("open") is not None
    assert "return jax.lax.psum(h)" in card.inner_text()
    card.locator("button.finding-title").click()
    lit = page.evaluate(f"[...({ROOT}).hloscope.store.get('highlight').instructions]")
    names = page.evaluate(f"(rows) => rows.map((i) => ({ROOT}).hloscope.model.name(i))", lit)
    assert names == ["print.1"]
    card.get_by_role("button", name="train.py:5").click()
    assert page.get_by_role("tab", name="Source").get_attribute("aria-selected") == "true"


def test_a_click_in_the_graph_shows_details_until_a_panel_is_chosen(renderer, open_page, tmp_path):
    page = opened(CALLS, renderer, open_page, tmp_path / "step.html")
    page.evaluate(f"({ROOT}).hloscope.store.select({{kind: 'instruction', index: 1}})")
    details = page.get_by_role("tab", name="Details", exact=True)
    assert details.get_attribute("aria-selected") == "true"
    findings = page.get_by_role("tab", name="Findings", exact=True)
    findings.click()
    page.evaluate(f"({ROOT}).hloscope.store.select({{kind: 'instruction', index: 2}})")
    assert findings.get_attribute("aria-selected") == "true"


def test_nothing_to_report_is_said(renderer, open_page, tmp_path):
    quiet = "\n".join(x for x in CALLS.splitlines() if "custom-call" not in x)
    page = opened(quiet, renderer, open_page, tmp_path / "step.html")
    assert page.locator(".finding").count() == 0
    assert "Nothing to report" in page.locator(".panel").inner_text()
