"""A page whose names, events and labels are all hostile: every panel is opened.

Text of a dump, of a trace and of a table reaches the page as text only: no element is created
from it, nothing is loaded, nothing runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "project"))
from test_hostile_data import BAD, hostile_capture
from xplane_builder import TraceBuilder

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Directional embeddings, overrides and isolates (Unicode Standard Annex 9)
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
MADE = """() => {
  const found = [];
  const visit = (node) => {
    for (const e of node.querySelectorAll("*")) {
      if (/^(img|script|iframe|object|embed|link|style)$/i.test(e.tagName)) found.push(e.tagName);
      for (const a of e.attributes) {
        if (/^on/i.test(a.name) || /^\\s*javascript:/i.test(a.value)) found.push(a.name);
      }
      if (e.shadowRoot) visit(e.shadowRoot);
    }
  };
  visit(document.getElementById("hloscope").shadowRoot);
  return found;
}"""


@pytest.fixture(scope="module")
def hostile(renderer: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("hostile")
    cap = hostile_capture()
    cap.hardware = "tpu-v5e"
    made = TraceBuilder(BAD)
    made.tpu(cap.module, 7)
    plane = made.plane("/device:TPU:0")
    kind = plane.event_id(f"%{BAD} = f32[8] tanh()", BAD, program_id=7, hlo_category=BAD)
    plane.event("XLA Ops", kind, 10_000_000_000, 5_000_000)
    plane.event(BAD, plane.event_id(f"{BAD}(8)"), 10_000_000_000, 5_000_000)
    (folder / "host.xplane.pb").write_bytes(made.serialized())
    cap.add_profile(folder)
    numbers = {i.name: 1.0 for i in cap.module.entry.instructions}
    cap.add_values(numbers | {BAD: 2.0}, label=BAD, unit=BAD)
    return cap.to_html(folder / "page.html").as_uri()


def test_every_panel_shows_it_as_text(
    open_page: Callable[..., Page], hostile: str, shots: Path, page_errors: list[str]
) -> None:
    page = open_page(hostile)
    page.wait_for_selector(".graph canvas")
    tabs = page.get_by_role("tab")
    names = [t for t in tabs.all_inner_texts() if t]
    assert {"Findings", "Details", "Cost", "Collectives", "Measured", "Timeline"} <= set(names)
    shown = ""
    for name in names:
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_timeout(150)
        shown += page.locator(".panel").inner_text()
        assert page.evaluate(MADE) == [], name
    for option in page.locator(".toolbar select option").all():
        page.locator(".toolbar select").first.select_option(option.get_attribute("value"))
        page.wait_for_timeout(50)
    assert "<img src=x" in shown, "hostile names are shown as they are"
    whole = shown + page.locator("#hloscope").inner_text()
    assert not set(whole) & set(TURNING), "nothing turns the direction of what stands around it"
    assert "\\u202e" in whole
    page.screenshot(path=shots / "hostile.png")
    assert page.evaluate(MADE) == []
    assert page_errors == []
