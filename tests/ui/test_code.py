"""Source, jaxpr, StableHLO, the program and the graph side by side in a saved page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import code_program
import hloscope as hs
import pytest
from hloscope.show import blocks
from large_module import large_module

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
OpenPage = Callable[..., "Page"]
LIT_IN_VIEW = """(stage) => {
  const box = stage.querySelector('.code-pane').getBoundingClientRect();
  return [...stage.querySelectorAll('.code-line.lit')].some((line) => {
    const { top, bottom } = line.getBoundingClientRect();
    return top >= box.top - 1 && bottom <= box.bottom + 1;
  });
}"""


@pytest.fixture(scope="module")
def cap() -> Any:
    return code_program.capture(passes=True)


@pytest.fixture(scope="module")
def saved(cap: Any, renderer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(cap.to_html(tmp_path_factory.mktemp("code") / "step.html"))


@pytest.fixture
def page(saved: Path, open_page: OpenPage) -> Page:
    return opened(open_page(saved.as_uri(), width=1500, height=900))


def opened(page: Page) -> Page:
    page.get_by_role("tab", name="Code", exact=True).click()
    expect(text(page, "optimized").locator(".code-line").first).to_be_visible()
    return page


def text(page: Page, stage: str) -> Locator:
    return page.locator(f'.code-stage[data-stage="{stage}"]')


def line(page: Page, stage: str, words: str) -> Locator:
    return text(page, stage).locator(".code-line", has_text=words).first


def comes_into_view(page: Page, stage: str) -> None:
    """Wait until some lit line of a text is in view."""
    for _ in range(50):
        if text(page, stage).evaluate(LIT_IN_VIEW):
            return
        page.wait_for_timeout(100)
    raise AssertionError("nothing that is lit is in view")


def lit(page: Page, stage: str) -> list[str]:
    comes_into_view(page, stage)
    return [t.strip() for t in text(page, stage).locator(".code-line.lit code").all_inner_texts()]


def point(page: Page, stage: str, words: str) -> None:
    line(page, stage, words).locator("code").hover(position={"x": 30, "y": 9})


def click(page: Page, stage: str, words: str) -> None:
    line(page, stage, words).locator("code").click(position={"x": 30, "y": 9})


def said(page: Page) -> str:
    return str(page.locator(".told .said").inner_text())


def pointed(page: Page) -> list[str]:
    """Names of the instructions that the graph outlines."""
    return page.evaluate(
        """() => {
          const root = document.querySelector('#hloscope').shadowRoot.querySelector('.root');
          const {model, store} = root.hloscope;
          return [...(store.get('pointed') ?? [])].map((i) => model.name(i));
        }"""
    )


def choose(page: Page, *names: str) -> None:
    """Press the buttons of the named texts that are not yet shown."""
    picks = page.get_by_role("group", name="What is shown side by side")
    for name in names:
        button = picks.get_by_role("button", name=name, exact=True)
        if button.get_attribute("aria-pressed") != "true":
            button.click()


def test_it_opens_with_source_stablehlo_program_and_graph(
    page: Page, page_errors: list[str], shots: Path
) -> None:
    shown = [s.get_attribute("data-stage") for s in page.locator(".code-stage").all()]
    assert shown == ["source", "stablehlo", "optimized"]
    expect(page.locator(".graph canvas").first).to_be_visible()
    assert "exact" in said(page)
    # the same colour throughout: the line and its operations have one hue
    hues = {
        stage: line(page, stage, words).get_attribute("data-hues")
        for stage, words in [
            ("source", "h = x @ w.T"),
            ("stablehlo", "stablehlo.dot_general"),
        ]
    }
    assert hues["source"]
    assert len(set(hues.values())) == 1
    assert line(page, "source", "return jnp.tanh(h)").get_attribute("data-hues") != hues["source"]
    page.screenshot(path=shots / "code-light.png")
    assert page_errors == []


def test_pointing_at_each_text_lights_the_others(page: Page) -> None:
    choose(page, "jaxpr")  # a fourth replaces the first
    assert [s.get_attribute("data-stage") for s in page.locator(".code-stage").all()] == [
        "jaxpr",
        "stablehlo",
        "optimized",
    ]
    point(page, "jaxpr", "= tanh ")
    expect(text(page, "stablehlo").locator(".code-line.lit")).to_have_count(1)
    assert all("stablehlo.tanh" in t for t in lit(page, "stablehlo"))
    assert any("tanh" in t for t in lit(page, "optimized"))
    choose(page, "Source", "StableHLO", "Optimised HLO")
    point(page, "source", "h = x @ w.T")
    expect(text(page, "stablehlo").locator(".code-line.lit")).to_have_count(2)
    assert "transpose" in lit(page, "stablehlo")[0]
    assert "dot_general" in lit(page, "stablehlo")[1]
    point(page, "stablehlo", "stablehlo.tanh")
    expect(text(page, "source").locator(".code-line.lit code")).to_have_text(
        ["    return jnp.tanh(h)"]
    )
    assert pointed(page), "the graph outlines what does its work"
    point(page, "optimized", " tanh(")
    expect(text(page, "source").locator(".code-line.lit code")).to_have_text(
        ["    return jnp.tanh(h)"]
    )
    # the line that called it is marked as near
    expect(text(page, "source").locator(".code-line.near code")).to_have_text(
        ["        x = layer(x, w)"]
    )


def test_what_lights_comes_into_view(page: Page, cap: Any) -> None:
    body = text(page, "optimized").locator(".code-pane")
    body.evaluate("e => { e.scrollTop = 0 }")
    point(page, "source", "h = x @ w.T")
    comes_into_view(page, "optimized")
    dots = [i.name for i in cap.module.instructions if i.opcode == "dot"]
    assert any(name in t for name in dots for t in lit(page, "optimized"))


def test_a_click_pins_and_says_what_became_of_it(page: Page, cap: Any) -> None:
    dot = next(
        i
        for i in cap.module.instructions
        if i.opcode == "dot"
        and "call 2 of 3" in blocks.linked_stages(cap).stage("optimized").told[i.index]
    )
    click(page, "source", "h = x @ w.T")
    assert re.search(r"x @ w\.T in layer \(line \d+\) became 3 matmuls", said(page))
    assert "transpose-folding" in said(page)
    point(page, "source", "return jnp.tanh(h)")  # what is pinned stays pinned
    assert len(lit(page, "stablehlo")) == 2
    expect(text(page, "source").locator(".code-line.pinned")).to_have_count(1)
    # an instruction that is pinned is selected everywhere
    page.evaluate(
        """(name) => {
          const root = document.querySelector('#hloscope').shadowRoot.querySelector('.root');
          const {model, store} = root.hloscope;
          for (let i = 0; i < model.instruction.count; i++)
            if (model.name(i) === name) store.selectInstruction(i);
        }""",
        dot.name,
    )
    expect(page.locator(".told .said")).to_contain_text("in layer (call 2 of 3, line ")
    expect(text(page, "optimized").locator(".code-line.pinned")).to_contain_text(dot.name)
    expect(text(page, "optimized").locator(".code-line.pinned")).to_be_in_viewport()
    page.get_by_role("button", name="unpin").click()
    expect(page.locator(".code-line.pinned")).to_have_count(0)
    assert "exact" in said(page)


def test_a_click_in_the_program_selects_in_the_graph(page: Page) -> None:
    some = text(page, "optimized").locator(".code-line.linked").first
    words = some.locator("code").inner_text()
    some.locator(".number").click()
    name = page.evaluate(
        """() => {
          const root = document.querySelector('#hloscope').shadowRoot.querySelector('.root');
          const {model, store} = root.hloscope;
          const s = store.get('selection');
          return s.kind === 'instruction' ? model.name(s.index) : s.kind;
        }"""
    )
    assert words.strip().removeprefix("ROOT ").startswith(f"%{name} = ")
    comes_into_view(page, "source")
    page.keyboard.press("Escape")
    expect(page.locator(".code-line.pinned")).to_have_count(0)


def test_the_keyboard_goes_through_lines_and_texts(page: Page) -> None:
    body = text(page, "source").locator(".code-pane")
    body.focus()
    for _ in range(40):
        page.keyboard.press("ArrowDown")
        if "tanh" in text(page, "source").locator(".code-line.cursor").inner_text():
            break
    expect(text(page, "stablehlo").locator(".code-line.lit")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(text(page, "source").locator(".code-line.pinned")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    focused = page.evaluate(
        """() => document.querySelector('#hloscope').shadowRoot.activeElement
                 .closest('.code-stage').dataset.stage"""
    )
    assert focused == "stablehlo"
    page.keyboard.press("Escape")
    expect(page.locator(".code-line.pinned")).to_have_count(0)


def test_steps_through_several_lines(page: Page) -> None:
    click(page, "source", "h = x @ w.T")
    where = text(page, "optimized").locator(".where")
    count = int(where.inner_text().split()[0])
    assert count >= 3
    seen = set()
    for _ in range(count):
        text(page, "optimized").get_by_role("button", name="Next linked line").click()
        at = text(page, "optimized").locator(".code-line.cursor")
        expect(at).to_be_in_viewport()
        expect(at).to_have_class(re.compile(r"\blit\b"))
        seen.add(at.get_attribute("data-row"))
    assert len(seen) == count


def test_the_graph_gives_way_and_comes_back(page: Page) -> None:
    picks = page.get_by_role("group", name="What is shown side by side")
    picks.get_by_role("button", name="Graph").click()
    expect(page.locator(".graph canvas").first).to_be_hidden()
    picks.get_by_role("button", name="Graph").click()
    expect(page.locator(".graph canvas").first).to_be_visible()
    picks.get_by_role("button", name="Graph").click()
    page.get_by_role("tab", name="Details", exact=True).click()
    expect(page.locator(".graph canvas").first).to_be_visible()
    # the choice is restored
    page.get_by_role("tab", name="Code", exact=True).click()
    expect(page.locator(".graph canvas").first).to_be_hidden()


def test_narrow_and_dark(saved: Path, open_page: OpenPage, shots: Path) -> None:
    page = opened(open_page(saved.as_uri(), width=900, height=640, color_scheme="dark"))
    shown = [s.get_attribute("data-stage") for s in page.locator(".code-stage").all()]
    assert shown == ["source", "optimized"]
    widths = [s.evaluate("e => e.clientWidth") for s in page.locator(".code-stage").all()]
    assert min(widths) > 320
    click(page, "source", "h = x @ w.T")
    page.screenshot(path=shots / "code-dark.png")
    # text on tinted lines is legible
    ratio = page.evaluate(CONTRAST)
    assert ratio >= 4.5, ratio


CONTRAST = """() => {
  const root = document.querySelector('#hloscope').shadowRoot;
  const numbers = (c) => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (c) => numbers(c).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  let least = 99;
  for (const line of root.querySelectorAll('.code-line')) {
    const back = light(getComputedStyle(line).backgroundColor);
    for (const part of line.querySelectorAll('code, code span, .number')) {
      const front = light(getComputedStyle(part).color);
      least = Math.min(least, (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05));
    }
  }
  return least;
}"""


def test_light_lines_are_legible(page: Page) -> None:
    click(page, "source", "h = x @ w.T")
    assert page.evaluate(CONTRAST) >= 4.5


def test_what_was_chosen_is_kept_by_a_page(
    cap: Any, open_page: OpenPage, renderer: Path, tmp_path: Path
) -> None:
    cap.display |= {"panel": "code", "panes": "jaxpr,optimized"}
    try:
        path = Path(cap.to_html(tmp_path / "kept.html"))
    finally:
        cap.display.clear()
    page = open_page(path.as_uri(), width=1500, height=900)
    expect(text(page, "jaxpr").locator(".code-line").first).to_be_visible()
    shown = [s.get_attribute("data-stage") for s in page.locator(".code-stage").all()]
    assert shown == ["jaxpr", "optimized"]


def test_a_dump_without_marks_says_inferred(
    cap: Any, open_page: OpenPage, renderer: Path, tmp_path: Path, page_errors: list[str]
) -> None:
    path = hs.read(cap.text, sources=False).to_html(tmp_path / "dump.html")
    page = opened(open_page(Path(path).as_uri(), width=1500, height=900))
    expect(page.get_by_text("inferred links")).to_be_visible()
    assert "There is no jaxpr and no StableHLO: a dump does not hold them" in said(page)
    point(page, "source", "in layer")
    comes_into_view(page, "optimized")
    assert page_errors == []


def test_each_text_is_searched_as_a_whole(page: Page, cap: Any, page_errors: list[str]) -> None:
    """Including lines that are not in the page, which the browser's own search cannot find."""
    stage = text(page, "optimized")
    stage.locator(".code-pane").focus()
    page.keyboard.press("Control+f")
    lines = cap.text.split("\n")
    found = [k for k, words in enumerate(lines) if "tanh(" in words]
    assert len(found) >= 2
    page.keyboard.type("TANH(")
    where = stage.locator(".find-in .hits")
    expect(where).to_have_text(re.compile(rf"\d+ of {len(found)}"))
    begun = int(where.inner_text().split()[0]) - 1
    for by in (1, 1, -1):
        page.keyboard.press("Enter" if by > 0 else "Shift+Enter")
        begun = (begun + by) % len(found)
        expect(where).to_have_text(f"{begun + 1} of {len(found)}")
        at = stage.locator(".code-line.cursor")
        expect(at).to_be_in_viewport()
        expect(at).to_have_attribute("data-row", str(found[begun]))
        expect(at).to_have_class(re.compile(r"\bfound\b"))
    page.keyboard.press("Control+a")
    page.keyboard.type("no such words")
    expect(where).to_have_text("not found")
    page.keyboard.press("Escape")
    expect(stage.locator(".find-in")).to_be_hidden()
    # a line by its number
    page.keyboard.press("g")
    page.keyboard.type("7")
    expect(stage.locator('.code-line[data-row="6"]')).to_be_in_viewport()
    expect(stage.locator(".code-line.cursor")).to_have_attribute("data-row", "6")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    expect(stage.locator(".code-line.cursor")).to_have_attribute("data-row", "7")
    assert page_errors == []


def test_a_strip_shows_where_the_lit_lines_are(page: Page) -> None:
    click(page, "source", "h = x @ w.T")
    stage = text(page, "optimized")
    rows = [int(r) for r in stage.evaluate(ALL_LIT)]
    body = stage.locator(".code-pane")
    strip = stage.locator(".ruler")
    height = strip.evaluate("e => e.clientHeight")
    count = stage.evaluate("e => e.querySelector('.space').clientHeight / 19")
    painted = strip.evaluate(MARKS)
    for row in rows:
        y = row / count * height
        assert any(abs(y - mark) <= 3 for mark in painted), (row, y, painted)
        body.evaluate("e => { e.scrollTop = 0 }")
        strip.click(position={"x": 5, "y": min(height - 1, y)})
        expect(stage.locator(f'.code-line[data-row="{row}"]')).to_be_in_viewport()


# lit rows of a text, found by scrolling through it
ALL_LIT = """async (stage) => {
  const pane = stage.querySelector('.code-pane');
  const rows = new Set();
  for (let top = 0; top < pane.scrollHeight; top += 200) {
    pane.scrollTop = top;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    for (const line of pane.querySelectorAll('.code-line.lit')) rows.add(line.dataset.row);
  }
  return [...rows];
}"""
# heights at which the strip has a mark
MARKS = """(strip) => {
  const canvas = strip.querySelector('canvas');
  const { data } = canvas.getContext('2d').getImageData(5, 0, 1, canvas.height);
  const ratio = canvas.height / strip.clientHeight;
  return [...Array(canvas.height).keys()].filter((y) => data[4 * y + 3] > 0).map((y) => y / ratio);
}"""


def test_a_long_sentence_is_read_as_a_whole(page: Page, cap: Any) -> None:
    # names of StableHLO and of the program are shown as code, without backticks
    click(page, "source", "h = x @ w.T")
    said_here = page.locator(".told .said")
    expect(said_here.locator("code").first).to_have_text("x @ w.T")
    assert "`" not in said_here.inner_text()
    page.set_viewport_size({"width": 800, "height": 700})
    more = page.locator(".told").get_by_role("button", name="more")
    expect(more).to_be_visible()
    more.click()
    fits = "e => e.scrollHeight <= e.clientHeight + 1 || getComputedStyle(e).overflowY === 'auto'"
    assert said_here.evaluate(fits)
    page.locator(".told").get_by_role("button", name="less").click()
    assert said_here.evaluate("e => e.clientHeight") <= 38


def test_a_large_module_keeps_few_lines_in_the_page(
    open_page: OpenPage, renderer: Path, tmp_path: Path, page_errors: list[str]
) -> None:
    module = large_module(8)
    path = hs.read(module).to_html(tmp_path / "large.html")
    page = open_page(Path(path).as_uri(), width=1500, height=900)
    tab = page.get_by_role("tab", name="Code", exact=True)
    expect(tab).to_be_visible(timeout=60_000)
    tab.click()
    expect(text(page, "optimized").locator(".code-line").first).to_be_visible(timeout=60_000)
    assert page.locator(".code-line").count() < 400
    text(page, "optimized").locator(".code-line.linked code").first.hover(
        position={"x": 30, "y": 9}
    )
    expect(text(page, "source").locator(".code-line.lit").first).to_be_visible()
    assert page_errors == []


def test_what_is_copied_is_what_is_said_and_bears_no_mark(page: Page) -> None:
    page.evaluate(
        """() => {
          window.copied = [];
          const writeText = async (text) => { window.copied.push(text); };
          Object.defineProperty(navigator, 'clipboard', {value: {writeText}, configurable: true});
        }"""
    )
    click(page, "source", "h = x @ w.T")
    page.get_by_role("button", name="Copy this sentence").click()
    click(page, "optimized", " tanh(")
    page.get_by_role("tab", name="Details", exact=True).click()
    copies = page.get_by_role("tabpanel").get_by_role("button", name=re.compile("^Copy"))
    for button in copies.all():
        if button.is_visible():
            button.click()
    copied = page.evaluate("window.copied")
    assert "`x @ w.T` in `layer`" in copied[0]
    assert len(copied) > 1
    assert not [text for text in copied if re.search(r"~\d+~", text)]
