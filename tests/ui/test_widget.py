"""The anywidget front end with a mock of the notebook's model, in a real browser."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hloscope.show import blocks, static
from test_snapshot import program

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# A mock of the model that anywidget gives render(); `say` plays the kernel.
MODEL = """
window.state = {selection: {kind: 'none', index: -1, name: ''}, _options: {height: 500}};
window.sent = []; window.selected = 0; window.keys = 0;
const on = {};
const bytes = (b64) => {
  const raw = atob(b64), out = new Uint8Array(raw.length + 3);
  for (let k = 0; k < raw.length; k++) out[k + 3] = raw.charCodeAt(k);
  return new DataView(out.buffer, 3);  // kernels hand out views into bigger buffers
};
window.model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; if (name === 'selection') selected++; },
  save_changes: () => {},
  on: (event, f) => (on[event] ??= new Set()).add(f),
  off: (event, f) => on[event]?.delete(f),
  send: (content) => {
    sent.push(content);
    const block = window.chips?.[content.chip];
    if (block) say('msg:custom', {kind: 'chip', id: content.id}, [block]);
  },
};
window.say = (event, ...args) => { for (const f of [...(on[event] ?? [])]) f(...args); };
window.answer = (kind) =>
  say('msg:custom', {kind, id: sent.find((m) => m.kind === kind).id}, [window[kind]]);
window.listening = () => Object.values(on).reduce((n, s) => n + s.size, 0);
window.bytes = bytes;
document.addEventListener('keydown', () => { keys++; });
"""

ROOT = "document.querySelector('#out > div').shadowRoot.querySelector('.root')"


def widget(page: Page, renderer: Path, capture: Any, options: str, before: str = "") -> Page:
    """Render the widget of a capture in a blank page, with view and analyses both present.

    ``before`` is JavaScript that runs just before, such as setting more of ``state``.
    """
    page.set_content("<div id=out></div><button id=after>after</button>")
    page.evaluate(MODEL)
    page.evaluate(
        "([view, analyses, text]) => { state._view = bytes(view);"
        " state._analyses = bytes(analyses); window.text = bytes(text); }",
        [
            base64.b64encode(b).decode()
            for b in (blocks.view(capture), blocks.analyses(capture), blocks.text(capture))
        ],
    )
    chips = blocks.chips(capture, 2**20)
    page.evaluate(
        "(chips) => { window.chips = Object.fromEntries("
        " Object.entries(chips).map(([id, data]) => [id, bytes(data)])); }",
        {chip: base64.b64encode(made).decode() for chip, made in chips.items()},
    )
    page.evaluate(f"() => {{ state._options = {options}; {before} }}")
    code = base64.b64encode(static.widget_module("explorer").encode()).decode()
    page.evaluate(
        """async (code) => {
        const m = await import(`data:text/javascript;base64,${code}`);
        window.widget = m.default; window.out = document.getElementById('out');
        window.dispose = widget.render({model, el: out}); }""",
        code,
    )
    page.wait_for_selector(".toolbar")
    return page


@pytest.fixture
def page(
    open_page: Callable[..., Page], renderer: Path, tmp_path: Path, page_errors: list[str]
) -> Page:
    """A page with the widget rendered."""
    import hloscope as hs

    source = tmp_path / "step.hlo"
    source.write_text(program())
    return widget(open_page("about:blank"), renderer, hs.read(source), "{height: 500}")


def index_of(page: Page, name: str) -> int:
    found: int = page.evaluate(
        f"""(name) => {{ const {{model}} = {ROOT}.hloscope;
        for (let i = 0; i < model.instruction.count; i++) if (model.name(i) === name) return i;
        return -1; }}""",
        name,
    )
    return found


def test_selection_goes_both_ways_without_an_echo(page: Page, page_errors: list[str]) -> None:
    i = index_of(page, "dot.1")
    page.evaluate(f"(i) => {ROOT}.hloscope.store.selectInstruction(i)", i)
    assert page.evaluate("() => state.selection") == {
        "kind": "instruction",
        "index": i,
        "name": "dot.1",
    }
    told = page.evaluate("() => selected")
    j = index_of(page, "all-reduce.2")
    page.evaluate(
        "(index) => { state.selection = {kind: 'instruction', index, name: 'all-reduce.2'};"
        "say('change:selection'); }",
        j,
    )
    page.get_by_text("%all-reduce.2", exact=True).first.wait_for()
    assert page.evaluate("() => selected") == told, "what came from Python is not sent back"
    page.evaluate("() => { state.selection = {kind: 'group', index: 99999}; }")
    page.evaluate("() => say('change:selection')")
    assert page.evaluate(f"() => {ROOT}.hloscope.store.get('selection').kind") == "none"
    assert page_errors == []


def test_text_is_asked_for_once_and_matched_by_id(page: Page, page_errors: list[str]) -> None:
    assert page.evaluate("() => sent") == [], "nothing is asked before someone looks"
    page.get_by_role("tab", name="Text").click()
    page.wait_for_function("() => sent.length === 1")
    page.evaluate("() => say('msg:custom', {kind: 'text', id: -5}, [text])")
    assert page.locator(".text-line").count() == 0, "another widget's answer"
    page.evaluate("() => say('msg:custom', {kind: 'text', id: sent[0].id}, [text])")
    page.wait_for_selector(".text-line")
    page.get_by_role("tab", name="Details").click()
    page.get_by_role("tab", name="Text").click()
    page.wait_for_selector(".text-line")
    assert page.evaluate("() => sent.length") == 1
    assert page_errors == []


def test_an_error_from_the_kernel_is_shown_and_can_be_tried_again(page: Page) -> None:
    page.get_by_role("tab", name="Text").click()
    page.wait_for_function("() => sent.length === 1")
    page.evaluate(
        "() => say('msg:custom', {kind: 'error', id: sent[0].id, message: 'OSError: gone'}, [])"
    )
    page.get_by_text("OSError: gone").wait_for()
    page.get_by_role("button", name="Try again").click()
    page.wait_for_function("() => sent.length === 2")
    page.evaluate("() => say('msg:custom', {kind: 'text', id: sent[1].id}, [text])")
    page.wait_for_selector(".text-line")


def again(page: Page, options: str) -> None:
    """Render the widget again, with the analyses still to come from the kernel."""
    page.evaluate(
        f"() => {{ dispose(); window.analyses ??= state._analyses; sent.length = 0;"
        f" state._analyses = new DataView(new ArrayBuffer(0)); state._options = {options};"
        " window.dispose = widget.render({model, el: out}); }"
    )
    page.wait_for_function("() => sent.some((m) => m.kind === 'analyses')")


def test_analyses_come_after_the_picture_and_choices_wait_for_them(
    page: Page, page_errors: list[str]
) -> None:
    again(page, "{height: 500, colorBy: 'flops', panel: 'cost'}")
    assert page.evaluate("() => sent[0].kind") == "analyses"
    page.get_by_text("Computing cost, memory and collectives").wait_for()
    assert page.get_by_role("tab", name="Cost").count() == 0
    assert page.get_by_label("Colour by").input_value() == "family"
    page.evaluate("() => say('msg:custom', {kind: 'analyses', id: sent[0].id}, [analyses])")
    cost = page.get_by_role("tab", name="Cost")
    cost.wait_for()
    assert cost.get_attribute("aria-selected") == "true"
    assert page.get_by_label("Colour by").input_value() == "flops"
    page.locator(".legend").get_by_text("FLOP", exact=False).first.wait_for()
    assert not page.locator(".status .work").is_visible()
    names = page.get_by_role("tab").all_inner_texts()
    assert names[:3] == ["Findings", "Details", "Text"], names
    assert page_errors == []


def test_without_its_analyses_the_rest_works_and_says_why(page: Page) -> None:
    again(page, "{height: 500, colorBy: 'flops', panel: 'cost'}")
    page.evaluate(
        "() => say('msg:custom', {kind: 'error', id: sent[0].id, message: 'MemoryError: no'}, [])"
    )
    page.get_by_text("No cost, memory and collectives: MemoryError: no").wait_for()
    assert page.get_by_role("tab", name="Cost").count() == 0
    assert page.get_by_label("Colour by").input_value() == "family"
    page.get_by_role("tab", name="Text").click()
    page.wait_for_function("() => sent.length === 2")


REDRAWN = {
    "analyses come": "() => answer('analyses')",
    "the width changes": "() => { out.style.width = `${out.clientWidth - 4}px`; }",
    "something is lit": f"() => {ROOT}.hloscope.store.highlight("
    "{instructions: new Set([1, 2]), reason: 'test'})",
    "Python selects": "() => { state.selection = {kind: 'instruction', index: 0, name: ''};"
    " say('change:selection'); }",
}


def press(page: Page, target: Locator, meanwhile: str) -> list[str]:
    """Press, redraw the page meanwhile, release; return everything that was selected."""
    page.evaluate(
        f"""() => {{ const {{store, model}} = {ROOT}.hloscope; window.off?.();
        store.select({{kind: 'none', index: -1}}); window.chosen = [];
        window.off = store.on('selection', () => {{ const s = store.get('selection');
          chosen.push(s.kind === 'instruction' ? model.name(s.index) : s.kind); }}); }}"""
    )
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + min(30, box["width"] / 2), box["y"] + box["height"] / 2)
    page.mouse.down()
    page.evaluate(meanwhile)
    page.wait_for_timeout(100)
    page.mouse.up()
    page.wait_for_timeout(150)  # for what was deferred until the release
    found: list[str] = page.evaluate("() => chosen")
    return found


@pytest.mark.parametrize("redrawn", REDRAWN)
def test_a_click_is_not_lost_when_the_page_is_drawn_anew_under_it(
    page: Page, redrawn: str, page_errors: list[str]
) -> None:
    again(page, "{height: 700}")
    meanwhile = REDRAWN[redrawn]
    # Details: a link of the overview
    link = page.locator(".panel .link", has_text="dot.1").first
    assert press(page, link, meanwhile) == ["dot.1"]
    if redrawn == "analyses come":
        page.get_by_role("tab", name="Cost").wait_for()
        again(page, "{height: 700}")
    page.get_by_role("tab", name="Text").click()
    page.wait_for_function("() => sent.some((m) => m.kind === 'text')")
    page.evaluate("() => answer('text')")
    line = page.locator(".text-line", has_text="%all-reduce.2 =").locator(".number")
    assert press(page, line, meanwhile) == ["all-reduce.2"]
    if redrawn == "analyses come":
        page.get_by_role("tab", name="Cost").wait_for()
        again(page, "{height: 700}")
    page.get_by_label("Search instructions").fill("opcode:dot")
    result = page.locator(".result", has_text="dot.1")
    assert press(page, result, meanwhile) == ["dot.1"]
    if redrawn != "analyses come":
        page.evaluate(REDRAWN["analyses come"])
    page.get_by_role("tab", name="Collectives").click()
    row = page.locator(".collective-row[data-collective]").nth(1)
    assert press(page, row, meanwhile) == ["all-reduce.1"]
    page.get_by_role("tab", name="Outline").click()
    assert press(page, page.locator(".tree-row .clip").nth(1), meanwhile)[0] in ("group", "fold")
    assert page_errors == []


def test_a_click_that_ends_the_typing_of_a_number_counts(page: Page) -> None:
    page.get_by_role("tab", name="Cost").click()
    page.get_by_label("Chip").select_option("h100")
    page.locator(".chip-choice", has_text="H100").wait_for()
    page.get_by_text("Its numbers").click()
    time = page.locator("dt", has_text="Modelled time").locator("+ dd")
    before = time.inner_text()
    page.get_by_label("memory", exact=False).first.fill("1")
    found = press(page, page.locator(".figures-table .link").first, "() => {}")
    assert len(found) == 1
    assert time.inner_text() != before


def test_options_go_both_ways(page: Page) -> None:
    page.get_by_label("Colour by").select_option("bytes")
    assert page.evaluate("() => state._options.colorBy") == "bytes"
    assert page.evaluate(f"() => {ROOT}.clientHeight") == 498  # 500 including its border
    page.evaluate("() => { state._options = {...state._options, height: 400, theme: 'dark'}; }")
    page.evaluate("() => say('change:_options')")
    assert page.evaluate(f"() => {ROOT}.clientHeight") == 398
    assert page.evaluate(f"() => {ROOT}.classList.contains('dark')")


def test_keys_do_not_reach_the_notebook(page: Page) -> None:
    page.locator(".search input").click()
    page.keyboard.type("dot")
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    assert page.evaluate("() => keys") == 0
    host = "document.querySelector('#out > div')"
    assert page.evaluate(f"() => {host}.dataset.lmSuppressShortcuts") == "true"
    page.locator("#after").focus()
    page.keyboard.press("x")
    assert page.evaluate("() => keys") == 1


def test_disposing_leaves_nothing_behind(page: Page, page_errors: list[str]) -> None:
    page.get_by_role("tab", name="Text").click()
    page.wait_for_function("() => sent.length === 1")
    page.evaluate("() => dispose()")
    assert page.evaluate("() => listening()") == 0
    assert page.locator("#out > *").count() == 0
    page.wait_for_timeout(200)
    assert page_errors == []


def test_a_widget_without_data_says_so(page: Page) -> None:
    page.evaluate("() => { dispose(); state._view = new DataView(new ArrayBuffer(0)); }")
    page.evaluate("() => { window.dispose = widget.render({model, el: out}); }")
    page.get_by_role("alert").get_by_text("run the cell again").wait_for()
