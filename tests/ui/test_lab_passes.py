"""Passes in JupyterLab: for a document in a dump folder, and for a live output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from corpus.by_hand import write_passes
from lab_server import Server, code_cell, notebook, open_file, open_lab, run_command
from lab_server import wait_idle as idle

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

END = "module_0001.jit_step.cpu_after_optimizations.txt"
MIDDLE = "module_0001.jit_step.0002.simplification.after_dce.before_pipeline-end.txt"
# every box by name: where it lies in the picture, and what it is at this pass
BOXES = """(stage) => {
  const { pane, model } = stage.hloscope;
  return Object.fromEntries(pane.boxes()
    .filter((b) => b.selection.kind === 'instruction' && b.life)
    .map((b) => [model.name(b.selection.index), [b.x, b.y, b.w, b.h, b.life]]));
}"""
KEPT, ADDED, REMOVED, CHANGED = 1, 2, 3, 4

VIEWPORT = {"width": 1400, "height": 950}


@pytest.fixture(scope="module")
def server(server: Server) -> Server:
    write_passes(server.root / "dump")
    return server


def title(view: Any) -> str:
    return str(view.locator(".pass-title strong").inner_text())


def step_through(view: Any, *names: str) -> dict[str, Any]:
    """Step from the start through these passes; boxes must stay in place. Return the last ones."""
    view.locator(".pass-rows").focus()
    view.page.keyboard.press("Home")
    stage = view.locator(".stage")
    places: dict[str, list[float]] = {}
    boxes: dict[str, Any] = {}
    for name in names:
        view.page.keyboard.press("j")
        expect(view.locator(".pass-title strong")).to_have_text(name)
        boxes = stage.evaluate(BOXES)
        for box, (*place, _) in boxes.items():
            assert places.setdefault(box, place) == place, f"{box} moved at {name}"
    return boxes


EVERY = ("algsimp", "dce", "shardy-xla", "layout-assignment", "fusion")


def test_a_document_in_a_dump_folder_offers_its_passes(
    server: Server, new_page: Callable[[], Page], shots: Path
) -> None:
    page = new_page()
    open_lab(page, server, "passes-document")
    pane = open_file(page, f"dump/{END}", "HLO explorer")
    pane.get_by_role("tab", name="Passes").click()
    expect(pane.locator(".pass-bar")).to_be_visible()
    assert title(pane) == "fusion", "it begins where most was made"
    boxes = step_through(pane, *EVERY)
    assert boxes["tanh_neg_fusion"][4] == ADDED
    assert boxes["tanh.7"][4] == REMOVED
    assert boxes["dot_general.5"][4] == KEPT
    # figures appear after the picture
    expect(pane.locator(".pass-row[data-row='5']")).to_contain_text("B")
    page.keyboard.press("x")
    expect(pane.locator(".pass-diff .code-line.added").first).to_be_visible()
    pane.screenshot(path=shots / "passes-document.png")
    # what is selected in the passes is selected in the program
    pane.locator(".pass-diff .code-line.added", has_text="%tanh_neg_fusion =").click()
    expect(pane.locator(".pass-life")).to_contain_text("It appeared in fusion")
    pane.get_by_role("tab", name="Details", exact=True).click()
    expect(pane.locator(".panel")).to_contain_text("tanh_neg_fusion")


def test_a_dump_from_the_middle_opens_where_it_stands(
    server: Server, new_page: Callable[[], Page]
) -> None:
    page = new_page()
    open_lab(page, server, "passes-middle")
    pane = open_file(page, f"dump/{MIDDLE}", "HLO explorer")
    pane.get_by_role("tab", name="Passes").click()
    expect(pane.locator(".pass-title strong")).to_have_text("dce")


def test_a_file_without_passes_offers_none(server: Server, new_page: Callable[[], Page]) -> None:
    (server.root / "plain.hlo").write_text((server.root / "dump" / END).read_text())
    page = new_page()
    open_lab(page, server, "passes-none")
    pane = open_file(page, "plain.hlo")
    expect(pane.get_by_role("tab", name="Details", exact=True)).to_be_visible()
    expect(pane.get_by_role("tab", name="Passes")).to_have_count(0)


def test_large_passes_are_asked_for_and_can_be_cancelled(
    server: Server, new_page: Callable[[], Page]
) -> None:
    """Dumps of megabytes: the size first, then progress, and Cancel ends the process."""
    folder = write_passes(server.root / "large")
    for file in folder.iterdir():
        # comments are read and skipped: they only take time
        file.write_text(file.read_text() + "// nothing more\n" * 600_000)
    page = new_page()
    open_lab(page, server, "passes-large")
    pane = open_file(page, f"large/{END}", "HLO explorer")
    pane.get_by_role("tab", name="Passes").click()
    expect(pane.get_by_text("MB together for this")).to_be_visible()
    pane.get_by_role("button", name="Show the passes").click()
    expect(pane.locator(".pass-words")).to_contain_text("of 9 passes")
    assert server.children()
    pane.get_by_role("button", name="Cancel").click()
    expect(pane.get_by_text("Cancelled.")).to_be_visible()
    for _ in range(100):
        if not server.children():
            break
        page.wait_for_timeout(100)
    assert not server.children(), "a process goes on that nobody waits for"
    pane.get_by_role("button", name="Try again").click()
    expect(pane.locator(".pass-bar")).to_be_visible()


def test_in_a_live_output(server: Server, new_page: Callable[[], Page], shots: Path) -> None:
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    (server.root / "live.ipynb").write_text(
        notebook(code_cell("import hloscope as hs\ncap = hs.read('dump')\ncap"))
    )
    page = new_page()
    open_lab(page, server, "passes-live")
    run_command(page, "docmanager:open", {"path": "live.ipynb"})
    idle(page)
    run_command(page, "notebook:run-all-cells")
    live = page.locator(".hloscope-saved.hloscope-live").first
    expect(live.get_by_text("jit_step", exact=True).first).to_be_visible()
    live.get_by_role("tab", name="Passes").click()
    expect(live.locator(".pass-bar")).to_be_visible()
    boxes = step_through(live, *EVERY)
    assert boxes["tanh_neg_fusion"][4] == ADDED
    live.screenshot(path=shots / "passes-notebook.png")
