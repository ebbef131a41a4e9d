"""The explorer in live notebooks: JupyterLab 4, Notebook 7 and marimo, with real kernels."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import quickly
from lab_server import TOKEN, Server
from servers import free_port, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

REPO = Path(__file__).resolve().parents[2]

# Finds explorers through any number of shadow roots (marimo nests them).
FIND = """
window.explorers = () => {
  const out = [];
  const visit = (node) => {
    for (const e of node.querySelectorAll('*')) {
      if (!e.shadowRoot) continue;
      const root = e.shadowRoot.querySelector('.root');
      if (root?.hloscope) out.push(root);
      visit(e.shadowRoot);
    }
  };
  visit(document);
  return out;
};
"""
ROOT = "window.explorers()[0]"
HANDLE = f"{ROOT}.hloscope"


@pytest.fixture(scope="module")
def jupyter(server: Server) -> dict[str, Any]:
    """A Jupyter server for Lab and Notebook, serving a folder with both notebooks."""
    pytest.importorskip("notebook", reason="Notebook 7 is not installed")
    start = (REPO / "examples" / "start.ipynb").read_text()
    quick = start.replace("--xla_force_host", f"{quickly.flags()} --xla_force_host")
    quick = quick.replace("LAYERS, WIDTH, HEADS, VOCAB = 6", "LAYERS, WIDTH, HEADS, VOCAB = 2")
    assert quick.count("VOCAB = 2") == 1
    (server.root / "start.ipynb").write_text(quick)
    (server.root / "short.ipynb").write_text(json.dumps(short_notebook()))
    return {"base": server.url, "token": TOKEN, "work": server.root}


def short_notebook() -> dict[str, Any]:
    setup = [
        "import os\n",
        "os.environ['JAX_PLATFORMS'] = 'cpu'\n",
        "%load_ext hloscope\n",
        "import jax, jax.numpy as jnp\n",
        "def step(w, x):\n",
        "    with jax.named_scope('mlp'):\n",
        "        return jnp.tanh(jnp.tanh(x @ w) @ w.T).sum()",
    ]
    show = ["%hlo jax.grad(step)(jnp.ones((256, 128)), jnp.ones((64, 256)))"]
    blank: dict[str, Any] = {"execution_count": None, "metadata": {}, "outputs": []}
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": s, **blank}
        for i, s in enumerate((setup, show))
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


# -- what a user does, the same in every host --------------------------------------------


def wait_drawn(page: Page, timeout_s: float = 150) -> None:
    page.wait_for_function(
        f"() => window.explorers?.().length && {HANDLE}.pane.stats().boxes > 3",
        timeout=timeout_s * 1000,
        polling=250,
    )
    page.evaluate(f"() => {ROOT}.scrollIntoView({{block: 'center'}})")
    settle(page)


def settle(page: Page) -> None:
    """Wait until the picture and its place on the page are unchanged for three polls."""
    page.evaluate("() => { window.looks = 0; window.lastLook = ''; }")
    page.wait_for_function(
        f"""() => {{ const s = {HANDLE}.pane.stats(), r = {ROOT}.getBoundingClientRect();
        const now = JSON.stringify([s.scale, s.worldHeight, s.frames, r.x, r.y, r.width]);
        window.looks = window.lastLook === now ? window.looks + 1 : 0;
        window.lastLook = now; return window.looks >= 3; }}""",
        polling=150,
    )


def selected(page: Page) -> tuple[str, str, str]:
    """(kind, name, opcode) of the selection."""
    found: list[str] = page.evaluate(
        f"""() => {{ const {{store, model}} = {HANDLE}; const s = store.get('selection');
        return s.kind === 'instruction' ? [s.kind, model.name(s.index), model.opcode(s.index)]
          : [s.kind, s.kind === 'group' ? model.groupLabel(s.index) : '', '']; }}"""
    )
    return found[0], found[1], found[2]


def box(page: Page, kind: str, index: int) -> tuple[float, float] | None:
    """Where to click on a box, in page coordinates; None when it is not in view."""
    found = page.evaluate(
        f"""([kind, index]) => {{
        const r = {HANDLE}.pane.locate({{kind, index}});
        const g = {ROOT}.querySelector('.graph').getBoundingClientRect();
        if (!r || r.x < 0 || r.y < 0 || r.x + r.width > g.width || r.y + r.height > g.height)
          return null;
        return [g.x + r.x + r.width / 2, g.y + r.y + r.height / 2]; }}""",
        [kind, index],
    )
    return (found[0], found[1]) if found else None


def search(page: Page, query: str) -> str:
    """Search by keyboard from inside the graph; return the name of the first hit."""
    page.evaluate(f"() => {ROOT}.querySelector('.graph canvas, .graph').focus()")
    graph = page.evaluate(
        f"() => {{ const g = {ROOT}.querySelector('.graph').getBoundingClientRect();"
        "return [g.x + 4, g.y + g.height / 2]; }"
    )
    page.mouse.click(*graph)
    page.keyboard.press("/")
    page.keyboard.type(query)
    page.wait_for_function(f"() => {ROOT}.querySelectorAll('.result').length > 0")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => {HANDLE}.store.get('selection').kind === 'instruction'")
    name = selected(page)[1]
    page.keyboard.press("Escape")
    return name


def explore(page: Page, query: str) -> None:
    """Search finds, click selects, a group opens, text and graph agree."""
    name = search(page, query)
    settle(page)
    index = page.evaluate(f"() => {HANDLE}.store.get('selection').index")
    page.evaluate(f"(i) => {HANDLE}.pane.reveal(i)", index)
    settle(page)
    where = box(page, "instruction", index)
    assert where is not None, f"{name} is not in sight after the search"
    page.evaluate(f"() => {HANDLE}.store.select({{kind: 'none', index: -1}})")
    page.mouse.click(*where)
    assert selected(page)[:2] == ("instruction", name)

    page.locator(".root:has(.toolbar)").first.get_by_role("tab", name="Text").click()
    chosen = page.locator(".text-line.chosen").first
    chosen.wait_for(timeout=30_000)
    assert f"%{name} =" in chosen.inner_text()
    page.locator(".text-line .number").nth(0).wait_for()
    number = page.locator(".text-line", has_text=" = ").first.locator(".number")
    number.click()
    assert selected(page)[0] == "instruction"
    page.locator(".root:has(.toolbar)").first.get_by_role("tab", name="Details").click()

    closed = page.evaluate(
        f"""() => {{ const {{pane, model}} = {HANDLE};
        for (let index = 1; index < model.group.count; index++)
          if (pane.locate({{kind: 'group', index}}) && !pane.isOpen({{kind: 'group', index}}))
            return index;
        return -1; }}"""
    )
    if closed >= 0:
        page.evaluate(f"(i) => {HANDLE}.pane.revealGroup(i)", closed)
        settle(page)
        at = box(page, "group", closed)
        assert at is not None
        page.mouse.dblclick(*at)
        page.wait_for_function(
            f"(index) => {HANDLE}.pane.isOpen({{kind: 'group', index}})", arg=closed
        )


def open_notebook(open_page: Callable[..., Page], jupyter: dict[str, Any], path: str) -> Page:
    page = open_page(
        f"{jupyter['base']}/{path}?reset&token={jupyter['token']}", width=1500, height=1300
    )
    page.evaluate(FIND)
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.context?.isReady")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.sessionContext.ready")
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel"
        "?.connectionStatus === 'connected'",
        timeout=60_000,
    )
    return page


def wait_idle(page: Page) -> None:
    """Wait until all cells have run: a busy kernel answers no widget."""
    page.wait_for_function(
        """() => { const {context} = window.jupyterapp.shell.currentWidget;
        const code = context.model.toJSON().cells.filter(c => c.cell_type === 'code');
        return code.every(c => c.execution_count !== null)
          && context.sessionContext.session.kernel.status === 'idle'; }""",
        timeout=150_000,
        polling=250,
    )


def cells(page: Page) -> str:
    """The notebook's sources, to see whether a key changed them."""
    text: str = page.evaluate(
        "() => JSON.stringify(window.jupyterapp.shell.currentWidget.context.model.toJSON()"
        ".cells.map(c => [c.cell_type, c.source]))"
    )
    return text


def test_jupyterlab_runs_the_start_notebook(
    open_page: Callable[..., Page], jupyter: dict[str, Any], page_errors: list[str], shots: Path
) -> None:
    page = open_notebook(open_page, jupyter, "lab/workspaces/start/tree/start.ipynb")
    page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    wait_drawn(page)
    wait_idle(page)
    before = cells(page)
    explore(page, "opcode:all-reduce")
    page.mouse.click(*middle_left(page))
    for key in "ddaabxyzmz123 ":  # in command mode these delete, add and convert cells
        page.keyboard.press(key)
    assert cells(page) == before
    page.keyboard.press("Escape")
    page.evaluate(f"() => {ROOT}.scrollIntoView({{block: 'center'}})")
    settle(page)
    page.screenshot(path=shots / "jupyterlab.png")
    assert [e for e in page_errors if "hloscope" in e.lower()] == []
    ran = page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.context.model.toJSON().cells"
        ".filter(c => c.cell_type === 'code')"
    )
    assert any("application/vnd.hloscope.view+json" in o.get("data", {}) for o in outputs(ran))
    start_notebook_says_what_it_did(ran, jupyter["work"])


def outputs(ran: list[dict[str, Any]], starts: str = "") -> list[dict[str, Any]]:
    """Outputs of the cells that start so."""
    return [o for c in ran if "".join(c["source"]).startswith(starts) for o in c["outputs"]]


def start_notebook_says_what_it_did(ran: list[dict[str, Any]], folder: Path) -> None:
    def data(starts: str) -> dict[str, str]:
        shown = [o["data"] for o in outputs(ran, starts) if "data" in o]
        assert shown, outputs(ran, starts)
        return {kind: "".join(text) for kind, text in shown[-1].items()}

    shown = data("cap = %hlo step")
    assert "<iframe" in shown["text/html"]
    assert "jit_train_step · 8 × cpu" in shown["text/plain"]
    shown = data("%hlo --color-by collectives")
    assert "on tpu-v5e: " in shown["text/plain"]
    assert "&quot;panel&quot;: &quot;collectives&quot;" in unescape(shown["text/html"])
    printed = "".join("".join(o.get("text", "")) for o in outputs(ran))
    for said in (
        " over model\n  requested by  dot, 4 arrays combined at",  # why
        "operand's model from argument state['params']['embed']",
        "donations: Counter({'aliased': 39})",
        "tpu-v5e ",
        "all-gather over data",  # what FSDP adds
    ):
        assert said in printed, said
    assert "ok: max_peak" in data("cap.to_html")["text/plain"]
    assert "jit_train_step" in (folder / "step.html").read_text()
    assert "FSDP" in (folder / "diff.html").read_text()


def middle_left(page: Page) -> tuple[float, float]:
    x, y = page.evaluate(
        f"() => {{ const g = {ROOT}.querySelector('.graph').getBoundingClientRect();"
        "return [g.x + 4, g.y + g.height / 2]; }"
    )
    return x, y


def test_notebook_7(open_page: Callable[..., Page], jupyter: dict[str, Any], shots: Path) -> None:
    page = open_notebook(open_page, jupyter, "notebooks/short.ipynb")
    page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    wait_drawn(page)
    wait_idle(page)
    explore(page, "opcode:dot")
    page.screenshot(path=shots / "notebook-7.png")


def test_marimo(
    open_page: Callable[..., Page], renderer: Path, tmp_path: Path, shots: Path
) -> None:
    pytest.importorskip("marimo", reason="marimo is not installed")
    shutil.copy(REPO / "tests" / "ui" / "marimo_app.py", tmp_path / "app.py")
    port = free_port()
    command = [
        sys.executable, "-m", "marimo", "run", "app.py", "--headless", "--no-token",
        "--host=127.0.0.1", f"--port={port}",
    ]  # fmt: skip
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "JAX_", "TPU_"))}
    log = tmp_path / "server.log"
    with running(command, tmp_path, clean, f"http://127.0.0.1:{port}/health", log):
        page = open_page(f"http://127.0.0.1:{port}", width=1500, height=1000)
        page.evaluate(FIND)
        wait_drawn(page)
        explore(page, "opcode:all-reduce")
        page.screenshot(path=shots / "marimo.png")
