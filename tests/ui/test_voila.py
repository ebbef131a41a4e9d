"""Voila: a notebook served as a page shows the explorer in its sandboxed frame."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import REPO, code_cell, notebook
from servers import free_port, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("voila", reason="voila is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect

MODULE = """HloModule jit_shown

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  ROOT %tanh.2 = f32[64,64]{1,0} tanh(%p)
}
"""


@pytest.fixture
def address(tmp_path: Path, renderer: Path) -> Iterator[str]:
    (tmp_path / "step.hlo").write_text(MODULE)
    source = "import hloscope as hs\ncap = hs.read('step.hlo')\ncap"
    (tmp_path / "page.ipynb").write_text(notebook(code_cell(source)))
    port = free_port()
    env = {**os.environ, "HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    where = importlib.util.find_spec("hloscope")
    if where is None or str(REPO) in str(where.origin):
        env["PYTHONPATH"] = str(REPO / "python")
    command = [sys.executable, "-m", "voila", "page.ipynb", "--no-browser", f"--port={port}"]
    log = tmp_path / "voila.log"
    url = f"http://127.0.0.1:{port}/"
    with running(command, tmp_path, env, f"{url}voila/static/", log):
        yield url


def test_the_explorer_is_shown(address: str, open_page: Callable[..., Page]) -> None:
    page = open_page(address)
    frame = page.frame_locator("iframe[srcdoc]")
    expect(frame.get_by_text("jit_shown", exact=True).first).to_be_visible(timeout=60_000)
    expect(frame.locator(".root canvas").first).to_be_visible(timeout=30_000)
    assert "allow-same-origin" not in (page.locator("iframe").get_attribute("sandbox") or "none")
