"""JupyterLab below a URL path, as JupyterHub and proxies serve it; collaborative if installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import open_file, open_lab, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect

MODULE = """HloModule jit_first

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  ROOT %tanh.2 = f32[64,64]{1,0} tanh(%p), metadata={op_name="jit(first)/tanh"}
}
"""


def test_a_file_opens_below_a_prefix(
    browser: Browser, tmp_path: Path, renderer: Path, shots: Path
) -> None:
    together = importlib.util.find_spec("jupyter_collaboration") is not None
    with serving(tmp_path, prefix="/hub/user/ann%20b") as server:
        (server.root / "sub").mkdir()
        (server.root / "sub" / "a b.hlo").write_text(MODULE)
        context = browser.new_context(viewport={"width": 1300, "height": 850})
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda r: asked.append(r.url) if "hloscope/api" in r.url else None)
        open_lab(page, server, "prefix")
        pane = open_file(page, "sub/a b.hlo")
        expect(pane.locator(".graph canvas").first).to_be_visible(timeout=60_000)
        page.screenshot(path=shots / f"lab-prefix{'-together' if together else ''}.png")
        context.close()
    assert asked
    assert all(url.startswith(f"{server.url}/hloscope/api/") for url in asked)
