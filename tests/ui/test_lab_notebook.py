"""Notebooks in JupyterLab and Notebook 7: live views, saved views without a kernel, right-click."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import (
    TOKEN,
    Server,
    code_cell,
    notebook,
    open_lab,
    run_command,
    set_settings,
    wait_idle,
)
from test_snapshot import program

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

MODULE = """HloModule jit_saved

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  ROOT %tanh.2 = f32[64,64]{1,0} tanh(%p)
}
"""
WIDGET = "application/vnd.jupyter.widget-view+json"
GONE = {"version_major": 2, "version_minor": 0, "model_id": "0" * 32}
PLANT = "window.top.planted = true; window.planted = true;"

VIEWPORT = {"width": 1300, "height": 850}


@pytest.fixture(scope="module")
def server(server: Server) -> Server:
    (server.root / "step.hlo").write_text(MODULE)
    return server


@pytest.fixture(scope="module")
def saved_output(renderer: Path) -> dict[str, Any]:
    """The output of a capture as a notebook keeps it, with scripts planted throughout its HTML."""
    import hloscope as hs

    data, _ = hs.read(MODULE)._repr_mimebundle_()
    html = data["text/html"]
    evil = f'<script>{PLANT}</script><img src="x" onerror="{PLANT}">'
    inner = evil.replace("&", "&amp;").replace('"', "&quot;")
    assert 'srcdoc="' in html
    html = evil + html.replace('srcdoc="', f'srcdoc="{inner}', 1) + evil
    # no longer sandboxed: shown as HTML it would run
    html = html.replace("sandbox=", "data-was-sandbox=")
    data = {**data, "text/html": html, WIDGET: GONE}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def view(page: Page) -> Any:
    return page.locator(".hloscope-saved")


def planted(page: Page) -> bool:
    page.wait_for_timeout(500)
    return bool(page.evaluate("window.planted === true"))


def expect_saved(page: Page) -> None:
    expect(view(page).get_by_text("jit_saved", exact=True).first).to_be_visible()
    expect(view(page).locator("canvas").first).to_be_visible()
    expect(page.get_by_text("model not found")).to_have_count(0)
    assert not planted(page)


def test_without_a_kernel_and_untrusted(
    server: Server, new_page: Callable[[], Page], saved_output: dict[str, Any]
) -> None:
    file = server.root / "saved.ipynb"
    file.write_text(notebook(code_cell("cap", saved_output), kernel="gone-kernel"))
    page = new_page()
    open_lab(page, server, "saved")
    run_command(page, "docmanager:open", {"path": "saved.ipynb"})
    choose = page.locator(".jp-Dialog select")
    expect(choose).to_be_visible()
    choose.select_option("null")
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    expect_saved(page)
    assert page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.widgets[0].model.trusted === false"
    )
    assert (
        page.evaluate(
            "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel ?? null"
        )
        is None
    )
    # and the explorer works: a click on the text panel shows the saved text
    view(page).get_by_role("tab", name="Text").click()
    expect(view(page).get_by_text("tanh.2").first).to_be_attached()


def test_with_a_new_kernel(
    server: Server, new_page: Callable[[], Page], saved_output: dict[str, Any]
) -> None:
    (server.root / "new.ipynb").write_text(notebook(code_cell("cap", saved_output)))
    page = new_page()
    open_lab(page, server, "new")
    run_command(page, "docmanager:open", {"path": "new.ipynb"})
    expect_saved(page)
    wait_idle(page)
    expect_saved(page)


def test_live_and_still_live_after_a_reload(server: Server, new_page: Callable[[], Page]) -> None:
    source = "import hloscope as hs\ncap = hs.read('step.hlo')\ncap"
    (server.root / "live.ipynb").write_text(notebook(code_cell(source)))
    page = new_page()
    open_lab(page, server, "live")
    run_command(page, "docmanager:open", {"path": "live.ipynb"})
    wait_idle(page)
    run_command(page, "notebook:run-all-cells")
    expect(view(page).get_by_text("jit_saved", exact=True).first).to_be_visible()
    is_live = ".hloscope-saved.hloscope-live"
    expect(page.locator(is_live).first).to_be_attached()
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    kept = json.loads((server.root / "live.ipynb").read_text())["cells"][0]["outputs"][0]["data"]
    assert WIDGET in kept
    page.reload()
    page.wait_for_function("window.jupyterapp !== undefined")
    expect(view(page).get_by_text("jit_saved", exact=True).first).to_be_visible()
    expect(page.locator(is_live).first).to_be_attached()


STATE = """() => {
  for (const e of document.querySelector('.hloscope-saved').querySelectorAll('*')) {
    const root = e.shadowRoot?.querySelector('.root');
    if (!root?.hloscope) continue;
    const { pane, store } = root.hloscope;
    return {
      open: pane.place().open ?? '', selection: store.get('selection'),
      boxes: pane.stats().boxes, panel: store.get('options').panel,
    };
  }
  return null;
}"""


def test_what_is_open_selected_and_bookmarked_stays_in_the_saved_notebook(
    server: Server, new_page: Callable[[], Page]
) -> None:
    (server.root / "deep.hlo").write_text(program(8))
    source = "import hloscope as hs\ncap = hs.read('deep.hlo')\ncap"
    file = server.root / "kept.ipynb"
    file.write_text(notebook(code_cell(source)))
    page = new_page()
    open_lab(page, server, "kept")
    run_command(page, "docmanager:open", {"path": "kept.ipynb"})
    wait_idle(page)
    run_command(page, "notebook:run-all-cells")
    expect(page.locator(".hloscope-saved.hloscope-live").first).to_be_attached()
    expect(view(page).locator("canvas").first).to_be_visible()
    first = page.evaluate(STATE)
    view(page).get_by_role("button", name="Open all groups").click()
    view(page).get_by_role("tab", name="Memory", exact=True).click()
    marks = view(page).get_by_role("button", name="Bookmarks and link")
    marks.click()
    view(page).get_by_label("Name of the bookmark").fill("Closed")
    view(page).get_by_role("button", name="Add bookmark").click()
    expect(view(page).get_by_role("button", name="Closed", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    # the bookmark updated the output, and the explorer in it is the same
    expect(page.locator(".hloscope-saved.hloscope-live").first).to_be_attached()
    page.wait_for_timeout(600)  # a place is saved once nothing changes
    there = page.evaluate(STATE)
    assert there["boxes"] > first["boxes"]
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    saved = json.loads(file.read_text())
    marker = saved["cells"][0]["outputs"][0]["data"]["application/vnd.hloscope.view+json"]
    assert [b["name"] for b in marker["bookmarks"]] == ["Closed"]
    assert "open=" in marker["place"]

    # opened again when its kernel is gone
    saved["cells"][0]["outputs"][0]["data"][WIDGET] = GONE
    (server.root / "again.ipynb").write_text(json.dumps(saved))
    other = new_page()
    open_lab(other, server, "again")
    run_command(other, "docmanager:open", {"path": "again.ipynb"})
    expect(view(other).locator("canvas").first).to_be_visible()
    other.wait_for_timeout(600)
    again = other.evaluate(STATE)
    assert (again["open"], again["boxes"], again["panel"]) == (
        there["open"], there["boxes"], "memory",
    )  # fmt: skip
    # and what is done there is kept as well
    view(other).get_by_role("button", name="First picture again").click()
    view(other).get_by_role("button", name="Bookmarks and link").click()
    view(other).get_by_role("button", name="Closed", exact=True).click()
    other.wait_for_timeout(600)
    assert other.evaluate(STATE)["boxes"] == there["boxes"]
    view(other).get_by_role("button", name="Bookmarks and link").click()
    view(other).get_by_role("button", name="Remove Closed").click()
    other.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    other.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    kept = json.loads((server.root / "again.ipynb").read_text())["cells"][0]["outputs"][0]["data"]
    assert kept["application/vnd.hloscope.view+json"]["bookmarks"] == []


# An optimiser whose old state is kept beside the new.
UNDONATED = """
import hloscope as hs, jax, jax.numpy as jnp
def step(params, mean, x):
    grads = jax.grad(lambda p: (jnp.tanh(x @ p) ** 2).sum())(params)
    mean = 0.9 * mean + grads
    return params - 0.1 * mean / (1e-6 + jnp.abs(mean)), mean
shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((1024, 1024), (1024, 1024), (64, 1024))]
cap = hs.capture(step, *shapes, hardware="tpu-v5e")
cap
"""
GAINED = "proved: params, mean donated: peak"


def test_advice_is_tried_by_its_kernel_and_stays_without_it(
    server: Server, new_page: Callable[[], Page], shots: Path, tmp_path: Path
) -> None:
    file = server.root / "tried.ipynb"
    file.write_text(notebook(code_cell(UNDONATED)))
    page = new_page()
    open_lab(page, server, "tried")
    run_command(page, "docmanager:open", {"path": "tried.ipynb"})
    wait_idle(page)
    run_command(page, "notebook:run-all-cells")
    expect(page.locator(".hloscope-saved.hloscope-live").first).to_be_attached()
    view(page).get_by_role("tab", name="Findings", exact=True).click()
    card = view(page).locator(".finding", has_text="not donated").first
    card.get_by_role("button", name="Try it").click()
    expect(card.get_by_text(GAINED)).to_be_visible()
    with page.context.expect_page() as opened:
        card.get_by_role("button", name="Diff", exact=True).click()
    beside = opened.value
    beside.wait_for_selector(".pictures .toolbar")
    assert beside.locator(".toolbar").count() == 2
    # the widget that was asked is still the same one, and says what differs itself
    expect(card.get_by_text("What differs")).to_be_visible()
    page.screenshot(path=shots / "lab-tried.png")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    page.close()

    # opened again, with no kernel: a copy, as this server still runs that of the first
    saved = json.loads(file.read_text())
    file = server.root / "tried again.ipynb"
    file.write_text(notebook(*saved["cells"], kernel="gone-kernel"))
    other = new_page()
    open_lab(other, server, "again-tried")
    run_command(other, "docmanager:open", {"path": file.name})
    choose = other.locator(".jp-Dialog select")
    expect(choose).to_be_visible()
    choose.select_option("null")
    other.locator(".jp-Dialog button.jp-mod-accept").click()
    expect(view(other).locator("canvas").first).to_be_visible()
    expect(other.locator(".hloscope-live")).to_have_count(0)
    view(other).get_by_role("tab", name="Findings", exact=True).click()
    expect_tried(view(other).locator(".finding", has_text="not donated").first)
    other.screenshot(path=shots / "lab-tried-again.png")

    # and as a page, in which the frame is all that is left
    nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed")
    html, _ = nbconvert.HTMLExporter().from_filename(str(file))
    made = tmp_path / "tried.html"
    made.write_text(html)
    exported = new_page()
    exported.route("http*://**", lambda route: route.abort())
    exported.goto(made.as_uri())
    frame = exported.frame_locator("iframe[srcdoc]")
    expect_tried(frame.locator(".finding", has_text="not donated").first)


def expect_tried(card: Any) -> None:
    """What was gained, the code for it and the difference, without anything to press."""
    expect(card.get_by_text(GAINED)).to_be_visible()
    expect(card.get_by_text('jax.jit(step, donate_argnames=("params", "mean"))')).to_be_visible()
    card.get_by_text("What differs").click()
    expect(card.get_by_text("donated only in b: params, mean")).to_be_visible()
    for name in ("Try it", "Try again", "Open", "Diff"):
        expect(card.get_by_role("button", name=name, exact=True)).to_have_count(0)


def right_click(page: Page, cell: Any, word: str) -> None:
    """Choose Explore HLO in the context menu of a word of a cell."""
    cell.locator(".cm-content").scroll_into_view_if_needed()
    at = cell.locator(".cm-content").evaluate(
        """(content, word) => {
        const walk = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) {
          const from = walk.currentNode.data.indexOf(word);
          if (from < 0) continue;
          const range = document.createRange();
          range.setStart(walk.currentNode, from);
          range.setEnd(walk.currentNode, from + word.length);
          const box = range.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }
        throw new Error(`no ${word} in ${content.textContent}`);
        }""",
        word,
    )
    page.mouse.click(*at, button="right")
    page.locator(".lm-Menu").get_by_text("Explore HLO").click()


def test_explore_a_name_a_call_and_a_cell(server: Server, new_page: Callable[[], Page]) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    first = (
        "import jax, jax.numpy as jnp\ndef double(x): return jnp.tanh(x) * 2\nx = jnp.ones(4)\n"
        "lowered = jax.jit(double).lower(x)"
    )
    (server.root / "explore.ipynb").write_text(
        notebook(code_cell(first), code_cell("y = double(x) + 1"), code_cell("lowered, double(x)"))
    )
    page = new_page()
    open_lab(page, server, "explore")
    set_settings(page, {"hardware": "h100"})
    run_command(page, "docmanager:open", {"path": "explore.ipynb"})
    wait_idle(page)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    cells.nth(0).locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    # the name of a call, within a larger expression
    right_click(page, cells.nth(1), "double")
    expect(cells).to_have_count(4)
    expect(cells.nth(2).locator(".cm-content")).to_have_text(
        "%load_ext hloscope%hlo --hardware h100 double(x)"
    )
    expect(cells.nth(2).get_by_text("jit_double").first).to_be_visible(timeout=90_000)
    # the name of a program
    right_click(page, cells.nth(3), "lowered")
    expect(cells).to_have_count(5)
    expect(cells.nth(4).locator(".cm-content")).to_have_text("%hlo --hardware h100 lowered")
    expect(cells.nth(4).get_by_text("jit_double").first).to_be_visible(timeout=90_000)
    # a name that is neither: the cell
    cells.nth(3).locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.type("double(x)")
    right_click(page, cells.nth(3), "x")
    expect(cells).to_have_count(6)
    expect(cells.nth(4).locator(".cm-content")).to_have_text("%%hlo --hardware h100double(x)")
    expect(cells.nth(4).locator(".hloscope-saved canvas").first).to_be_visible(timeout=90_000)
    # the selection takes precedence over the pointer
    cells.nth(1).locator(".cm-content").click()
    page.keyboard.press("Home")
    for _ in "y = ":
        page.keyboard.press("ArrowRight")
    for _ in "double(x)":
        page.keyboard.press("Shift+ArrowRight")
    run_command(page, "hloscope:explore-code")
    expect(cells).to_have_count(7)
    expect(cells.nth(2).locator(".cm-content")).to_have_text("%hlo --hardware h100 double(x)")
    set_settings(page, {})


def test_in_notebook_7(
    server: Server, new_page: Callable[[], Page], saved_output: dict[str, Any]
) -> None:
    pytest.importorskip("notebook", reason="notebook is not installed")
    (server.root / "seven.ipynb").write_text(notebook(code_cell("cap", saved_output)))
    page = new_page()
    page.goto(f"{server.url}/notebooks/seven.ipynb?token={TOKEN}")
    expect_saved(page)
    page.goto(f"{server.url}/tree?token={TOKEN}")
    item = page.locator(".jp-DirListing-item:has-text('step.hlo')")
    with page.context.expect_page() as opened:
        item.dblclick()
    pane = opened.value.locator(".hloscope-pane")
    expect(pane.get_by_text("jit_saved", exact=True).first).to_be_visible()
