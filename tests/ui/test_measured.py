"""The Measured panel in the saved page: operations by device, and against the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from hloscope.analysis.measured.join import join
from hloscope.readers.xplane.xplane import OpTime, Trace

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]

TEXT = """HloModule jit_step, is_scheduled=true, num_partitions=4

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(%a, %b)
}

ENTRY %main (x: f32[512,512], w: f32[512,512]) -> f32[512,512] {
  %x = f32[512,512]{1,0} parameter(0)
  %w = f32[512,512]{1,0} parameter(1)
  %dot.1 = f32[512,512]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %tanh.1 = f32[512,512]{1,0} tanh(%dot.1)
  ROOT %all-reduce.1 = f32[512,512]{1,0} all-reduce(%tanh.1), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=%sum
}
"""  # noqa: E501

# ms of two steps; device 2 is slow at tanh
TIMES = {"dot.1": (8, 8, 8.4, 8), "tanh.1": (1, 1, 5, 1), "all-reduce.1": (4, 4, 2, 4)}


@pytest.fixture(scope="module")
def cap() -> Any:
    made = hs.read(TEXT)
    ops = [
        OpTime("jit_step", op, device, ms * 1e-3, 2)
        for op, row in TIMES.items()
        for device, ms in enumerate(row)
    ]
    made.for_hosts.measured = join(made.module, ops)
    return made


def open_panel(cap: Any, open_page: OpenPage, tmp_path: Path, **more: Any) -> Page:
    page = open_page(cap.to_html(tmp_path / "step.html").as_uri(), width=1500, height=950, **more)
    page.get_by_role("tab", name="Measured", exact=True).click()
    return page


def selected(page: Page) -> Any:
    return page.evaluate(
        """() => [...document.querySelectorAll('*')].filter((e) => e.shadowRoot)
          .map((e) => e.shadowRoot.querySelector('.root')?.hloscope?.store.get('selection'))
          .find((s) => s)"""
    )


def rows(page: Page) -> list[list[str]]:
    region = page.get_by_role("region", name="Operations by measured time")
    return [r.locator("th,td").all_inner_texts() for r in region.locator("tbody tr").all()]


def test_operations_by_time_by_straggler_and_against_the_model(
    cap: Any,
    renderer: Path,
    open_page: OpenPage,
    tmp_path: Path,
    page_errors: list[str],
    shots: Path,
) -> None:
    page = open_panel(cap, open_page, tmp_path)
    assert [r[:5] for r in rows(page)] == [
        ["dot.1", "4.05 ms", "4.2 ms", "2", "+4 %"],
        ["all-reduce.1", "1.75 ms", "2 ms", "0", "+14 %"],
        ["tanh.1", "1 ms", "2.5 ms", "2", "+150 %"],
    ]
    page.get_by_label("Order").select_option("wait")
    assert [r[0] for r in rows(page)] == ["tanh.1", "all-reduce.1", "dot.1"]
    page.get_by_label("Cells").select_option("mean")
    canvas = page.get_by_role("img", name="Measured time of 3 operations on 4 devices")
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.get_by_text("tanh.1 on device 2: 2.5 ms, +150 % against its mean").is_visible()
    page.keyboard.press("Enter")
    index = cap.module.find("tanh.1").index
    assert selected(page) == {"kind": "instruction", "index": index}
    page.screenshot(path=str(shots / "measured.png"))
    # another chip chosen: it is compared with that model at once
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Chip").select_option("h100")
    page.locator(".chip-choice", has_text="H100").wait_for()
    page.get_by_role("tab", name="Measured", exact=True).click()
    dots = page.locator(".scatter circle.dot")
    assert dots.count() == 3
    assert "modelled on" in page.locator(".scatter").inner_text()
    dots.last.click(force=True)
    assert selected(page)["index"] == int(dots.last.get_attribute("data-instruction"))
    assert page_errors == []


def test_the_panel_in_the_dark_and_only_where_something_was_measured(
    cap: Any, renderer: Path, open_page: OpenPage, tmp_path: Path, shots: Path
) -> None:
    page = open_panel(cap, open_page, tmp_path, color_scheme="dark")
    page.screenshot(path=str(shots / "measured-dark.png"))
    assert page.get_by_text("2: 7.7 ms, +13.2 %").is_visible()
    plain = hs.read(TEXT.replace("jit_step", "jit_plain"))
    other = open_page(plain.to_html(tmp_path / "plain.html").as_uri())
    other.get_by_role("tab", name="Cost", exact=True).wait_for()
    assert other.get_by_role("tab", name="Measured", exact=True).count() == 0


def test_what_did_not_land_hosts_and_loops_are_shown(
    renderer: Path, open_page: OpenPage, tmp_path: Path, shots: Path
) -> None:
    """A trace of two hosts: device names, a loop's own time, asynchronous and unmatched time."""
    text = TEXT.replace("jit_step", "jit_looping").replace(
        "ENTRY",
        """%body (c: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  ROOT %inside = f32[] sine(%c)
}

%condition (d: f32[]) -> pred[] {
  %d = f32[] parameter(0)
  ROOT %goes = pred[] constant(true)
}

ENTRY""",
    )
    text = text.replace(
        "  %dot.1",
        "  %z = f32[] constant(0)\n"
        "  %loop = f32[] while(%z), condition=%condition, body=%body\n  %dot.1",
    )
    made = hs.read(text)
    ops = []
    for device in range(4):
        ops += [
            OpTime("jit_looping", "loop", device, 5e-3, 1, 1e-3),
            OpTime("jit_looping", "inside", device, 4e-3, 9, 4e-3),
            OpTime("jit_looping", "dot.1", device, 2e-3, 1, 2e-3),
            OpTime("jit_looping", "all-reduce.1", device, 1e-4, 1),
            OpTime("jit_looping", "all-reduce.1", device, 3e-3, 1, 3e-3, None, True),
            OpTime("jit_looping", "gone.7", device, 1e-3, 1),
            OpTime("jit_other", "dot.1", device, 9e-3, 1),
        ]
    names = {d: f"host-{d // 2} TPU:{d % 2}" for d in range(4)}
    trace = Trace(tuple(ops), (), {}, {"memset": 2e-3}, names)
    made.for_hosts.measured = join(made.module, ops, 1, trace=trace)
    page = open_panel(made, open_page, tmp_path)
    panel = page.locator(".measured")
    shown = panel.inner_text()
    for words in (
        "7.1 ms a step, mean over devices",  # 1 of the loop itself, 4 inside it, 2.1 of the rest
        "87.7 % of the program's time in the trace",
        "3 ms a step from start to done",
        "4 ms under names that this program does not have (gone.7 4 ms)",
        "36 ms of other programs (jit_other 36 ms)",
        "2 ms in kernels and copies that belong to no HLO operation (memset 2 ms)",
        "host-1 TPU:0",
    ):
        assert words in shown, words
    table = {r[0]: r for r in rows(page)}
    assert table["loop"][1:3] == ["5 ms", "1 ms"]
    assert table["inside"][1:3] == ["4 ms", ""]
    page.screenshot(path=str(shots / "measured-hosts.png"))
    # a transfer is compared with the model from its start to its done
    page.get_by_role("tab", name="Cost", exact=True).click()
    page.get_by_label("Chip").select_option("h100")
    page.get_by_role("tab", name="Measured", exact=True).click()
    cost = made.cost("h100")
    modelled = cost.roofline.collective_seconds
    ratio = float(next(r for r in rows(page) if r[0] == "all-reduce.1")[-1].rstrip("×"))
    assert ratio == pytest.approx(3e-3 / modelled, rel=6e-3)
