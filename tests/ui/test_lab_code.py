"""Linked texts in outputs and documents of JupyterLab, stepping through all panes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import Server, code_cell, notebook, open_file, open_lab, run_command
from lab_server import wait_idle as idle

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("jax", reason="jax is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

CELL = "import code_program\ncap = code_program.capture()\ncap"

VIEWPORT = {"width": 1400, "height": 950}


@pytest.fixture(scope="module")
def server(server: Server) -> Server:
    shutil.copy(Path(__file__).with_name("code_program.py"), server.root)
    return server


LIT_IN_VIEW = """(stage) => {
  const box = stage.querySelector('.code-pane').getBoundingClientRect();
  return [...stage.querySelectorAll('.code-line.lit')].some((line) => {
    const { top, bottom } = line.getBoundingClientRect();
    return top >= box.top - 1 && bottom <= box.bottom + 1;
  });
}"""


def lit_comes_into_view(stage: Any) -> None:
    for _ in range(100):
        if stage.evaluate(LIT_IN_VIEW):
            return
        stage.page.wait_for_timeout(100)
    raise AssertionError("nothing that is lit is in view")


def walk_through(view: Any, words: dict[str, str]) -> None:
    """Point at and click a line of each text, and check all the others."""
    view.get_by_role("tab", name="Code", exact=True).click()
    text = {s: view.locator(f'.code-stage[data-stage="{s}"]') for s in words}
    picks = view.get_by_role("group", name="What is shown side by side")
    titles = {
        "source": "Source",
        "jaxpr": "jaxpr",
        "stablehlo": "StableHLO",
        "optimized": "Optimised HLO",
    }
    for stage in words:
        button = picks.get_by_role("button", name=titles[stage], exact=True)
        if button.get_attribute("aria-pressed") != "true":
            button.click()
    for stage, found in words.items():
        line = text[stage].locator(".code-line.linked", has_text=found).first
        line.locator("code").hover(position={"x": 30, "y": 9})
        for other in words:
            lit_comes_into_view(text[other])
        line.locator("code").click(position={"x": 30, "y": 9})
        expect(text[stage].locator(".code-line.pinned")).to_have_count(1)
        expect(view.locator(".told .said")).to_contain_text("became")
        view.get_by_role("button", name="unpin").click()
        expect(view.locator(".code-line.pinned")).to_have_count(0)


POINT_AT_BOX = """(root) => {
  const {pane, model} = root.hloscope;
  for (const box of pane.boxes()) {
    const s = box.selection;
    if (s.kind !== 'instruction' || !/dot|matmul|fusion/.test(model.name(s.index))) continue;
    pane.reveal(s.index);
    return s;
  }
}"""


def walk_through_graph(view: Any) -> None:
    """Point at a box and click it: its lines light up in every text and are pinned in the HLO."""
    root = view.locator(".root").first
    beside = view.get_by_role("group", name="What is shown side by side").get_by_role(
        "button", name="Graph", exact=True
    )
    if beside.get_attribute("aria-pressed") != "true":
        beside.click()
    canvas = root.locator(".graph canvas").first
    expect(canvas).to_be_visible()
    box = root.evaluate(POINT_AT_BOX)
    view.page.wait_for_timeout(700)  # the picture moves there
    at = root.evaluate("(root, box) => root.hloscope.pane.locate(box)", box)
    middle = {"x": at["x"] + at["width"] / 2, "y": at["y"] + at["height"] / 2}
    canvas.hover(position=middle)
    stages = view.locator(".code-stage")
    for k in range(stages.count()):
        lit_comes_into_view(stages.nth(k))
    canvas.click(position=middle)
    expect(view.locator('.code-stage[data-stage="optimized"] .pinned')).to_have_count(1)
    view.get_by_role("button", name="unpin").click()
    expect(view.locator(".code-line.pinned")).to_have_count(0)


LINES = {"source": "h = x @ w.T", "stablehlo": "stablehlo.dot_general"}


def test_in_a_live_output(server: Server, new_page: Callable[[], Page], shots: Path) -> None:
    (server.root / "live.ipynb").write_text(notebook(code_cell(CELL)))
    page = new_page()
    open_lab(page, server, "code-live")
    run_command(page, "docmanager:open", {"path": "live.ipynb"})
    idle(page)
    run_command(page, "notebook:run-all-cells")
    live = page.locator(".hloscope-saved.hloscope-live").first
    expect(live.get_by_text("jit_step", exact=True).first).to_be_visible()
    walk_through(live, {**LINES, "optimized": " = f32"})
    walk_through(live, {"jaxpr": " tanh ", "stablehlo": "stablehlo.tanh", "optimized": " tanh("})
    walk_through_graph(live)
    live.screenshot(path=shots / "code-notebook.png")


def test_in_a_saved_notebook_without_its_kernel(
    server: Server, new_page: Callable[[], Page], shots: Path
) -> None:
    """All comes from the saved output: texts, links, sentences, graph."""
    import code_program

    data, _ = code_program.capture()._repr_mimebundle_()
    gone = {"version_major": 2, "version_minor": 0, "model_id": "0" * 32}
    kept = {
        "output_type": "display_data",
        "data": {**data, "application/vnd.jupyter.widget-view+json": gone},
        "metadata": {},
    }
    (server.root / "saved.ipynb").write_text(notebook(code_cell("cap", kept), kernel="gone-kernel"))
    page = new_page()
    open_lab(page, server, "code-saved")
    run_command(page, "docmanager:open", {"path": "saved.ipynb"})
    choose = page.locator(".jp-Dialog select")
    expect(choose).to_be_visible()
    choose.select_option("null")
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    view = page.locator(".hloscope-saved")
    expect(view.get_by_text("jit_step", exact=True).first).to_be_visible()
    expect(page.locator(".hloscope-live")).to_have_count(0)
    walk_through(view, {**LINES, "optimized": " = f32"})
    walk_through(view, {"jaxpr": " tanh ", "stablehlo": "stablehlo.tanh", "optimized": " tanh("})
    walk_through_graph(view)
    view.screenshot(path=shots / "code-saved.png")


def test_in_a_document(server: Server, new_page: Callable[[], Page], shots: Path) -> None:
    """A dump has only its own text and the lines of its metadata; links are inferred."""
    import code_program

    (server.root / "step.hlo").write_text(code_program.capture().text)
    page = new_page()
    open_lab(page, server, "code-document")
    pane = open_file(page, "step.hlo")
    pane.get_by_role("tab", name="Code", exact=True).click()
    text = pane.locator('.code-stage[data-stage="optimized"]')
    line = text.locator(".code-line.linked", has_text=" = f32").first
    line.locator("code").click(position={"x": 30, "y": 9})
    expect(text.locator(".code-line.pinned")).to_have_count(1)
    expect(pane.locator('.code-stage[data-stage="source"] .code-line.lit').first).to_be_visible()
    expect(pane.get_by_text("inferred").first).to_be_visible()
    pane.screenshot(path=shots / "code-document.png")
