"""The side panel of JupyterLab: the notebook's captures, live or saved, and its buttons."""

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
    compared_pictures,
    notebook,
    open_lab,
    run_command,
    serious_violations,
    wait_idle,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

MODULE = """HloModule jit_one, is_scheduled=true, num_partitions=2

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  %tanh.1 = f32[64,64]{1,0} tanh(%p)
  ROOT %ar = f32[64,64]{1,0} all-reduce(%tanh.1), channel_id=1, replica_groups={{0,1}}, \
use_global_device_ids=true, to_apply=%add
}
"""
FIRST = "import hloscope as hs\none = hs.read('one.hlo')\none"
SECOND = "hs.read('two.hlo')"
COUNT = """() => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  window.asked = [];
  const execute = kernel.requestExecute.bind(kernel);
  kernel.requestExecute = (content, ...rest) => {
    if (content.silent) window.asked.push(kernel.status);
    return execute(content, ...rest);
  };
}"""

VIEWPORT = {"width": 1500, "height": 850}


@pytest.fixture(scope="module")
def server(server: Server) -> Server:
    (server.root / "one.hlo").write_text(MODULE)
    two = MODULE.replace("jit_one", "jit_two").replace(" tanh(", " cosine(")
    (server.root / "two.hlo").write_text(two)
    return server


def panel(page: Page) -> Any:
    return page.locator("#hloscope-captures")


def rows(page: Page) -> Any:
    return panel(page).locator("li")


def open_notebook(page: Page, server: Server, name: str, *cells: str) -> None:
    """Open the notebook with the side panel open; create it from ``cells`` if it does not exist."""
    if not (server.root / name).exists():
        (server.root / name).write_text(notebook(*(code_cell(c) for c in cells)))
    open_lab(page, server, name.split(".")[0])
    run_command(page, "hloscope:show-captures")
    run_command(page, "docmanager:open", {"path": name})
    wait_idle(page)


def test_rows_follow_the_notebook(
    server: Server, new_page: Callable[[], Page], shots: Path
) -> None:
    page = new_page()
    open_lab(page, server, "rows")
    run_command(page, "hloscope:show-captures")
    expect(panel(page)).to_contain_text("Open a notebook")
    open_notebook(page, server, "rows.ipynb", FIRST, SECOND, "import time; time.sleep(3)")
    expect(panel(page)).to_contain_text("%hlo step(params, batch)")
    page.evaluate(COUNT)
    run_command(page, "notebook:run-all-cells")
    # immediately, while the last cell still runs
    expect(rows(page)).to_have_count(2)
    assert page.evaluate(
        "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'"
    )
    expect(rows(page).nth(0).get_by_role("button", name="one", exact=True)).to_be_visible()
    expect(rows(page).nth(0)).to_contain_text("jit_one")
    expect(rows(page).nth(0)).to_contain_text("3 instructions · peak")
    expect(rows(page).nth(0)).to_contain_text("1 collective, 16 KiB sent")
    expect(rows(page).nth(1).get_by_role("button", name="jit_two", exact=True)).to_be_visible()
    wait_idle(page)
    page.wait_for_timeout(1500)
    page.screenshot(path=shots / "captures.png")
    # the kernel was queried only when idle, and not repeatedly
    asked = page.evaluate("window.asked")
    assert asked
    assert set(asked) == {"idle"}
    assert len(asked) <= 3
    assert serious_violations(page, "#hloscope-captures") == []
    # another notebook has its own list
    (server.root / "other.ipynb").write_text(notebook(code_cell("1 + 1")))
    run_command(page, "docmanager:open", {"path": "other.ipynb"})
    expect(panel(page).get_by_role("heading")).to_have_text("Captures in other.ipynb")
    expect(rows(page)).to_have_count(0)
    run_command(page, "docmanager:open", {"path": "rows.ipynb"})
    expect(rows(page)).to_have_count(2)
    # removed from the list, and back when its cell runs again
    rows(page).nth(1).get_by_role("button", name="Remove jit_two from this list").click()
    expect(rows(page)).to_have_count(1)
    page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".cm-content").click()
    run_command(page, "notebook:run-cell")
    expect(rows(page)).to_have_count(2)
    page.locator(".jp-Notebook .jp-CodeCell").nth(0).locator(".cm-content").click()
    run_command(page, "notebook:clear-cell-output")
    expect(rows(page)).to_have_count(1)


def test_buttons_and_a_kernel_that_restarts(
    server: Server, new_page: Callable[[], Page], shots: Path
) -> None:
    page = new_page()
    open_notebook(page, server, "buttons.ipynb", FIRST, SECOND)
    run_command(page, "notebook:run-all-cells")
    expect(rows(page)).to_have_count(2)
    wait_idle(page)
    # what names the capture is kept in the file
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    (kept,) = json.loads((server.root / "buttons.ipynb").read_text())["cells"][0]["outputs"]
    marker = kept["data"]["application/vnd.hloscope.view+json"]
    assert marker["name"] == "one"
    assert marker["instructions"] == 3
    # beside
    rows(page).nth(0).get_by_role("button", name="Open", exact=True).click()
    beside = page.locator(".hloscope-saved-document")
    expect(beside.get_by_text("jit_one", exact=True).first).to_be_visible()
    expect(beside.locator("canvas").first).to_be_visible()
    notebook_box, beside_box = page.locator(".jp-Notebook").bounding_box(), beside.bounding_box()
    assert notebook_box
    assert beside_box
    assert beside_box["x"] > notebook_box["x"] + 100
    # compare, in the same column
    rows(page).nth(0).get_by_role("button", name="Compare…").click()
    frame = page.frame_locator("iframe.hloscope-page")
    expect(frame.locator("h1")).to_have_text("jit_one ↔ jit_two")
    expect(frame.locator("del").first).to_have_text("tanh")
    # two pictures beside the tables, the change chosen and coloured in both
    assert compared_pictures(page) == {"hloscope": "tanh.1", "hloscope-second": "tanh.1"}
    assert page.locator("iframe.hloscope-page").get_attribute("sandbox") == (
        "allow-scripts allow-downloads"  # and not the Lab's origin
    )
    page.screenshot(path=shots / "captures-compared.png")
    # save
    rows(page).nth(0).get_by_role("button", name="Save HTML").click()
    expect(page.get_by_text("Saved one.html").first).to_be_attached()
    assert "Content-Security-Policy" in (server.root / "one.html").read_text()
    # a click on its name shows the output
    rows(page).nth(1).get_by_role("button", name="jit_two", exact=True).click()
    expect(page.locator(".hloscope-saved").nth(1)).to_be_in_viewport()
    # a new kernel does not have them
    page.evaluate(
        "void [...window.jupyterapp.shell.widgets('main')].find((w) => w.sessionContext)"
        ".sessionContext.session.kernel.restart()"
    )
    expect(rows(page).locator(".hloscope-capture-tag")).to_have_count(2)
    expect(panel(page).get_by_role("status")).to_contain_text("of a kernel that has ended")
    expect(rows(page).nth(0).get_by_role("button", name="Compare…")).to_be_disabled()
    expect(rows(page).nth(0).get_by_role("button", name="Open", exact=True)).to_be_enabled()
    page.screenshot(path=shots / "captures-restarted.png")
    # run its cell again: live again
    page.locator(".jp-Notebook .jp-CodeCell").nth(0).locator(".cm-content").click()
    run_command(page, "notebook:run-cell")
    expect(rows(page).locator(".hloscope-capture-tag")).to_have_count(1)
    expect(panel(page).get_by_role("status")).to_contain_text("1 of 2")


@pytest.fixture(scope="module")
def saved_output(renderer: Path) -> dict[str, Any]:
    """An output as a notebook keeps it, with a hostile marker and page."""
    import hloscope as hs

    data, _ = hs.read(MODULE)._repr_mimebundle_()
    (marker,) = (k for k in data if "hloscope" in k)
    evil = "'+__import__('os').system('touch planted')+'"
    data[marker] = {**data[marker], "id": evil, "title": "<img src=x onerror=window.planted=1>"}
    data["text/html"] = data["text/html"].replace("sandbox=", "data-was-sandbox=")
    return {"output_type": "display_data", "data": data, "metadata": {}}


def test_without_a_kernel_and_untrusted(
    server: Server, new_page: Callable[[], Page], saved_output: dict[str, Any]
) -> None:
    name = "saved-captures.ipynb"
    (server.root / name).write_text(notebook(code_cell("one", saved_output), kernel="gone"))
    page = new_page()
    open_lab(page, server, "saved-captures")
    run_command(page, "hloscope:show-captures")
    run_command(page, "docmanager:open", {"path": name})
    page.locator(".jp-Dialog select").select_option("null")
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    expect(rows(page)).to_have_count(1)
    expect(panel(page).get_by_role("status")).to_contain_text("No kernel")
    expect(rows(page).locator(".hloscope-capture-tag")).to_have_text("saved")
    expect(rows(page).nth(0)).to_contain_text("<img src=x")
    assert panel(page).locator("img").count() == 0
    rows(page).get_by_role("button", name="Open", exact=True).click()
    beside = page.locator(".hloscope-saved-document")
    expect(beside.locator("canvas").first).to_be_visible()
    # its page has scripts, and the notebook is not trusted
    rows(page).get_by_role("button", name="Save HTML").click()
    expect(page.locator(".jp-Dialog")).to_contain_text("Trust this notebook first")
    page.keyboard.press("Escape")
    assert not page.evaluate("window.planted")
    assert not list(server.root.glob("*img*.html"))


def test_by_keyboard_only(server: Server, new_page: Callable[[], Page]) -> None:
    page = new_page()
    open_notebook(page, server, "keyboard.ipynb", FIRST, SECOND)
    run_command(page, "notebook:run-all-cells")
    expect(rows(page)).to_have_count(2)
    wait_idle(page)
    rows(page).nth(0).get_by_role("button").first.focus()
    seen = []
    for _ in range(10):
        seen.append(page.evaluate("document.activeElement.textContent"))
        page.keyboard.press("Tab")
    buttons = ["×", "Open", "Save HTML", "Compare…"]
    assert seen == ["one", *buttons, "jit_two", *buttons]
    rows(page).nth(1).get_by_role("button", name="Open", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".hloscope-saved-document canvas").first).to_be_visible()


VIEWS = 4
RESTARTED = """async () => {
  const all = [...window.jupyterapp.shell.widgets('main')];
  const { kernel } = all.find((w) => w.sessionContext).sessionContext.session;
  await kernel.restart();
  await kernel.info;
  return kernel.status;
}"""
# Scrolls to a cell: JupyterLab attaches only the outputs near the viewport.
SCROLLED = """async (k) => {
  const { content } = window.jupyterapp.shell.currentWidget;
  await content.scrollToItem(k, 'center');
}"""


def test_a_kernel_restarts_under_four_views(server: Server, new_page: Callable[[], Page]) -> None:
    page = new_page()
    thrown: list[str] = []
    page.on("pageerror", lambda e: thrown.append(str(e)))
    texts = [MODULE.replace("jit_one", f"jit_{k}") for k in range(VIEWS)]
    for k, text in enumerate(texts):
        (server.root / f"four_{k}.hlo").write_text(text)
    shown = [f"import hloscope as hs\nhs.read('four_{k}.hlo')" for k in range(VIEWS)]
    open_notebook(page, server, "four.ipynb", *shown)
    run_command(page, "notebook:run-all-cells")
    expect(rows(page)).to_have_count(VIEWS)
    wait_idle(page)
    expect(rows(page).locator(".hloscope-capture-tag")).to_have_count(0)
    page.evaluate(RESTARTED)
    wait_idle(page)
    # each is marked as belonging to a kernel that has ended, and is still shown
    expect(rows(page).locator(".hloscope-capture-tag")).to_have_count(VIEWS)
    expect(panel(page).get_by_role("status")).to_contain_text("of a kernel that has ended")
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    for k in range(VIEWS):
        page.evaluate(SCROLLED, k)
        view = cells.nth(k).locator(".hloscope-saved")
        expect(view.locator("canvas").first).to_be_visible()
        expect(view.get_by_text(f"jit_{k}", exact=True).first).to_be_visible()
    # the new kernel shows the same, in the same places
    run_command(page, "notebook:run-all-cells")
    expect(rows(page).locator(".hloscope-capture-tag")).to_have_count(0)
    expect(rows(page)).to_have_count(VIEWS)
    wait_idle(page)
    # anywidget says so when a widget's module took over two seconds to load
    assert [e for e in thrown if e != "[anywidget] Failed to initialize model."] == []


def test_in_notebook_7(server: Server, new_page: Callable[[], Page]) -> None:
    pytest.importorskip("notebook", reason="notebook is not installed")
    (server.root / "seven.ipynb").write_text(notebook(code_cell(FIRST), code_cell(SECOND)))
    page = new_page()
    page.goto(f"{server.url}/notebooks/seven.ipynb?token={TOKEN}")
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.context?.isReady")
    wait_idle(page)
    run_command(page, "hloscope:show-captures")
    run_command(page, "notebook:run-all-cells")
    expect(rows(page)).to_have_count(2)
    wait_idle(page)
    rows(page).nth(0).get_by_role("button", name="Compare…").click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog.frame_locator("iframe.hloscope-page").locator("h1")).to_have_text(
        "jit_one ↔ jit_two"
    )
    dialog.locator(".jp-mod-accept").click()
    rows(page).nth(0).get_by_role("button", name="Open", exact=True).click()
    expect(page.locator(".jp-Dialog .hloscope-saved-document canvas").first).to_be_visible()
