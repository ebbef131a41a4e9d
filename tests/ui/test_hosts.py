"""Hosts other than notebooks: Panel, Streamlit and Shiny, each with a small app.

They are in no lock file; the test of each runs if it is installed:

    pip install panel streamlit shiny shinywidgets
    python -m pytest tests/ui/test_hosts.py
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from servers import free_port, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "golden" / "blocks" / "sharded.hlo.gz"
# Searches shadow roots of any depth; whether the explorer's last line is visible, not cut off.
DRAWN = """() => {
  const find = (node) => {
    for (const e of node.querySelectorAll("*")) {
      const root = e.shadowRoot?.querySelector(".root");
      const is = root?.querySelector(".graph canvas");
      const found = is ? root : e.shadowRoot && find(e.shadowRoot);
      if (found) return found;
    }
    return null;
  };
  const root = find(document);
  if (!root) return false;
  const { left, bottom } = root.getBoundingClientRect();
  let hit = document.elementFromPoint(left + 20, bottom - 8);
  while (hit?.shadowRoot) {
    const deeper = hit.shadowRoot.elementFromPoint(left + 20, bottom - 8);
    if (!deeper || deeper === hit) break;
    hit = deeper;
  }
  return hit !== null && root.contains(hit);
}"""
APPS = {
    "panel": ["panel", "serve", "panel_app.py", "--port={port}", "--address=127.0.0.1"],
    "streamlit": [
        "streamlit", "run", "streamlit_app.py", "--server.port={port}", "--server.headless=true",
        "--server.address=127.0.0.1", "--browser.gatherUsageStats=false",
    ],
    "shiny": ["shiny", "run", "shiny_app.py", "--port={port}"],
}  # fmt: skip
PATHS = {"panel": "/panel_app"}


@pytest.mark.parametrize("host", APPS)
def test_the_explorer_is_drawn(
    host: str,
    open_page: Callable[..., Page],
    tmp_path: Path,
    shots: Path,
    renderer: Path,
) -> None:
    needed = [host, "shinywidgets"] if host == "shiny" else [host]
    for name in needed:  # not imported: shinywidgets wants its own session around all widgets
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    port = free_port()
    command = [sys.executable, "-m", *(part.format(port=port) for part in APPS[host])]
    environment = os.environ | {"HLOSCOPE_APP_FILE": str(PROGRAM), "HOME": str(tmp_path)}
    url = f"http://127.0.0.1:{port}{PATHS.get(host, '/')}"
    with running(command, HERE / "apps", environment, url, tmp_path / "server.log"):
        page = open_page(url)
        found = False
        for _ in range(200):
            found = any(_drawn(frame) for frame in page.frames)
            if found:
                break
            page.wait_for_timeout(250)
        page.wait_for_timeout(500)
        page.screenshot(path=shots / f"{host}.png")
    assert found, f"{host} shows no explorer; see {shots / f'{host}.png'}"


def _drawn(frame: object) -> bool:
    try:
        return bool(frame.evaluate(DRAWN))  # type: ignore[attr-defined]
    except Exception:  # the page is navigating
        return False
