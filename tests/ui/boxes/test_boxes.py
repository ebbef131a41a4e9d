"""Boxes: found by name, cards, the menu, one alone, a value followed, several summed, saved."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from boxes_program import program

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]
ROOT = "document.querySelector('#hloscope').shadowRoot.querySelector('.root')"
KEPT = """Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => {
  window.copied = text; }}});"""


@pytest.fixture
def page(renderer: Path, open_page: OpenPage, tmp_path: Path) -> Page:
    cap = hs.read(program(), hardware="tpu-v5e")
    path = cap.to_html(tmp_path / "f.html")
    page = open_page(path.as_uri(), width=1500, height=950, script=KEPT)
    page.locator(".chip-choice").wait_for()
    return page


def evaluate(page: Page, body: str, *more: Any) -> Any:
    head = f"const {{pane, store, model}} = {ROOT}.hloscope;"
    return page.evaluate(f"(arg) => {{ {head} {body} }}", *more)


def box(page: Page, label: str) -> dict[str, Any]:
    """The selection of the first box of that label, and the middle of it on the screen."""
    found = evaluate(
        page,
        """for (let g = 1; g < model.group.count; g++) if (model.groupLabel(g) === arg) {
          pane.revealGroup(g);
          return {kind: 'group', index: g};
        } return null;""",
        label,
    )
    page.wait_for_timeout(500)
    place = evaluate(page, "return pane.locate(arg);", found)
    graph = page.locator(".graph").bounding_box()
    assert graph
    x = graph["x"] + place["x"] + min(30, place["width"] / 2)
    return {**found, "x": x, "y": graph["y"] + place["y"] + 10}


def menu(page: Page, label: str, item: str) -> None:
    at = box(page, label)
    page.mouse.click(at["x"], at["y"], button="right")
    page.get_by_role("menuitem", name=re.compile(f"^{item}")).click()


def lit(page: Page) -> set[str]:
    names = "[...(store.get('highlight')?.instructions ?? [])].map((i) => model.name(i))"
    return set(evaluate(page, f"return {names};"))


def test_search_finds_the_names_that_boxes_bear(page: Page) -> None:
    search = page.get_by_role("searchbox")
    search.fill("attention_block")
    boxes = page.locator(".found-boxes")
    boxes.get_by_text("2 boxes").wait_for()
    rows = boxes.locator("li").all_inner_texts()
    assert [row.split("\n")[0] for row in rows] == ["attention_block", "attention_block"]
    assert {"encoder", "decoder"} == {"encoder" if "encoder" in r else "decoder" for r in rows}
    page.get_by_text("8 matches").wait_for()
    boxes.locator("li button").first.click()
    chosen = evaluate(page, "return store.get('selection')")
    label = evaluate(page, "return model.groupLabel(arg)", chosen["index"])
    assert (chosen["kind"], label) == ("group", "attention_block")
    search.fill("decoder mlp_block")
    boxes.get_by_text("1 box").wait_for()
    search.fill("matmul")
    page.get_by_text("4 matches").wait_for()
    search.fill("scope:encoder opcode:add")
    page.get_by_text("1 match", exact=True).wait_for()


def test_a_card_says_what_a_box_costs(page: Page) -> None:
    at = box(page, "attention_block")
    evaluate(page, "pane.close(arg)", {"kind": "group", "index": at["index"]})
    page.wait_for_timeout(500)
    at = box(page, "mlp_block")
    evaluate(page, "pane.close(arg)", {"kind": "group", "index": at["index"]})
    page.wait_for_timeout(500)
    at = box(page, "mlp_block")
    page.mouse.move(5, 5)
    page.mouse.move(at["x"], at["y"])
    card = page.locator(".box-tip")
    card.wait_for()
    text = card.inner_text()
    assert "mlp_block" in text
    assert "4 instructions" in text
    assert re.search(r"\d+ kFLOP · [\d.]+ [µn]s \(\d+ %\) on TPU v5e", text), text
    page.mouse.move(5, 5)
    assert card.is_hidden()


def test_one_box_can_be_shown_alone_and_everything_again(page: Page) -> None:
    menu(page, "decoder", "Isolate")
    page.get_by_text("Only decoder is shown").wait_for()
    selections = evaluate(page, "return pane.boxes().map((b) => b.selection)")
    kinds = {"instruction": "name", "group": "groupLabel"}
    shown = {
        evaluate(page, f"return model.{kinds[s['kind']]}(arg)", s["index"]) for s in selections
    }
    assert not {name for name in shown if name.startswith("encoder")}
    assert {"attention_block", "mlp_block"} <= shown
    page.get_by_role("button", name="show everything").click()
    assert page.get_by_text("Only decoder is shown").is_hidden()
    evaluate(page, "pane.isolate(arg)", {"kind": "group", "index": box(page, "decoder")["index"]})
    # what is left out comes back when something leads to it
    first = "model.name(i) === 'encoder.attention_block.dot'"
    found = evaluate(page, f"for (let i = 0; ; i++) if ({first}) return i;")
    evaluate(page, "pane.reveal(arg)", found)
    assert page.get_by_text("Only decoder is shown").is_hidden()


def test_a_value_is_followed_through_the_program(page: Page) -> None:
    menu(page, "decoder", "Follow: what depends on it")
    assert len(lit(page)) == 10
    assert {name.split(".")[0] for name in lit(page)} == {"decoder", "out"}
    menu(page, "encoder", "Follow: what it depends on")
    assert len(lit(page)) == 11
    assert {name.split(".")[0] for name in lit(page)} == {"encoder", "x", "w"}


SHARDED = """HloModule jit_f, is_scheduled=true, num_partitions=2

ENTRY %main (x: f32[64,64]) -> f32[64,64] {
  %x = f32[64,64] parameter(0)
  ROOT %tanh.1 = f32[64,64] tanh(%x)
}
"""


def test_a_box_in_the_picture_names_the_value_of_a_constraint(
    renderer: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    path = hs.read(SHARDED).to_html(tmp_path / "f.html")
    page = open_page(path.as_uri(), width=1500, height=950, script=KEPT)
    page.locator(".graph canvas").first.wait_for()
    evaluate(page, "store.selectInstruction(1)")
    page.locator(".graph canvas").first.focus()
    page.keyboard.press("Shift+F10")
    page.get_by_role("menuitem", name="Copy as a sharding constraint").click()
    assert page.evaluate("copied") == 'cap.what_if(constrain={"tanh.1": P()})'


def test_the_menu_copies_and_leads_on(page: Page) -> None:
    menu(page, "decoder", "Copy name")
    assert page.evaluate("copied") == "decoder"
    at = box(page, "mlp_block")
    menu(page, "mlp_block", "Copy HLO$")
    page.get_by_text("Copied 4 pieces of HLO.").wait_for()
    assert "%encoder.mlp_block.dot = " in page.evaluate("copied")
    menu(page, "mlp_block", "Details")
    assert page.get_by_role("tab", name="Details").get_attribute("aria-selected") == "true"
    # the keyboard opens it too, Escape closes it
    evaluate(page, "store.select({kind: 'group', index: arg})", at["index"])
    page.locator(".graph canvas").first.focus()
    page.keyboard.press("Shift+F10")
    page.get_by_role("menu", name="What to do with mlp_block").wait_for()
    page.keyboard.press("Escape")
    assert page.get_by_role("menu").count() == 0


def test_several_boxes_are_summed(page: Page) -> None:
    page.get_by_role("tab", name="Details").click()
    evaluate(page, "pane.closeAll()")
    first = box(page, "encoder")
    page.mouse.click(first["x"], first["y"])
    second = box(page, "decoder")
    page.keyboard.down("Control")
    page.mouse.click(second["x"], second["y"])
    page.keyboard.up("Control")
    page.get_by_role("heading", name="2 boxes").wait_for()
    sums = page.locator(".facts").first.inner_text()
    assert re.search(r"Instructions\s+1[89]", sums)
    assert "2.1" in sums  # MFLOP of four products of 2 × 64³
    page.mouse.click(first["x"], first["y"])
    page.get_by_role("heading", name="encoder").wait_for()


def test_the_graph_is_saved_with_its_legend_at_any_scale(page: Page) -> None:
    def saved(item: str, other: bool = False) -> Path:
        page.get_by_role("button", name="Save or copy").click()
        if other:
            page.get_by_label("graph in dark colours").check()
        with page.expect_download() as found:
            page.get_by_role("menuitem", name=item, exact=True).click()
        return Path(found.value.path())

    light = saved("Save graph as SVG").read_text()
    assert "matmul 4" in light
    assert 'fill="#ffffff"' in light
    dark = saved("Save graph as SVG", other=True).read_text()
    assert 'fill="#14181d"' in dark
    sizes = []
    for item in ("Save graph as PNG", "Save graph as PNG, 2 × as sharp"):
        data = saved(item).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        sizes.append(int.from_bytes(data[16:20], "big"))
    assert sizes[1] == pytest.approx(2 * sizes[0], abs=2)
    width = float(re.search(r'width="([\d.]+)"', light)[1])
    assert sizes[0] == pytest.approx(width, abs=1)


def test_a_stack_of_layers_opens_to_one_of_them_or_to_each(
    renderer: Path, open_page: OpenPage, tmp_path: Path
) -> None:
    names = [f"layer_{k}" for k in range(6)]
    path = hs.read(program(tuple(names)), hardware="tpu-v5e").to_html(tmp_path / "layers.html")
    page = open_page(path.as_uri(), width=1500, height=950)
    page.locator(".chip-choice").wait_for()
    stack = {"kind": "fold", "index": 0}

    def shown() -> list[str]:
        """Groups that have a box or a frame of their own."""
        found = evaluate(page, "return pane.boxes().map((b) => b.selection)")
        groups = [s["index"] for s in found if s["kind"] == "group"]
        return evaluate(page, "return arg.map((g) => model.groupLabel(g))", groups)

    def press(item: str) -> None:
        evaluate(page, "store.select(arg)", stack)
        page.locator(".graph canvas").first.focus()
        page.keyboard.press("Shift+F10")
        page.get_by_role("menuitem", name=item, exact=True).click()
        page.wait_for_timeout(500)

    # at first: a frame around what is in one, for all six
    assert evaluate(page, "return pane.isOpen(arg)", stack)
    assert shown() == ["attention_block", "mlp_block"]
    page.get_by_role("button", name="Save or copy").click()
    with page.expect_download() as saved:
        page.get_by_role("menuitem", name="Save graph as SVG", exact=True).click()
    assert "layer_[0..5] ×6" in Path(saved.value.path()).read_text()
    # what is in a layer that is not shown stands beside the others when it is looked for
    find = "for (let i = 0; ; i++) if (model.name(i) === arg) return i;"
    found = evaluate(page, find, "layer_3.mlp_block.dot")
    evaluate(page, "pane.reveal(arg)", found)
    assert "layer_3" in shown()
    press("Show each of the 6 by itself")
    assert set(names) <= set(shown())
    press("Show all 6 as one")
    assert not set(names) & set(shown())
    assert not evaluate(page, "return pane.isOpen(arg)", stack)
    page.locator(".graph canvas").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    assert shown() == ["attention_block", "mlp_block"]
    page.keyboard.press("Control+z")
    page.wait_for_timeout(300)
    assert not evaluate(page, "return pane.isOpen(arg)", stack)
