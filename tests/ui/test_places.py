"""The place in a page: undo, links, bookmarks; and that nothing moves by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_snapshot import HANDLE, OpenPage, index_of, program, ready, selection, settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

PREFETCHED = """HloModule step, is_scheduled=true

ENTRY main {
  x = f32[2048,2048]{1,0:T(8,128)} parameter(0)
  w = f32[2048,2048]{1,0:T(8,128)} parameter(1)
  a = f32[2048,2048]{1,0:T(8,128)} tanh(x)
  s = (f32[2048,2048]{1,0:T(8,128)S(1)}, f32[2048,2048]{1,0:T(8,128)}, u32[]) copy-start(a)
  q = f32[2048,2048]{1,0:T(8,128)} convolution(x, w), dim_labels=bf_io->bf
  e = f32[2048,2048]{1,0:T(8,128)S(1)} copy-done(s)
  ROOT r = f32[2048,2048]{1,0:T(8,128)} convolution(q, e), dim_labels=bf_io->bf
}
"""


@pytest.fixture(scope="module")
def saved(renderer: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    import hloscope as hs

    folder = tmp_path_factory.mktemp("places")
    (folder / "step.hlo").write_text(program(8))
    return Path(hs.read(folder / "step.hlo").to_html(folder / "step.html")).as_uri()


@pytest.fixture
def page(open_page: OpenPage, saved: str) -> Page:
    made = ready(open_page(saved))
    settle(made)
    return made


def boxes(page: Page) -> int:
    return int(page.evaluate(f"() => {HANDLE}.pane.stats().boxes"))


def picture(page: Page) -> Any:
    """Number of boxes, size in world units and open groups: what layout decides."""
    return page.evaluate(
        f"""() => {{ const {{pane}} = {HANDLE}; const s = pane.stats();
        return [s.boxes, s.worldWidth, s.worldHeight, pane.place().open]; }}"""
    )


def test_panels_and_colours_move_nothing(page: Page) -> None:
    before = picture(page)
    scale = page.evaluate(f"() => {HANDLE}.pane.stats().scale")
    tabs = page.get_by_role("tab")
    for k in range(tabs.count()):
        tabs.nth(k).click()
        settle(page)
        assert picture(page) == before, tabs.nth(k).inner_text()
    for colour in page.get_by_label("Colour by").locator("option").all():
        page.get_by_label("Colour by").select_option(colour.get_attribute("value"))
        settle(page)
        assert picture(page) == before, colour.inner_text()
    page.get_by_role("tab", name="Findings", exact=True).click()
    page.get_by_label("Colour by").select_option("family")
    settle(page)
    # the sidebar keeps the width that the widest panel took
    assert page.evaluate(f"() => {HANDLE}.pane.stats().scale") == pytest.approx(scale, rel=0.2)


def test_opening_and_closing_is_undone_and_done_again(page: Page) -> None:
    first = boxes(page)
    undo = page.get_by_role("button", name="Undo opening and closing")
    redo = page.get_by_role("button", name="Redo")
    assert undo.is_disabled()
    assert redo.is_disabled()
    page.get_by_role("button", name="Open all groups").click()
    everything = boxes(page)
    page.get_by_role("button", name="Close all groups").click()
    closed = boxes(page)
    assert closed < everything
    page.locator(".graph canvas").first.focus()
    page.keyboard.press("Control+z")
    assert boxes(page) == everything
    page.keyboard.press("Control+z")
    assert boxes(page) == first
    assert undo.is_disabled()
    page.keyboard.press("Control+Shift+Z")
    assert boxes(page) == everything
    redo.click()
    assert boxes(page) == closed
    assert redo.is_disabled()


def test_undo_in_a_text_field_is_the_fields_own(page: Page) -> None:
    page.get_by_role("button", name="Open all groups").click()
    everything = boxes(page)
    page.get_by_label("Search instructions").fill("dot")
    page.keyboard.press("Control+z")
    assert boxes(page) == everything


def test_the_address_brings_one_back(page: Page, open_page: OpenPage) -> None:
    page.get_by_role("button", name="Open all groups").click()
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "dot.2"))
    page.get_by_role("tab", name="Memory", exact=True).click()
    page.get_by_label("Colour by").select_option("bytes")
    page.locator(".graph canvas").first.focus()
    page.keyboard.press("+")
    page.wait_for_function(
        "() => location.hash.includes('pick=') && location.hash.includes('view=')"
    )
    page.wait_for_timeout(400)
    settle(page)
    sight = page.evaluate(f"() => {HANDLE}.pane.place().view")

    again = ready(open_page(page.url))
    settle(again)
    assert picture(again) == picture(page)
    assert selection(again) == ("instruction", "dot.2")
    options = again.evaluate(f"() => {HANDLE}.store.get('options')")
    assert (options["panel"], options["colorBy"]) == ("memory", "bytes")
    assert again.evaluate(f"() => {HANDLE}.pane.place().view") == sight


def test_an_address_of_another_module_or_of_nonsense_opens_the_first_picture(
    page: Page, open_page: OpenPage, saved: str, page_errors: list[str]
) -> None:
    first = picture(page)
    for words in (
        "of=1.2.3&open=1.2&pick=instruction:99",
        "of=x&open=%00&pick=:-1",
        "open=zzzzzzzz",
        "%",
    ):
        other = ready(open_page(f"{saved}#{words}"))
        settle(other)
        assert picture(other) == first, words
        assert selection(other)[0] == "none"
    assert page_errors == []


def test_bookmarks_stay_in_the_page_and_in_saved_copies(
    page: Page, open_page: OpenPage, tmp_path: Path
) -> None:
    first = boxes(page)
    page.get_by_role("button", name="Open all groups").click()
    everything = boxes(page)
    marks = page.get_by_role("button", name="Bookmarks and link")
    marks.click()
    page.get_by_label("Name of the bookmark").fill("All of it")
    page.get_by_label("Note", exact=True).fill("<b>here</b> & there")
    page.get_by_role("button", name="Add bookmark").click()
    assert page.locator(".bookmarks p").inner_text() == "<b>here</b> & there"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="First picture again").click()
    assert boxes(page) == first
    marks.click()
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save page").click()
    copy = tmp_path / "copy.html"
    saving.value.save_as(copy)

    other = ready(open_page(copy.as_uri()))
    settle(other)
    assert boxes(other) == first
    assert "instructions" in copy.read_text()  # the summary for readers without scripts
    other.get_by_role("button", name="Bookmarks and link").click()
    other.get_by_role("button", name="All of it", exact=True).click()
    settle(other)
    assert boxes(other) == everything
    other.get_by_role("button", name="Bookmarks and link").click()
    other.get_by_role("button", name="Remove All of it").click()
    assert other.locator(".bookmarks").inner_text() == "No bookmarks yet"


@pytest.mark.parametrize("chip", [None, "tpu-v5e"])
def test_a_prefetch_is_a_mark_on_its_arrow_and_boxes_when_asked(
    open_page: OpenPage, renderer: Path, tmp_path: Path, chip: str | None
) -> None:
    import hloscope as hs

    capture = hs.read(PREFETCHED)
    capture.hardware = chip
    page = ready(open_page(Path(capture.to_html(tmp_path / "p.html")).as_uri()))
    settle(page)
    before = boxes(page)
    key = page.locator(".legend .key.moved")
    assert key.inner_text().split() == [
        *("○ async".split() if chip is None else "○ async, hidden".split()), "1"
    ]  # fmt: skip
    key.click()
    assert page.evaluate(f"() => {HANDLE}.store.get('highlight').instructions.size") == 2
    page.evaluate(f"(i) => {HANDLE}.store.selectInstruction(i)", index_of(page, "r"))
    page.get_by_role("tab", name="Details", exact=True).click()
    words = page.get_by_text("prefetch 16 MiB").inner_text()
    assert words.endswith(", hidden") == (chip is not None)
    page.get_by_role("button", name="Show asynchronous copies as boxes").click()
    assert boxes(page) == before + 2
    page.locator(".graph canvas").first.focus()
    page.keyboard.press("Control+z")
    assert boxes(page) == before
