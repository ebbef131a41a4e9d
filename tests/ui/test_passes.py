"""Passes in page and widget: stepping, boxes that stay in place, colours, progress and cancel."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from corpus.by_hand import write_passes
from test_widget import widget

if TYPE_CHECKING:
    from playwright.sync_api import Page

STAGE = "document.querySelector('#hloscope, #out > div').shadowRoot.querySelector('.stage')"
# every box by name: where it lies in the picture, and what it is at this pass
BOXES = f"""() => {{
  const {{ pane, model }} = {STAGE}.hloscope;
  return Object.fromEntries(pane.boxes()
    .filter((b) => b.selection.kind === 'instruction' && b.life)
    .map((b) => [model.name(b.selection.index), [b.x, b.y, b.w, b.h, b.life]]));
}}"""
KEPT, ADDED, REMOVED, CHANGED = 1, 2, 3, 4


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import hloscope as hs

    return hs.read(write_passes(tmp_path_factory.mktemp("dump")))


@pytest.fixture
def file(capture: Any, renderer: Path, tmp_path: Path) -> Path:
    return Path(capture.to_html(tmp_path / "passes.html", passes=True))


def opened(page: Page) -> Page:
    """Go to the first change; the panel opens at the pass that made most."""
    page.get_by_role("tab", name="Passes").click()
    page.wait_for_selector(".pass-bar")
    assert title(page) == "fusion"
    page.keyboard.press("Home")
    assert title(page) == "before any pass"
    page.keyboard.press("j")
    return page


def title(page: Page) -> str:
    return page.locator(".pass-title strong").inner_text()


def colour(page: Page, x: float, y: float) -> list[int]:
    """The colour of a point of the picture."""
    found: list[int] = page.evaluate(
        f"""([x, y]) => {{
        const canvas = {STAGE}.querySelector('canvas');
        const k = canvas.width / canvas.clientWidth;
        return [...canvas.getContext('2d').getImageData(x * k, y * k, 1, 1).data]; }}""",
        [x, y],
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_stepping_moves_nothing_that_stays(
    open_page: Callable[..., Page], file: Path, scheme: str, page_errors: list[str]
) -> None:
    page = opened(open_page(file.as_uri(), color_scheme=scheme, width=1500, height=900))
    places: dict[str, list[float]] = {}
    seen = [title(page)]
    for key in ("ArrowRight", "j", "j", "ArrowRight"):
        now = page.evaluate(BOXES)
        for name, (*place, _) in now.items():
            assert places.setdefault(name, place) == place, f"{name} moved at {seen[-1]}"
        page.keyboard.press(key)
        seen.append(title(page))
    assert seen == ["algsimp", "dce", "shardy-xla", "layout-assignment", "fusion"]
    now = page.evaluate(BOXES)
    assert now["tanh_neg_fusion"][4] == ADDED
    assert now["tanh.7"][4] == REMOVED
    assert now["dot_general.5"][4] == KEPT
    assert "scaled" not in now
    page.wait_for_timeout(300)
    page.screenshot(path=Path(__file__).parent / "shots" / f"passes_{scheme}.png")
    for key, name in (("k", "layout-assignment"), ("ArrowLeft", "shardy-xla")):
        page.keyboard.press(key)
        assert title(page) == name
    assert "5 renamed" in page.locator(".pass-did").inner_text()
    assert not page_errors


@pytest.mark.parametrize("width", [1500, 700])
def test_the_picture_keeps_its_place_whatever_is_said_of_a_pass(
    open_page: Callable[..., Page], file: Path, width: int
) -> None:
    page = opened(open_page(file.as_uri(), width=width, height=900))
    page.keyboard.press("Home")
    said, places = set(), set()
    for _ in range(6):
        page.wait_for_timeout(150)
        said.add(bool(page.locator(".pass-about").inner_text().strip()))
        box = page.locator(".stage-graph").bounding_box()
        assert box
        places.add((box["x"], box["y"], box["width"], box["height"]))
        page.keyboard.press("j")
    assert said == {True, False}
    assert len(places) == 1


def test_additions_and_removals_have_colours_and_a_key(
    open_page: Callable[..., Page], file: Path
) -> None:
    page = opened(open_page(file.as_uri(), width=1500, height=900))
    for _ in range(4):
        page.keyboard.press("j")
    page.wait_for_timeout(400)
    at = page.evaluate(
        f"""() => {{ const {{ pane, model }} = {STAGE}.hloscope;
        return Object.fromEntries(pane.boxes().filter((b) => b.selection.kind === 'instruction')
          .map((b) => [model.name(b.selection.index), pane.locate(b.selection)])); }}"""
    )
    found = {}
    for name in ("tanh_neg_fusion", "tanh.7", "dot_general.5"):
        box = at[name]
        # of the fusion, which is open, its title
        right, low = box["x"] + box["width"] - 60, box["y"] + 8
        at_place = (
            (right, low) if "fusion" in name else (box["x"] + 4, box["y"] + box["height"] - 6)
        )
        found[name] = tuple(colour(page, *at_place)[:3])
    assert found["tanh_neg_fusion"] == (0xA9, 0xDF, 0xC6)
    assert found["tanh.7"] == (0xF6, 0xCF, 0xC4)
    assert found["dot_general.5"] == (0xE9, 0xEE, 0xF4)
    key = page.locator(".pass-key").inner_text().split()
    assert key == ["kept", "+", "added", "−", "removed", "~", "changed"]


def test_text_and_history_of_a_pass(open_page: Callable[..., Page], file: Path) -> None:
    page = opened(open_page(file.as_uri(), width=1500, height=900))
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("x")
    lines = page.locator(".pass-diff .code-line")
    assert "%copy.3 = f32[8,8]{1,0} copy(%dot_general.5)" in " ".join(lines.all_inner_texts())
    page.locator(".pass-diff .code-line.added", has_text="%copy.3 =").click()
    told = page.locator(".pass-life").inner_text()
    assert "It appeared in layout-assignment, pass 5 of 6" in told
    assert "It is in the program that runs." in told
    page.keyboard.press("j")
    page.locator(".pass-diff .code-line.removed", has_text="%tanh.7 =").click()
    told = page.locator(".pass-life").inner_text()
    assert "It was gone after fusion" in told
    assert "%tanh.20" in told
    row = page.locator(".pass-row[data-row='1']")
    row.click()
    assert title(page) == "algsimp"
    # closing the panel gives the program's own graph back
    page.get_by_role("tab", name="Details").click()
    assert page.locator(".stage").count() == 0


def test_details_tell_when_an_instruction_appeared(
    open_page: Callable[..., Page], file: Path
) -> None:
    page = open_page(file.as_uri(), width=1500, height=900)
    page.get_by_role("tab", name="Details").click()
    page.evaluate(
        """() => {
        const root = document.querySelector('#hloscope').shadowRoot.querySelector('.root');
        const { model, store } = root.hloscope;
        for (let i = 0; i < model.instruction.count; i++)
          if (model.name(i) === 'copy.3') store.selectInstruction(i); }"""
    )
    page.get_by_role("button", name="When did it appear?").click()
    page.wait_for_selector("text=It appeared in")
    assert "layout-assignment" in page.locator(".panel").inner_text()


def test_a_page_says_why_passes_are_left_out(
    open_page: Callable[..., Page], capture: Any, renderer: Path, tmp_path: Path
) -> None:
    from hloscope.show.html import page as whole

    small = tmp_path / "small.html"
    small.write_text(whole(capture, passes=True, passes_limit_bytes=10), encoding="utf-8")
    page = open_page(small.as_uri())
    page.get_by_role("tab", name="Passes").click()
    page.wait_for_selector("text=over this page's limit")
    none = tmp_path / "none.html"
    none.write_text(capture.html(), encoding="utf-8")
    page = open_page(none.as_uri())
    assert page.get_by_role("tab", name="Passes").count() == 0


def live(
    open_page: Callable[..., Page], renderer: Path, capture: Any, there: str, more: str = "",
    scheme: str = "light",
) -> Page:  # fmt: skip
    page = open_page("about:blank", width=1400, height=900, color_scheme=scheme)
    from hloscope.show import blocks

    found = widget(
        page, renderer, capture, "{height: 700}", before=f"state._passes = {there!r};{more}"
    )
    found.evaluate(
        "(b) => { window.passes = bytes(b); }",
        base64.b64encode(blocks.passes(capture)).decode(),
    )
    return found


def test_the_widget_shows_progress_and_cancels(
    open_page: Callable[..., Page], renderer: Path, capture: Any, page_errors: list[str]
) -> None:
    page = live(open_page, renderer, capture, "compile")
    page.get_by_role("tab", name="Passes").click()
    page.wait_for_selector("text=This compiles the program once more.")
    assert page.evaluate("sent.filter((m) => m.kind === 'passes').length") == 0
    page.get_by_role("button", name="Show the passes").click()
    page.evaluate(
        "say('msg:custom', {kind: 'progress', id: sent.find((m) => m.kind === 'passes').id,"
        " done: 3, of: 9, words: 'Comparing the passes'})"
    )
    page.wait_for_selector("text=Comparing the passes: 3 of 9 passes")
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("text=Cancelled.")
    asked = page.evaluate("sent.find((m) => m.kind === 'passes').id")
    assert page.evaluate("sent.find((m) => m.kind === 'cancel').id") == asked
    page.get_by_role("button", name="Try again").click()
    page.evaluate("window.last = sent.filter((m) => m.kind === 'passes').at(-1).id")
    page.evaluate("say('msg:custom', {kind: 'passes', id: last}, [passes])")
    page.wait_for_selector(".pass-bar")
    page.evaluate(
        "say('msg:custom', {kind: 'cost', id: last, row: 1,"
        " cost: {flops: 1024, bytes_accessed: 768, peak_bytes: null, shapes: 'global'}})"
    )
    page.wait_for_timeout(500)
    assert "768 B" in page.locator(".pass-row[data-row='1']").inner_text()
    before = page.evaluate(BOXES)
    page.keyboard.press("k")
    after = page.evaluate(BOXES)
    both = set(before) & set(after)
    assert len(both) > 2
    assert all(before[n][:4] == after[n][:4] for n in both)
    assert not page_errors


TIMES = {
    "total": 2.0,
    "parts": [{"name": "passes of this list", "seconds": 0.5},
              {"name": "code generation", "seconds": 1.5}],
    "slowest": [{"pipeline": "partitioner", "name": "fusion", "seconds": 0.4, "times": 1, "row": 5},
                {"pipeline": "none", "name": "quiet", "seconds": 0.2, "times": 3, "row": -1}],
    "seconds": [None, 0.01, 0.02, None, 0.05, 0.4],
    "others": [0, 0.1, 0, 0, 0, 0.02],
    "note": "Said of the times.",
}  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_widget_measures_the_passes_and_shows_their_time(
    open_page: Callable[..., Page], renderer: Path, capture: Any, scheme: str,
    page_errors: list[str],
) -> None:  # fmt: skip
    page = live(open_page, renderer, capture, "kept", "state._measures = true;", scheme)
    page.get_by_role("tab", name="Passes").click()
    page.wait_for_function("sent.some((m) => m.kind === 'passes')")
    page.evaluate("window.last = sent.find((m) => m.kind === 'passes').id")
    page.evaluate("say('msg:custom', {kind: 'passes', id: last}, [passes])")
    page.evaluate("say('msg:custom', {kind: 'done', id: last})")
    page.wait_for_selector(".pass-bar")
    assert "Time" not in page.locator(".pass-head").inner_text()
    measure = page.get_by_role("button", name="measure the passes")
    measure.click()
    page.wait_for_selector("text=Compiling once more, to measure every pass")
    page.evaluate("window.asked = sent.filter((m) => m.kind === 'measure').at(-1).id")
    page.evaluate(
        "say('msg:custom', {kind: 'error', id: asked, message: 'CaptureError: no profiler'})"
    )
    page.wait_for_selector("text=CaptureError: no profiler")
    measure.click()
    page.evaluate("window.asked = sent.filter((m) => m.kind === 'measure').at(-1).id")
    page.evaluate("(times) => say('msg:custom', {kind: 'times', id: asked, times})", TIMES)
    page.wait_for_selector("text=Compiled in 2 s, measured once: mostly code generation")
    assert measure.count() == 0
    rows = page.locator(".pass-rows")
    fusion = rows.locator(".pass-row[data-row='5'] .took")
    assert fusion.inner_text() == "400 ms"
    assert rows.locator(".pass-row[data-row='3'] .took").inner_text() == "·"
    simplified = rows.locator(".pass-pipeline", has_text="simplification").locator(".took")
    assert simplified.inner_text() == "130 ms", "10 + 20, and 100 of passes without a row"

    def wide(cell: Any) -> float:
        return float(cell.locator("i").evaluate("(e) => e.getBoundingClientRect().width"))

    assert wide(simplified) / wide(fusion) == pytest.approx(130 / 400, rel=0.05)
    page.locator(".pass-times summary").click()
    told = page.locator(".pass-times").inner_text()
    assert "code generation\n1.5 s · 75 %" in told
    assert "quiet ×3" in told
    assert "Said of the times." in told
    page.screenshot(path=Path(__file__).parent / "shots" / f"pass_times_{scheme}.png")
    rows.locator(".pass-row[data-row='1']").click()
    page.locator(".pass-times button.bar", has_text="fusion").click()
    assert title(page) == "fusion"
    assert "time, measured\n400 ms\n20 % of 2 s" in page.locator(".pass-figures").inner_text()
    assert not page_errors


def test_a_kernel_that_fails_is_quoted(
    open_page: Callable[..., Page], renderer: Path, capture: Any
) -> None:
    page = live(open_page, renderer, capture, "kept")
    page.get_by_role("tab", name="Passes").click()
    page.wait_for_function("sent.some((m) => m.kind === 'passes')")
    page.evaluate(
        "say('msg:custom', {kind: 'error', id: sent.find((m) => m.kind === 'passes').id,"
        " message: 'ReadError: the dump is gone'})"
    )
    page.wait_for_selector("text=The passes are missing: ReadError: the dump is gone")
