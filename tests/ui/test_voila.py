"""Voila: a notebook as a page of its own shows the explorer in its sandboxed frame."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import REPO, code_cell, notebook

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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    where = importlib.util.find_spec("hloscope")
    if where is None or str(REPO) in str(where.origin):
        env["PYTHONPATH"] = str(REPO / "python")
    command = [sys.executable, "-m", "voila", "page.ipynb", "--no-browser", f"--port={port}"]
    log = tmp_path / "voila.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=out, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(300):
            if process.poll() is not None:
                pytest.fail(f"voila ended:\n{log.read_text()[-3000:]}")
            try:
                urllib.request.urlopen(f"{url}voila/static/", timeout=5).close()
                break
            except urllib.error.HTTPError:
                break  # it answers
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def test_the_explorer_is_shown(address: str, open_page: Callable[..., Page]) -> None:
    page = open_page(address)
    frame = page.frame_locator("iframe[srcdoc]")
    expect(frame.get_by_text("jit_shown", exact=True).first).to_be_visible(timeout=60_000)
    expect(frame.locator(".root canvas").first).to_be_visible(timeout=30_000)
    assert "allow-same-origin" not in (page.locator("iframe").get_attribute("sandbox") or "none")
