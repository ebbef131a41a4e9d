"""The oldest supported JupyterLab: the built extension loads there, opens files and draws."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from environments import environment
from lab_server import (
    Server,
    code_cell,
    notebook,
    open_file,
    open_lab,
    run_command,
    serving,
    wait_idle,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

LAB = "4.2.0"
PACKAGES = [f"jupyterlab=={LAB}", "ipykernel"]
MODULE = """HloModule jit_oldest

ENTRY %main (p: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  ROOT %tanh.2 = f32[64,64]{1,0} tanh(%p)
}
"""


VIEWPORT = {"width": 1300, "height": 850}


@pytest.fixture(scope="module")
def python() -> Path:
    """Python of an environment with the oldest JupyterLab, and the wheel if dist/ has one."""
    return environment("oldest-lab", PACKAGES)


@pytest.fixture(scope="module")
def server(
    python: Path, tmp_path_factory: pytest.TempPathFactory, renderer: Path
) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("oldest"), str(python)) as made:
        (made.root / "step.hlo").write_text(MODULE)
        yield made


@pytest.fixture
def lab(new_page: Callable[[], Page], server: Server) -> Page:
    page = new_page()
    open_lab(page, server, "oldest")
    return page


def test_the_extension_loads_opens_and_draws(lab: Page, server: Server) -> None:
    assert lab.evaluate("window.jupyterapp.version") == LAB
    assert lab.evaluate("window.jupyterapp.isPluginActivated('hloscope:explorer')")
    pane = open_file(lab, "step.hlo")
    expect(pane.get_by_text("jit_oldest", exact=True).first).to_be_visible()
    expect(pane.locator("canvas").first).to_be_visible()
    source = "import hloscope as hs\ncap = hs.read('step.hlo')\ncap"
    (server.root / "live.ipynb").write_text(notebook(code_cell(source)))
    run_command(lab, "docmanager:open", {"path": "live.ipynb"})
    wait_idle(lab)
    run_command(lab, "hloscope:show-captures")
    run_command(lab, "notebook:run-all-cells")
    output = lab.locator(".hloscope-saved.hloscope-live")
    expect(output.get_by_text("jit_oldest", exact=True).first).to_be_visible()
    expect(output.locator("canvas").first).to_be_visible()
    row = lab.locator("#hloscope-captures li")
    expect(row).to_contain_text("2 instructions")
    row.get_by_role("button", name="Open", exact=True).click()
    expect(lab.locator(".hloscope-saved-document canvas").first).to_be_visible()


def test_kinds_of_files_a_broken_one_and_a_changed_one(lab: Page, server: Server) -> None:
    stable = "module @jit_oldest {\n  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
    stable += "    %0 = stablehlo.tanh %a : tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }\n}\n"
    (server.root / "b.hlo.txt").write_text(MODULE)
    (server.root / "c.hlo.gz").write_bytes(gzip.compress(MODULE.encode()))
    (server.root / "d.mlir").write_text(stable)
    for name in ("b.hlo.txt", "c.hlo.gz", "d.mlir"):
        pane = open_file(lab, name, "HLO explorer" if name == "d.mlir" else None)
        expect(pane.get_by_text("jit_oldest", exact=True).first).to_be_visible()
        expect(pane.locator("canvas").first).to_be_visible()
    file = server.root / "broken.hlo"
    file.write_text("Dear all,\n")
    pane = open_file(lab, "broken.hlo")
    expect(pane.get_by_role("alert")).to_contain_text("broken.hlo cannot be shown")
    file.write_text(MODULE)
    expect(pane.get_by_text("jit_oldest", exact=True).first).to_be_visible()
