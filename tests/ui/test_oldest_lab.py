"""The oldest JupyterLab that is supported: the built extension loads there, opens and draws.

Its environment is made once, in .cache/, with uv or pip and with no Node on the path.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import (
    REPO,
    Server,
    code_cell,
    notebook,
    open_file,
    open_lab,
    run_command,
    serving,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly
pytestmark = pytest.mark.xdist_group("lab")

LAB = "4.2.0"
PACKAGES = [f"jupyterlab=={LAB}", "ipykernel"]
MODULE = """HloModule jit_oldest

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  ROOT %tanh.2 = f32[64,64]{1,0} tanh(%p)
}
"""
# What uv and pip say without a network, or without a registry that answers.
_UNREACHABLE = re.compile(
    r"dns error|error sending request|Failed to fetch|Could not connect|timed out"
    r"|NewConnectionError|Temporary failure|Connection refused|offline|network",
    re.IGNORECASE,
)


def _needs() -> list[str]:
    """What hloscope itself needs, as pyproject.toml says."""
    import tomllib

    return list(tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["dependencies"])


def _install(python: Path, *what: str) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    install = [uv, "pip", "install", "--python", str(python)] if uv else None
    command = install or [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    nodeless = {**os.environ, "PATH": str(python.parent)}
    done = subprocess.run(
        [*command, "-q", *what], capture_output=True, text=True, timeout=240, env=nodeless
    )
    if done.returncode and _UNREACHABLE.search(done.stderr):
        pytest.skip(f"no package registry: {done.stderr.strip().splitlines()[-1][:200]}")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def python() -> Path:
    """Python of an environment with the oldest JupyterLab, and the wheel if dist/ has one."""
    packages = [*PACKAGES, *_needs()]
    key = hashlib.sha256(repr((packages, sys.version_info[:2])).encode()).hexdigest()[:12]
    folder = REPO / ".cache" / f"oldest-lab-{key}"
    found = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        _install(found, *packages)
        (folder / "complete").touch()
    wheels = sorted((REPO / "dist").glob("hloscope-*.whl"), key=lambda w: w.stat().st_mtime)
    if wheels:
        _install(found, "--no-deps", "--force-reinstall", str(wheels[-1]))
    return found


@pytest.fixture(scope="module")
def server(
    python: Path, tmp_path_factory: pytest.TempPathFactory, renderer: Path
) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("oldest"), str(python)) as made:
        (made.root / "step.hlo").write_text(MODULE)
        yield made


@pytest.fixture
def lab(browser: Browser, server: Server) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1300, "height": 850})
    page = context.new_page()
    page.set_default_timeout(45_000)
    open_lab(page, server, "oldest")
    yield page
    context.close()


def test_the_extension_loads_opens_and_draws(lab: Page, server: Server) -> None:
    assert lab.evaluate("window.jupyterapp.version") == LAB
    assert lab.evaluate("window.jupyterapp.isPluginActivated('hloscope:explorer')")
    pane = open_file(lab, "step.hlo")
    expect(pane.get_by_text("jit_oldest", exact=True).first).to_be_visible()
    expect(pane.locator("canvas").first).to_be_visible()
    source = "import hloscope as hs\ncap = hs.read('step.hlo')\ncap"
    (server.root / "live.ipynb").write_text(notebook(code_cell(source)))
    run_command(lab, "docmanager:open", {"path": "live.ipynb"})
    lab.wait_for_function(
        "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    )
    run_command(lab, "notebook:run-all-cells")
    output = lab.locator(".hloscope-saved.hloscope-live")
    expect(output.get_by_text("jit_oldest", exact=True).first).to_be_visible()
    expect(output.locator("canvas").first).to_be_visible()
