"""The table of collectives: alike ones share a row, and its card adds them up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import hloscope as hs
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

LAYER = """  %t{n} = f32[512,512]{{1,0}} tanh(%r{m}), metadata={{op_name="jit(f)/layer_{n}/tanh"}}
  %r{n} = f32[512,512]{{1,0}} all-reduce(%t{n}), channel_id={n}, replica_groups=[1,8]<=[8], \
use_global_device_ids=true, to_apply=%sum, metadata={{op_name="jit(f)/layer_{n}/psum" \
source_file="f.py" source_line=7}}
"""
MODULE = """HloModule m, is_scheduled=true, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

ENTRY %main (r0: f32[512,512]) -> f32[512,512] {
  %r0 = f32[512,512]{1,0} parameter(0)
LAYERS  ROOT %out = f32[512,512]{1,0} negate(%r4)
}
"""


def test_the_card_of_a_folded_row_is_of_all_of_them(
    open_page: Callable[..., Page], page_errors: list[str], renderer: Path, tmp_path: Path
) -> None:
    layers = "".join(LAYER.format(n=n, m=n - 1) for n in range(1, 5))
    cap = hs.read(MODULE.replace("LAYERS", layers))
    assert cap.warnings == ()
    cap.hardware = "tpu-v5e"
    cap.to_html(tmp_path / "page.html")
    page = open_page((tmp_path / "page.html").as_uri(), width=1500, height=1000)
    page.get_by_role("tab", name="Collectives", exact=True).click(timeout=30_000)
    row = page.locator(".collective-row[data-collective]")
    assert row.count() == 1
    assert "all-reduce ×4" in row.inner_text()
    each = cap.collectives[0].total_wire_bytes
    assert each == 1_835_008  # 2 (8 - 1) / 8 of 1 MiB
    facts = page.locator(".card .facts").first.inner_text()
    assert "1.75 MiB per device and execution, 7 MiB in all" in facts
    assert "1 execution each" in facts
    assert page_errors == []


# Texts of cells that end beyond their row or are narrower than their text.
CUT = """() => {
  const root = document.getElementById("hloscope").shadowRoot;
  const cells = [...root.querySelectorAll(".collective-row span > *")];
  return cells.filter((cell) => {
    const end = cell.closest(".collective-row").getBoundingClientRect().right;
    return cell.getBoundingClientRect().right > end || cell.scrollWidth > cell.clientWidth + 1;
  }).map((cell) => cell.textContent);
}"""


def test_no_figure_is_cut_and_a_wait_for_links_in_use_is_said(
    open_page: Callable[..., Page], page_errors: list[str], renderer: Path, tmp_path: Path
) -> None:
    """An all-reduce right after a started permute waits for both transfers."""
    sent = (
        "  %start = (f32[4096,4096], f32[4096,4096]) collective-permute-start(%big), channel_id=9,"
        " source_target_pairs={{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7},{7,0}}\n"
    )
    done = "  %done = f32[4096,4096] collective-permute-done(%start)\n"
    text = MODULE.replace("LAYERS", sent + LAYER.format(n=1, m=0) + done).replace("%r4", "%r1")
    text = text.replace("(r0: f32[512,512])", "(r0: f32[512,512], big: f32[4096,4096])")
    text = text.replace(sent, "  %big = f32[4096,4096]{1,0} parameter(1)\n" + sent)
    cap = hs.read(text)
    assert cap.warnings == ()
    cap.hardware = "tpu-v5e"
    cap.to_html(tmp_path / "page.html")
    for width in (1500, 1280, 900):
        page = open_page((tmp_path / "page.html").as_uri(), width=width, height=1000)
        page.get_by_role("tab", name="Collectives", exact=True).click(timeout=30_000)
        page.locator(".collective-row", has_text="all-reduce").click()
        assert page.evaluate(CUT) == []
        table = page.locator(".collective-table")
        table.evaluate("(e) => { e.scrollLeft = e.scrollWidth; }")
        box, exposed = table.bounding_box(), table.locator(".first > .num").last.bounding_box()
        assert box is not None
        assert exposed is not None
        assert exposed["x"] + exposed["width"] <= box["x"] + box["width"]
        facts = page.locator(".card .facts").first.inner_text()
        assert "all of it exposed, and " in facts
        assert "waiting for earlier transfers to free the links" in facts
    assert page_errors == []


def test_what_is_sent_in_unknown_amounts_is_said_wherever_it_is_summed(
    open_page: Callable[..., Page], page_errors: list[str], renderer: Path, tmp_path: Path
) -> None:
    layers = "".join(LAYER.format(n=n, m=n - 1) for n in range(1, 5))
    text = MODULE.replace("LAYERS", layers)
    unclear = "channel_id=4, replica_groups=[1,8]<=[8]"
    assert unclear in text
    cap = hs.read(text.replace(unclear, "channel_id=4, replica_groups=unclear"))
    cap.hardware = "tpu-v5e"
    cap.to_html(tmp_path / "page.html")
    page = open_page((tmp_path / "page.html").as_uri(), width=1500, height=1000)
    page.get_by_role("tab", name="Collectives", exact=True).click(timeout=30_000)
    assert "4 collectives · ≥ " in page.locator(".collective-sum").inner_text()
    row = page.locator(".collective-row[data-collective]").last
    assert row.inner_text().count("unknown") >= 4  # axes, wire, time, exposed
    page.get_by_role("tab", name="Devices", exact=True).click()
    page.get_by_text("Without 1 collective whose bytes are unknown.").wait_for()
    page.get_by_role("tab", name="Source", exact=True).click()
    page.locator("select:has(option[value=wire])").select_option("wire")
    page.get_by_text("Left out: 1 operation of unknown wire bytes.").wait_for()
    assert page_errors == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1500), ("dark", 900)])
def test_reductions_are_told_apart_by_their_type(
    open_page: Callable[..., Page], page_errors: list[str], renderer: Path, tmp_path: Path,
    shots: Path, scheme: str, width: int,
) -> None:  # fmt: skip
    layers = "".join(LAYER.format(n=n, m=n - 1) for n in range(1, 5))
    narrow = (
        "  %narrow = bf16[512,512] convert(%r0)\n  %summed = bf16[512,512] all-reduce(%narrow),"
        " channel_id=9, replica_groups=[1,8]<=[8], to_apply=%sum\n"
    )
    cap = hs.read(MODULE.replace("LAYERS", layers + narrow))
    assert {c.element_types for c in cap.collectives} == {"f32", "bf16"}
    cap.hardware = "tpu-v5e"
    cap.to_html(tmp_path / "page.html")
    page = open_page((tmp_path / "page.html").as_uri(), width=width, color_scheme=scheme)
    page.get_by_role("tab", name="Collectives", exact=True).click(timeout=30_000)
    rows = page.locator(".collective-row[data-collective]")
    types = {r.locator(".second span").nth(1).inner_text() for r in rows.all()}
    assert types == {"f32", "bf16"}
    assert page.evaluate(CUT) == []
    page.screenshot(path=shots / f"collective-types-{scheme}-{width}.png")
    page.get_by_label("Filter collectives").fill("bf16")
    assert rows.count() == 1
    page.get_by_role("button", name="Totals", exact=True).click()
    page.get_by_label("Totals by").select_option("reduced")
    page.get_by_text("all-reduce bf16").wait_for()
    page.get_by_text("all-reduce f32").wait_for()
    page.screenshot(path=shots / f"collective-totals-{scheme}-{width}.png")
    assert page_errors == []
