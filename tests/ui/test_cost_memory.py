"""Cost, memory and source in the saved page: what is clicked changes everything at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from hloscope.hlo import Target

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]

SOURCE = "import jax\n\ndef step(x, w):\n    h = jnp.tanh(x @ w)\n    return jax.lax.psum(h)\n"
TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=4

%body (c: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %c = (s32[], f32[64,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %v = f32[64,64]{1,0} get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %looped = f32[64,64]{1,0} dot(%v, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[64,64]{1,0}) tuple(%next, %looped)
}

%cond (d: (s32[], f32[64,64])) -> pred[] {
  %d = (s32[], f32[64,64]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %limit = s32[] custom-call(%j), custom_call_target="Pin"
  ROOT %less = pred[] compare(%j, %limit), direction=LT
}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}

ENTRY %main (x: f32[512,512], w: f32[512,512], s: (s32[], f32[64,64])) -> f32[512,512] {
  %x = f32[512,512]{1,0} parameter(0)
  %w = f32[512,512]{1,0} parameter(1)
  %s = (s32[], f32[64,64]{1,0}) parameter(2)
  %loop = (s32[], f32[64,64]{1,0}) while(%s), condition=%cond, body=%body
  %dot.1 = f32[512,512]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/dot_general" source_file="/home/me/train.py" source_line=4}
  %tanh.1 = f32[512,512]{1,0} tanh(%dot.1), metadata={op_name="jit(step)/tanh" source_file="/home/me/train.py" source_line=4}
  ROOT %all-reduce.1 = f32[512,512]{1,0} all-reduce(%tanh.1), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum, metadata={op_name="jit(step)/psum" source_file="/home/me/train.py" source_line=5}
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def cap() -> Any:
    read = hs.read(TEXT)
    return hs.Capture(read.module, Target(sources={"/home/me/train.py": SOURCE}))


@pytest.fixture
def page(cap: Any, renderer: Path, open_page: OpenPage, tmp_path: Path) -> Page:
    path = cap.to_html(tmp_path / "step.html")
    opened = open_page(path.as_uri(), width=1500, height=950)
    opened.get_by_role("tab", name="Cost", exact=True).wait_for()
    return opened


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+) (s|ms|µs|ns)", text.strip()).groups()
    return float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def modelled(page: Page) -> float:
    return seconds(page.locator("dt", has_text="Modelled time").locator("+ dd").inner_text())


@pytest.mark.parametrize("chip", ["h100", "tpu-v5e", "tpu-v5p", "cpu"])
def test_the_page_models_the_time_that_python_models(cap: Any, page: Page, chip: str) -> None:
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Chip").select_option(chip)
    want = cap.cost(chip).roofline.total_seconds
    assert modelled(page) == pytest.approx(want, rel=6e-3)


def test_the_chip_of_the_capture_is_the_pages(
    cap: Any, renderer: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    other = hs.Capture(cap.module, cap.target)
    other.hardware = "h100"
    page = open_page(other.to_html(tmp_path / "chip.html").as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Cost", exact=True).click()
    assert page.get_by_label("Chip").input_value() == "h100"
    assert modelled(page) == pytest.approx(other.summary["modelled_seconds"]["total"], rel=6e-3)
    # as a host does when its settings change: the open panel follows
    told = "document.querySelector('#hloscope').shadowRoot.querySelector('.root').hloscope.store"
    page.evaluate(f"{told}.setOptions({{hardware: 'tpu-v5e'}})")
    assert page.get_by_label("Chip").input_value() == "tpu-v5e"
    assert modelled(page) == pytest.approx(cap.cost("tpu-v5e").roofline.total_seconds, rel=6e-3)
    page.get_by_label("Chip").select_option("a100")
    assert page.evaluate(f"{told}.get('options').hardware") == "a100"
    page.evaluate(f"{told}.setOptions({{hardware: 'abacus'}})")
    assert page.get_by_label("Chip").input_value() == "h100"
    page.get_by_text("No chip is called abacus; time is modelled on NVIDIA H100 SXM.").wait_for()


def test_a_number_and_a_trip_count_can_be_changed(
    cap: Any, page: Page, page_errors: list[str], shots: Path
) -> None:
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Chip").select_option("h100")
    before = modelled(page)
    page.get_by_text("Its numbers").click()
    page.get_by_label("nvlink, a link").fill("1")
    page.keyboard.press("Tab")
    assert modelled(page) > 10 * before
    page.get_by_role("button", name="as published").click()
    assert modelled(page) == before
    page.get_by_label("Trips of %loop").fill("1000")
    page.keyboard.press("Tab")
    want = cap.cost("h100", trips={"loop": 1000}).total_flops
    shown = page.locator("dt", has_text="FLOPs").first.locator("+ dd").inner_text()
    assert float(shown.split()[0]) == pytest.approx(want / 1e6, rel=6e-3)
    page.screenshot(path=str(shots / "cost.png"))
    assert page_errors == []


def test_the_treemap_by_scope_selects_by_pointer_and_by_key(
    page: Page, page_errors: list[str]
) -> None:
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Chip").select_option("")
    map_ = page.locator(".treemap canvas")
    map_.scroll_into_view_if_needed()
    assert "FLOPs by scope" in (map_.get_attribute("aria-label") or "")
    page.get_by_label("Chip").select_option("h100")
    assert "modelled on" in (map_.get_attribute("aria-label") or "")
    map_.hover(position={"x": 8, "y": 8})
    tip = page.locator(".treemap .tip")
    first = page.locator(".treemap .bar").first
    largest = first.locator(".bar-label").inner_text()
    assert tip.inner_text().startswith(largest)
    assert "%" in tip.inner_text()
    map_.click(position={"x": 8, "y": 8})
    status = page.locator(".status")
    assert largest.removeprefix("%") in status.inner_text()
    second = page.locator(".treemap .bar").nth(1)
    second.focus()
    page.keyboard.press("Enter")
    assert second.locator(".bar-label").inner_text().removeprefix("%") in status.inner_text()
    assert page_errors == []


def test_a_dot_of_the_roofline_selects_its_operation(page: Page) -> None:
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Chip").select_option("h100")
    largest = page.locator(".roofline circle.dot").last
    index = int(largest.get_attribute("data-instruction"))
    largest.click(force=True)
    root = page.evaluate(
        """() => {
          const hosts = [...document.querySelectorAll('*')].filter((e) => e.shadowRoot);
          for (const h of hosts) {
            const root = h.shadowRoot.querySelector('.root');
            if (root?.hloscope) return root.hloscope.store.get('selection');
          }
          return null;
        }"""
    )
    assert root == {"kind": "instruction", "index": index}


def test_the_memory_timeline_is_walked(cap: Any, page: Page, shots: Path) -> None:
    page.get_by_role("tab", name="Memory", exact=True).click()
    peak = f"{cap.memory.peak_bytes:,} B"
    assert page.get_by_text(peak).is_visible()
    assert page.get_by_role("heading", name="Live at the peak").is_visible()
    slider = page.get_by_label("Position in the schedule")
    slider.focus()
    page.keyboard.press("Home")
    assert page.get_by_role("heading", name="Live here").is_visible()
    page.get_by_role("button", name="go to the peak").click()
    assert page.get_by_role("heading", name="Live at the peak").is_visible()
    rows = page.get_by_role("region", name="Live values").get_by_role("row")
    assert rows.count() == len(cap.memory.live_at_peak) + 1
    page.screenshot(path=str(shots / "memory.png"))


def test_source_lines_are_heated_and_light_their_operations(page: Page, shots: Path) -> None:
    page.get_by_role("tab", name="Source", exact=True).click()
    line = page.get_by_role("button", name=re.compile(r"h = jnp\.tanh\(x @ w\)"))
    assert "FLOP" in line.inner_text()
    line.click()
    assert page.get_by_text("train.py:4").first.is_visible()
    page.screenshot(path=str(shots / "source.png"))


def test_boxes_can_be_coloured_by_cost(page: Page, page_errors: list[str]) -> None:
    choose = page.get_by_label("Colour", exact=False).first
    for name in ("FLOPs", "Bytes accessed", "Live bytes at peak", "Modelled time"):
        choose.select_option(label=name)
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Chip").select_option("a100")
    assert page_errors == []
