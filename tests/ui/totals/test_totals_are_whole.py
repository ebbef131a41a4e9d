"""Lists may be cut; totals never are, and figures of whole programs say that they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from hloscope.analysis.text.units import size
from hloscope.hlo import Target
from test_cost_memory import amount

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]
COUNT = 349


def donating(count: int) -> str:
    """A step that updates ``count`` arrays in place."""
    shape = "f32[40,2,512]{2,1,0}"
    rows = range(count)
    alias = ", ".join(f"{{{k}}}: ({k}, {{}}, may-alias)" for k in rows)
    names = ", ".join(f"%sum.{k}" for k in rows)
    body = "\n".join(
        f"  %p.{k} = {shape} parameter({k})\n  %sum.{k} = {shape} add(%p.{k}, %p.{k})" for k in rows
    )
    outputs = ", ".join([shape] * count)
    return (
        f"HloModule jit_update, is_scheduled=true, input_output_alias={{ {alias} }}\n\n"
        f"ENTRY %main () -> ({outputs}) {{\n{body}\n"
        f"  ROOT %out = ({outputs}) tuple({names})\n}}\n"
    )


SOURCE = """def loss(w, x):
    h = layer(w, x)
    return h * h

def layer(w, x):
    return w @ x
"""
CALLS = """HloModule jit_loss, is_scheduled=true

FileNames
1 "/home/me/train.py"

FunctionNames
1 "loss"
2 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=8 end_column=19}
2 {file_name_id=1 function_name_id=2 line=6 end_line=6 column=11 end_column=16}
3 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=11 end_column=16}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}
3 {file_location_id=3 parent_frame_id=3}

ENTRY %main (w: f32[256,256], x: f32[256,256]) -> f32[256,256] {
  %w = f32[256,256]{1,0} parameter(0)
  %x = f32[256,256]{1,0} parameter(1)
  %dot = f32[256,256]{1,0} dot(%w, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(loss)/dot_general" stack_frame_id=2}
  ROOT %mul = f32[256,256]{1,0} multiply(%dot, %dot), metadata={op_name="jit(loss)/mul" stack_frame_id=3}
}
"""  # noqa: E501

GLOBAL = """HloModule jit_step, num_partitions=8

ENTRY %main (x: f32[512,512]) -> f32[512,512] {
  %x = f32[512,512]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}
  ROOT %dot = f32[512,512]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def opened(cap: Any, open_page: OpenPage, path: Path, tab: str) -> Page:
    page = open_page(cap.to_html(path).as_uri(), width=1500, height=950)
    page.get_by_role("tab", name=tab, exact=True).click()
    return page


def test_donation_totals_are_of_every_row(renderer: Path, open_page: OpenPage, tmp_path: Path):
    cap = hs.read(donating(COUNT))
    whole = sum(d.bytes for d in cap.memory.donations)
    assert len(cap.memory.donations) == COUNT
    page = opened(cap, open_page, tmp_path / "update.html", "Memory")
    page.get_by_role("button", name="Donation", exact=True).click()
    summary = page.locator("summary", has_text="aliased")
    assert summary.inner_text() == f"aliased: {COUNT}, {size(whole)}"
    summary.click()
    assert page.get_by_text("and 149 more, which are in the totals").is_visible()


def test_the_lines_of_source_add_up_to_the_program(
    renderer: Path, open_page: OpenPage, tmp_path: Path
):
    read = hs.read(CALLS)
    cap = hs.Capture(read.module, Target(sources={"/home/me/train.py": SOURCE}))
    page = opened(cap, open_page, tmp_path / "loss.html", "Source")
    page.get_by_label("Heat by").select_option("flops")
    own = page.locator("button.source-line .heat:not(.with-called)").all_inner_texts()
    parts = [amount(text) for text in own if text]
    assert sum(parts) == pytest.approx(cap.cost().total_flops, rel=5e-3)
    called = page.locator("button.source-line .heat.with-called").all_inner_texts()
    assert [text for text in called if text] == ["33.6 MFLOP"]
    assert page.get_by_text("with calls", exact=True).is_visible()


def test_figures_before_partitioning_say_that_they_are_of_all_devices(
    renderer: Path, open_page: OpenPage, tmp_path: Path
):
    read = hs.read(GLOBAL, hardware="tpu-v5e")
    page = opened(read, open_page, tmp_path / "global.html", "Memory")
    assert page.get_by_text("no peak of any one of them").is_visible()
    figures = page.locator(".header .figures").get_attribute("title") or ""
    assert "(global)" in figures.split("peak ")[1]
    page.get_by_role("tab", name="Details", exact=True).click()
    row = page.locator("dt", has_text="Peak memory").locator("+ dd")
    assert "of all devices together" in row.inner_text()
    page.get_by_role("tab", name="Cost", exact=True).click()
    assert page.get_by_text("No single chip runs this").is_visible()
    assert page.locator("dt", has_text="Modelled time").count() == 0
    assert "ms" not in page.locator(".chip-choice").inner_text()


def test_mfu_stands_beside_the_one_without_recomputed_work(
    renderer: Path, open_page: OpenPage, tmp_path: Path
):
    dot = "dot(%w, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    again = 'metadata={op_name="jit(f)/transpose(jvp(f))/rematted_computation/dot_general"}'
    text = (
        "HloModule jit_f, is_scheduled=true\n\nENTRY %main (w: bf16[512,512]) ->"
        " (bf16[512,512], bf16[512,512]) {\n  %w = bf16[512,512]{1,0} parameter(0)\n"
        f'  %a = bf16[512,512]{{1,0}} {dot}, metadata={{op_name="jit(f)/dot_general"}}\n'
        f"  %b = bf16[512,512]{{1,0}} {dot}, {again}\n"
        "  ROOT %t = (bf16[512,512]{1,0}, bf16[512,512]{1,0}) tuple(%a, %b)\n}\n"
    )
    cap = hs.read(text, hardware="tpu-v5e")
    headline = cap.findings.headline
    assert headline.mfu_without_recomputed == headline.mfu / 2
    assert replace(headline, mfu=None).parts() != headline.parts()
    page = opened(cap, open_page, tmp_path / "again.html", "Findings")
    assert "without recomputed work" in page.locator(".headline").inner_text()
    assert page.locator(".headline li").all_inner_texts() == headline.parts()


def test_a_plain_copy_of_an_argument_is_not_called_another_memory() -> None:
    text = """HloModule jit_f, is_scheduled=true

ENTRY %main (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64]{1,0} parameter(0)
  ROOT %copy = f32[64,64]{1,0} copy(%x)
}
"""
    (plain,) = hs.read(text).memory.parameter_copies
    assert plain.changes == ""
    (there,) = hs.read(text.replace("{1,0} copy", "{1,0:S(1)} copy")).memory.parameter_copies
    assert there.changes == "memory space"
