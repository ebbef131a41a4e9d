"""One chip, one time: the page's figures on every chip are Python's and the command line's.

The chip chosen in the page drives headline, header, findings, cost, timeline and colours; a chip
whose figures are not at hand is not offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from hloscope.analysis.text.units import duration
from hloscope.show import cli

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]
ROOT = "document.querySelector('#hloscope').shadowRoot.querySelector('.root').hloscope"

# A step on 16 devices whose slice is not in the dump: the torus is that of the chip.
GATHERED = """HloModule jit_step, is_scheduled=true, num_partitions=16

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

ENTRY %main (x: f32[512,1024], w: f32[1024,1024]) -> f32[512,1024] {
  %x = f32[512,1024]{1,0} parameter(0)
  %w = f32[1024,1024]{1,0} parameter(1)
  %dot = f32[512,1024]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/mlp/dot_general"}
  %all-reduce = f32[512,1024]{1,0} all-reduce(%dot), replica_groups=[2,8]<=[16], use_global_device_ids=true, channel_id=1, to_apply=%sum, metadata={op_name="jit(step)/mlp/psum"}
  ROOT %tanh = f32[512,1024]{1,0} tanh(%all-reduce), metadata={op_name="jit(step)/mlp/tanh"}
}
"""  # noqa: E501

LOOP = """HloModule jit_scan, is_scheduled=true

%body (s: (s32[], f32[256,256])) -> (s32[], f32[256,256]) {
  %s = (s32[], f32[256,256]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %h = f32[256,256]{1,0} get-tuple-element(%s), index=1
  %product = f32[256,256]{1,0} dot(%h, %h), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(scan)/while/body/dot_general"}
  ROOT %t = (s32[], f32[256,256]{1,0}) tuple(%next, %product)
}

%until (s: (s32[], f32[256,256])) -> pred[] {
  %s = (s32[], f32[256,256]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(24)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (h: f32[256,256]) -> f32[256,256] {
  %h = f32[256,256]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %t = (s32[], f32[256,256]{1,0}) tuple(%zero, %h)
  %loop = (s32[], f32[256,256]{1,0}) while(%t), condition=%until, body=%body, backend_config={"known_trip_count":{"n":"24"}}
  ROOT %out = f32[256,256]{1,0} get-tuple-element(%loop), index=1
}
"""  # noqa: E501

# Layouts with tiles: only TPUs have them.
TILED = GATHERED.replace("{1,0} ", "{1,0:T(8,128)} ")

PROGRAMS = {"gathered": GATHERED, "loop": LOOP, "tiled": TILED}
CHIPS = ("tpu-v5e", "tpu-v5p", "tpu-v6e", "h100")


def opened(cap: Any, open_page: OpenPage, path: Path) -> Page:
    page = open_page(cap.to_html(path).as_uri(), width=1500, height=950)
    page.locator(".chip-choice").wait_for()
    return page


def choose(page: Page, label: str) -> None:
    page.locator(".chip-choice").click()
    page.get_by_role("menuitem", name=re.compile(f"^{re.escape(label)}")).click()
    page.locator(".chip-choice", has_text=label).wait_for()


def menu(page: Page) -> list[str]:
    page.locator(".chip-choice").click()
    found = page.get_by_role("menuitem").all_inner_texts()
    page.keyboard.press("Escape")
    return [text.splitlines()[0] for text in found]


@pytest.mark.parametrize("name", PROGRAMS)
def test_figures_of_every_chip_are_pythons_and_the_command_lines(
    name: str, renderer: Path, open_page: OpenPage, tmp_path: Path, capsys: Any, page_errors: list
) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(PROGRAMS[name])
    page = opened(hs.read(file), open_page, tmp_path / "step.html")
    offered = menu(page)
    for chip in CHIPS:
        label = hs.read(file, hardware=chip).cost().hardware.label
        if label not in offered:
            assert (name, chip) == ("tiled", "h100")
            continue
        choose(page, label)
        cap = hs.read(file, hardware=chip)
        seconds = cap.cost().roofline.total_seconds
        assert hs.read(file).cost(chip).roofline.total_seconds == seconds
        assert cap.summary["modelled_seconds"]["total"] == seconds
        cli.main(["summary", str(file), "--hardware", chip])
        row = rf"modelled +{duration(seconds)} on {chip}"
        assert re.search(row, capsys.readouterr().out)
        assert page.locator(".chip-choice").inner_text() == f"{duration(seconds)} on {label} ▾"
        page.get_by_role("tab", name="Findings", exact=True).click()
        headline = page.locator(".headline li").all_inner_texts()
        assert headline == cap.findings.headline.parts()
        titles = [t.replace("`", "") for t in page.locator(".finding-title").all_inner_texts()]
        assert titles == [f.title.replace("`", "") for f in cap.findings]
        page.get_by_role("tab", name="Timeline", exact=True).click()
        assert page.get_by_text(f"{duration(seconds)} modelled on {label}").is_visible()
        page.get_by_role("tab", name="Cost", exact=True).click()
        assert page.get_by_label("Chip", exact=True).input_value() == chip
        value = page.locator(".totals dt", has_text="Modelled time").locator("+ dd").inner_text()
        assert value == duration(seconds)
        page.get_by_label("Colour by").select_option("seconds")
        total = page.evaluate(
            f"""() => {{ const {{model}} = {ROOT}; const step = model.column('cost.step');
            return step.reduce((a, b) => a + (b || 0), 0); }}"""
        )
        assert total == pytest.approx(seconds, rel=1e-9)
    assert page_errors == []


def test_a_dump_of_an_unknown_chip_asks_and_one_click_answers(
    renderer: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    page = opened(hs.read(TILED), open_page, tmp_path / "step.html")
    assert page.locator(".chip-choice").inner_text() == "Which chip? ▾"
    question = page.get_by_role("group", name="What it may run on")
    assert question.get_by_role("button").all_inner_texts() == [
        "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e", "TPU7x",
    ]  # fmt: skip
    assert page.get_by_role("tab", name="Timeline", exact=True).count() == 0
    question.get_by_role("button", name="TPU v5p").click()
    seconds = duration(hs.read(TILED).cost("tpu-v5p").roofline.total_seconds)
    page.locator(".headline", has_text=f"step {seconds} modelled on TPU v5p").wait_for()
    assert question.count() == 0
    page.get_by_role("tab", name="Timeline", exact=True).click()
    assert page.get_by_text(f"{seconds} modelled on TPU v5p").is_visible()


def test_a_page_offers_no_chip_that_it_has_no_figures_of(
    renderer: Path, open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hloscope.show.html.CHIPS_LIMIT_BYTES", 0)
    cap = hs.read(GATHERED, hardware="h100")
    page = opened(cap, open_page, tmp_path / "small.html")
    assert page.locator(".chip-choice").is_disabled()
    page.get_by_role("tab", name="Cost", exact=True).click()
    options = page.get_by_label("Chip", exact=True).locator("option").all_inner_texts()
    assert options == ["NVIDIA H100 SXM"]


def test_edited_figures_say_what_does_not_follow_them(
    renderer: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    page = opened(hs.read(GATHERED, hardware="tpu-v5e"), open_page, tmp_path / "step.html")
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_text("Its numbers").click()
    page.get_by_label("memory", exact=False).first.fill("1")
    page.keyboard.press("Enter")
    assert page.get_by_text("the headline, Findings and Timeline do not follow them").is_visible()
    for tab in ("Findings", "Timeline"):
        page.get_by_role("tab", name=tab, exact=True).click()
        assert page.get_by_text("these are still those of TPU v5e as published").is_visible()
