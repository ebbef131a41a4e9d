"""Values live at the peak, grouped by source line, and the link from there to the source."""

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

SOURCE = "import jax\n\ndef step(x, w):\n    h = jnp.sin(x @ w)\n    return jnp.flip(h) @ w\n"
TEXT = """HloModule jit_step, is_scheduled=true

ENTRY %main (x: f32[512,512], w: f32[512,512]) -> f32[512,256] {
  %x = f32[512,512]{1,0} parameter(0)
  %w = f32[512,512]{1,0} parameter(1)
  %dot.1 = f32[512,512]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/mlp/dot_general" source_file="/home/me/train.py" source_line=4}
  %flip.1 = f32[512,512]{1,0} reverse(%dot.1), dimensions={0}, metadata={op_name="jit(step)/mlp/rev" source_file="/home/me/train.py" source_line=5}
  %copy.1 = f32[512,512]{0,1} copy(%flip.1)
  %dot.2 = f32[512,512]{1,0} dot(%copy.1, %dot.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/head/dot_general" source_file="/home/me/train.py" source_line=5}
  ROOT %slice.1 = f32[512,256]{1,0} slice(%dot.2), slice={[0:512],[0:256]}, metadata={op_name="jit(step)/slice" source_file="/home/me/train.py" source_line=5}
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def cap() -> Any:
    return hs.Capture(hs.read(TEXT).module, Target(sources={"/home/me/train.py": SOURCE}))


@pytest.fixture
def page(cap: Any, renderer: Path, open_page: OpenPage, tmp_path: Path) -> Page:
    path = cap.to_html(tmp_path / "step.html")
    opened = open_page(path.as_uri(), width=1500, height=950)
    opened.get_by_role("tab", name="Memory", exact=True).click()
    return opened


def figures(page: Page) -> dict[str, str]:
    """Bytes of each group, as shown."""
    rows = page.locator(".live-group > summary").all()
    return {
        r.locator(".group-name").inner_text(): r.locator(".num").last.inner_text() for r in rows
    }


def mib(count: float) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 2**20 else f"{count / 2**10:.3g} KiB"


def test_the_live_list_is_grouped_as_python_groups_it(
    cap: Any, page: Page, page_errors: list[str]
) -> None:
    choose = page.get_by_label("List by")
    wanted = {
        "line": {k.rpartition("/")[2] or "arguments": v for k, v in cap.memory.by_line.items()},
        "scope": {k or "": v for k, v in cap.memory.by_scope.items()},
        "category": cap.memory.by_category,
    }
    choose.select_option("line")
    assert figures(page) == {k: mib(v) for k, v in wanted["line"].items()}
    assert set(figures(page)) == {"arguments", "train.py:4", "train.py:5"}
    choose.select_option("category")
    assert figures(page) == {k: mib(v) for k, v in wanted["category"].items()}
    choose.select_option("scope")
    shown = figures(page)
    assert shown.pop("arguments") == mib(sum(v.bytes for v in cap.memory if v.kind == "argument"))
    for scope, count in wanted["scope"].items():
        if scope:
            assert shown[scope] == mib(count)
    choose.select_option("size")
    rows = page.get_by_role("region", name="Live values").get_by_role("row")
    assert rows.count() == len(cap.memory.live_at_peak) + 1
    assert page_errors == []


def test_a_line_of_the_list_opens_the_source_heated_by_live_bytes(
    cap: Any, page: Page, page_errors: list[str], shots: Path
) -> None:
    page.get_by_label("List by").select_option("line")
    group = page.locator(".live-group", has_text="train.py:5")
    group.locator(".share").click()
    group.get_by_role("row").first.wait_for()
    assert group.get_by_role("row").count() == 1 + sum(
        v.line.endswith("train.py:5") for v in cap.memory
    )
    page.screenshot(path=str(shots / "memory-lines.png"))
    group.get_by_role("button", name="train.py:5").click()
    assert page.get_by_label("Heat by").input_value() == "live"
    pointed = page.locator(".source-line.pointed")
    assert pointed.get_attribute("data-line") == "5"
    assert "flip" in pointed.inner_text()
    (line,) = [x for x in cap.source.own_lines if x.line == 5]
    assert mib(line.total.live_bytes) in pointed.inner_text()
    # a choice made there is kept
    page.get_by_label("Heat by").select_option("flops")
    assert re.search(r"FLOP", pointed.inner_text())
    assert page_errors == []


def test_the_groups_follow_the_schedule(page: Page) -> None:
    page.get_by_label("List by").select_option("line")
    at_peak = figures(page)
    slider = page.get_by_label("Position in the schedule")
    slider.focus()
    page.keyboard.press("Home")
    assert page.get_by_label("List by").input_value() == "line"
    assert figures(page) != at_peak
    assert "train.py:4" not in figures(page)


LOOP = """HloModule jit_step, is_scheduled=true

%body (c: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %c = (s32[], f32[64,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %v = f32[64,64]{1,0} get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %looped = f32[64,64]{1,0} dot(%v, %v), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(step)/while/body/dot_general" source_file="/home/me/train.py" source_line=4}
  ROOT %t = (s32[], f32[64,64]{1,0}) tuple(%next, %looped)
}

%cond (d: (s32[], f32[64,64])) -> pred[] {
  %d = (s32[], f32[64,64]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %limit = s32[] custom-call(%j), custom_call_target="Pin"
  ROOT %less = pred[] compare(%j, %limit), direction=LT
}

ENTRY %main (s: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %s = (s32[], f32[64,64]{1,0}) parameter(0)
  ROOT %loop = (s32[], f32[64,64]{1,0}) while(%s), condition=%cond, body=%body
}
"""  # noqa: E501


def test_a_trip_count_set_by_hand_reaches_the_source(
    renderer: Path, open_page: OpenPage, tmp_path: Path, page_errors: list[str]
) -> None:
    cap = hs.Capture(hs.read(LOOP).module, Target(sources={"/home/me/train.py": SOURCE}))
    page = open_page(cap.to_html(tmp_path / "loop.html").as_uri(), width=1500, height=950)
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Trips of %loop").fill("1000")
    page.keyboard.press("Tab")
    page.get_by_role("tab", name="Source", exact=True).click()
    page.get_by_label("Heat by").select_option("flops")
    wanted = cap.cost("cpu", trips={"loop": 1000}).row(cap.module.find("looped").index)
    assert wanted.runs == 1000
    line = page.locator('.source-line[data-line="4"]')
    assert f"{wanted.flops / 1e6:.3g} MFLOP" in line.inner_text()
    assert page_errors == []
