"""Saved notebooks as HTML: they show the picture, offline, whether the widget was live or not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_snapshot import program

if TYPE_CHECKING:
    from playwright.sync_api import Page

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed")

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def executed(renderer: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A notebook whose last line is a capture, executed by nbclient in a real kernel."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "step.hlo").write_text(program())
    python = str(Path(__file__).resolve().parents[2] / "python")
    code = f"import sys; sys.path.insert(0, {python!r})\nimport hloscope as hs\nhs.read('step.hlo')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "p", "language": "python"}
    # The kernel must be this Python, whatever kernels the machine has.
    kernels = folder / "kernels" / "python3"
    kernels.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "p", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = str(folder)
    try:
        nbclient.NotebookClient(
            notebook, timeout=600, resources={"metadata": {"path": str(folder)}}
        ).execute()
    finally:
        if before is None:
            del os.environ["JUPYTER_PATH"]
        else:
            os.environ["JUPYTER_PATH"] = before
    return notebook


def exported(notebook: Any, target: Path) -> str:
    html, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    target.write_text(html)
    return target.as_uri()


def picture(page: Page) -> None:
    """Assert that the frame of the page holds a drawn graph."""
    page.wait_for_selector("iframe[srcdoc]")
    frame = page.frame_locator("iframe[srcdoc]")
    frame.locator(".toolbar").wait_for(timeout=20_000)
    canvas = frame.locator(".graph canvas").first
    canvas.wait_for()
    page.wait_for_timeout(500)
    colors = canvas.evaluate(
        """(c) => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let k = 0; k < d.length; k += 64) seen.add(d[k] << 16 | d[k + 1] << 8 | d[k + 2]);
        return seen.size; }"""
    )
    assert colors > 8, "the canvas is blank"


def offline(open_page: Callable[..., Page], url: str) -> Page:
    page = open_page("about:blank")
    page.context.route("http*://**", lambda route: route.abort())
    page.goto(url)
    return page


def test_a_notebook_run_without_a_front_end_keeps_the_picture(
    open_page: Callable[..., Page], executed: Any, tmp_path: Path, shots: Path
) -> None:
    data = executed.cells[0].outputs[0].data
    assert WIDGET not in data, "nobody was there to show a widget to"
    assert "instructions" in data["text/plain"]
    page = offline(open_page, exported(executed, tmp_path / "executed.html"))
    picture(page)
    page.screenshot(path=shots / "nbconvert.png")


def test_a_notebook_saved_from_jupyterlab_keeps_the_picture(
    open_page: Callable[..., Page], executed: Any, tmp_path: Path
) -> None:
    """JupyterLab saves the widget's id without its state: nbconvert must fall back to the frame."""
    notebook = nbformat.reads(nbformat.writes(executed), as_version=4)
    notebook.metadata.pop("widgets", None)
    view = {"version_major": 2, "version_minor": 1, "model_id": "0" * 32}
    notebook.cells[0].outputs[0].data[WIDGET] = view
    picture(offline(open_page, exported(notebook, tmp_path / "saved.html")))
