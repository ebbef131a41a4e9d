"""Two programs on one page: their titles, one toolbar, pictures that move together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from boxes_program import program

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]
SIDES = ("#hloscope", "#hloscope-second")


def on(page: Page, side: int, body: str) -> Any:
    root = f"document.querySelector('{SIDES[side]}').shadowRoot.querySelector('.root').hloscope"
    return page.evaluate(f"() => {{ const {{pane, store, model}} = {root}; {body} }}")


@pytest.fixture
def page(renderer: Path, open_page: OpenPage, tmp_path: Path) -> Page:
    before, after = tmp_path / "before.hlo", tmp_path / "after.hlo"
    before.write_text(program())
    after.write_text(program().replace(" sine(", " cosine("))
    sides = [hs.read(file, hardware="tpu-v5e") for file in (before, after)]
    path = hs.diff(*sides).to_html(tmp_path / "diff.html")
    page = open_page(path.as_uri(), width=1000, height=760)
    page.wait_for_function(
        "() => [...document.querySelectorAll('.side > div')].every((e) =>"
        " e.shadowRoot?.querySelector('.root')?.hloscope?.model.optional('diff.pair'))"
    )
    page.wait_for_timeout(800)
    return page


def test_programs_of_one_name_are_called_by_their_files(page: Page) -> None:
    assert page.locator("h1").inner_text() == "before.hlo · jit_f ↔ after.hlo · jit_f"
    names = [text.strip() for text in page.locator(".side h2").all_inner_texts()[::1]]
    assert names[0] == "before.hlo · jit_f"
    assert "after.hlo · jit_f" in names


def test_the_pictures_have_the_width_of_a_notebook_and_the_tables_stand_below(page: Page) -> None:
    boxes = [page.locator(side).bounding_box() for side in SIDES]
    assert all(box and box["width"] > 480 for box in boxes)
    main = page.locator("main").bounding_box()
    assert main
    assert main["y"] >= boxes[0]["y"] + boxes[0]["height"] - 1


def test_both_pictures_open_move_and_zoom_together(page: Page, page_errors: list[str]) -> None:
    assert page.locator(f"{SIDES[1]} .toolbar").is_hidden()
    page.locator(f"{SIDES[0]} button[aria-label='Close all groups']").click()
    page.wait_for_timeout(500)
    boxes = "return pane.boxes().length"
    assert on(page, 0, boxes) == on(page, 1, boxes)
    page.locator(f"{SIDES[0]} button[aria-label='Open all groups']").click()
    page.wait_for_timeout(500)
    assert on(page, 0, boxes) == on(page, 1, boxes) > 10
    group = "for (let g = 0; ; g++) if (model.groupLabel(g) === 'decoder') "
    on(page, 1, f"{group} return pane.toggle({{kind: 'group', index: g}})")
    opened = f"{group} return pane.isOpen({{kind: 'group', index: g}})"
    assert on(page, 0, opened) is on(page, 1, opened) is False
    graph = page.locator(f"{SIDES[0]} .graph canvas").first.bounding_box()
    page.mouse.move(graph["x"] + 200, graph["y"] + 100)
    page.mouse.down()
    page.mouse.move(graph["x"] + 140, graph["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_timeout(400)
    sights = [on(page, side, "return pane.sight") for side in (0, 1)]
    for key in ("x", "y", "scale"):
        assert sights[0][key] == pytest.approx(sights[1][key], abs=2)
    page.locator(f"{SIDES[0]} select[aria-label='Colour by']").select_option("bytes")
    assert on(page, 1, "return store.get('options').colorBy") == "bytes"
    assert page_errors == []


def test_the_pictures_begin_at_the_change_that_costs_most(page: Page) -> None:
    name = "return model.name(store.get('selection').index)"
    assert on(page, 0, name) == on(page, 1, name) == "encoder.attention_block.sine"
