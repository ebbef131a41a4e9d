"""JupyterLab opens compiled programs: each kind of file, broken and changed files, by keyboard."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import (
    Server,
    compared_pictures,
    load_lab,
    open_file,
    open_lab,
    run_command,
    serious_violations,
    set_settings,
)
from large_module import large_module

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

MODULE = """HloModule jit_first, is_scheduled=true

ENTRY %main (p: f32[64,64], w: f32[64,64]) -> f32[64,64] {
  %p = f32[64,64]{1,0} parameter(0)
  %w = f32[64,64]{1,0} parameter(1)
  %dot.1 = f32[64,64]{1,0} dot(%p, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %tanh.2 = f32[64,64]{1,0} tanh(%dot.1), metadata={op_name="jit(first)/tanh"}
}
"""
STABLEHLO = """module @jit_stable {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


VIEWPORT = {"width": 1300, "height": 850}


@pytest.fixture
def lab(new_page: Callable[[], Page], server: Server, request: pytest.FixtureRequest) -> Page:
    page = new_page()
    open_lab(page, server, request.node.name.replace("[", "-").replace("]", "").replace(".", "-"))
    return page


_COMPILE = """
import jax, pathlib, sys, numpy as np
folder = pathlib.Path(sys.argv[1])
compiled = jax.jit(lambda x: jax.numpy.tanh(x) @ x).lower(np.ones((8, 8), "float32")).compile()
module = compiled.runtime_executable().hlo_modules()[0]
(folder / "d.hlo.pb").write_bytes(module.as_serialized_hlo_module_proto())
with jax.profiler.trace(str(folder)):
    jax.block_until_ready(compiled(np.ones((8, 8), "float32")))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A serialized HloModuleProto and a trace, made by jax in a separate process."""
    pytest.importorskip("jax", reason="jax is not installed")
    folder = tmp_path_factory.mktemp("made")
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", _COMPILE, str(folder)], check=True, env=env)
    (trace,) = folder.rglob("*.xplane.pb")
    return {"proto": (folder / "d.hlo.pb").read_bytes(), "trace": trace.read_bytes()}


KINDS = ["a.hlo", "b.hlo.txt", "c.hlo.gz", "d.hlo.pb", "e.xplane.pb"]


@pytest.mark.parametrize("name", KINDS)
def test_a_double_click_opens_each_kind(
    lab: Page, server: Server, name: str, made: dict[str, bytes]
) -> None:
    data = {
        "a.hlo": MODULE.encode(),
        "b.hlo.txt": b"I0101 compiling\n" + MODULE.encode(),
        "c.hlo.gz": gzip.compress(MODULE.encode()),
        "d.hlo.pb": made["proto"],
        "e.xplane.pb": made["trace"],
    }[name]
    (server.root / name).write_bytes(data)
    run_command(lab, "filebrowser:refresh")
    lab.locator(f".jp-DirListing-item:has-text('{name}')").dblclick()
    title = "jit__lambda" if name in ("d.hlo.pb", "e.xplane.pb") else "jit_first"
    pane = lab.locator(".hloscope-pane")
    expect(pane.get_by_text(title, exact=True).first).to_be_visible()
    expect(pane.locator("canvas").first).to_be_visible()
    expect(pane.get_by_role("tab", name="Cost")).to_be_visible()  # appears after the picture
    if name == "e.xplane.pb":
        expect(pane.get_by_role("tab", name="Measured")).to_be_visible()
    expect(lab.locator(".lm-TabBar-tab.lm-mod-current .lm-TabBar-tabLabel").last).to_have_text(name)


def test_stablehlo_is_offered_and_not_forced(lab: Page, server: Server) -> None:
    (server.root / "s.mlir").write_text(STABLEHLO)
    factories = lab.evaluate(
        "window.jupyterapp.docRegistry.preferredWidgetFactories('s.mlir').map((f) => f.name)"
    )
    assert "HLO explorer" in factories
    assert factories[0] != "HLO explorer"
    pane = open_file(lab, "s.mlir", "HLO explorer")
    expect(pane.get_by_text("tanh").first).to_be_attached()


def test_a_dump_is_opened_from_the_context_menu(lab: Page, server: Server) -> None:
    name = "module_0001.jit_first.cpu_after_optimizations.txt"
    (server.root / name).write_text(MODULE)
    (server.root / "code.py").write_text("x = 1")
    run_command(lab, "filebrowser:refresh")
    lab.locator(".jp-DirListing-item:has-text('code.py')").click(button="right")
    menu = lab.locator(".lm-Menu")
    expect(menu.get_by_text("Rename").first).to_be_visible()
    expect(menu.get_by_text("Explore HLO").locator("visible=true")).to_have_count(0)
    lab.keyboard.press("Escape")
    lab.locator(f".jp-DirListing-item:has-text('{name}')").click(button="right")
    menu.get_by_text("Explore HLO").click()
    expect(lab.locator(".hloscope-pane").get_by_text("jit_first", exact=True).first).to_be_visible()


def test_a_dump_folder_opens_at_its_last_stage(lab: Page, server: Server) -> None:
    folder = server.root / "dump"
    folder.mkdir()
    stages = ("before_optimizations", "0003.dce.after_dce", "cpu_after_optimizations")
    files = [f"module_0001.jit_first.{stage}.txt" for stage in stages]
    for name in files:
        (folder / name).write_text(MODULE)
    run_command(lab, "filebrowser:refresh")
    lab.locator(".jp-DirListing-item:has-text('dump')").click(button="right")
    lab.locator(".lm-Menu").get_by_text("Explore HLO").click()
    current = lab.locator(".lm-TabBar-tab.lm-mod-current .lm-TabBar-tabLabel").last
    expect(current).to_have_text(files[2])
    chooser = lab.get_by_label("Module and pass").locator("visible=true")
    expect(chooser.locator("option")).to_have_text(list(stages))
    expect(chooser).to_have_value(files[2])
    chooser.select_option(stages[1])
    expect(current).to_have_text(files[1])
    expect(chooser).to_have_value(files[1])


def test_a_file_of_two_modules_offers_both(lab: Page, server: Server) -> None:
    other = MODULE.replace("jit_first", "jit_other").replace("tanh", "cosine")
    (server.root / "two-modules.hlo").write_text(MODULE + "\n" + other)
    pane = open_file(lab, "two-modules.hlo")
    chooser = lab.get_by_label("Module", exact=True).locator("visible=true")
    expect(chooser.locator("option")).to_have_count(2)
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    chooser.select_option("1")
    expect(pane.get_by_text("jit_other", exact=True).first).to_be_visible()
    expect(chooser).to_have_value("1")


def saved(target: Path) -> str:
    """Text of a page that the server writes, once it is complete."""
    for _ in range(300):
        if target.exists() and target.read_text().rstrip().endswith("</html>"):
            return target.read_text()
        time.sleep(0.1)
    pytest.fail(f"{target.name} was not written")


def test_the_chosen_module_is_saved_and_compared(lab: Page, server: Server) -> None:
    other = MODULE.replace("jit_first", "jit_other").replace("tanh", "cosine")
    (server.root / "both.hlo").write_text(MODULE + "\n" + other)
    pane = open_file(lab, "both.hlo")
    chooser = lab.get_by_label("Module", exact=True).locator("visible=true")
    chooser.select_option("1")
    expect(pane.get_by_text("jit_other", exact=True).first).to_be_visible()
    lab.get_by_role("button", name="Save HTML").click()
    page = saved(server.root / "both.hlo.jit_other.html")
    assert "<title>jit_other" in page
    lab.get_by_role("button", name="Compare with…").click()
    dialog = lab.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Compare jit_other with")
    expect(dialog.locator("select option")).to_have_text(
        ["1. jit_first", "A module in another file…"]
    )
    dialog.locator(".jp-mod-accept").click()
    frame = lab.frame_locator("iframe.hloscope-page")
    expect(frame.locator("h1")).to_have_text("jit_other ↔ jit_first")
    expect(frame.locator("del")).to_have_text("cosine")
    assert compared_pictures(lab) == {"hloscope": "cosine.2", "hloscope-second": "tanh.2"}


CLOSE = "window.jupyterapp.shell.currentWidget.close()"


def test_the_hardware_of_the_settings(lab: Page, server: Server) -> None:
    for name in ("chip.hlo", "no-chip.hlo"):
        (server.root / name).write_text(MODULE)
    set_settings(lab, {"hardware": "h100"})
    load_lab(lab, server, "chip")
    pane = open_file(lab, "chip.hlo")
    pane.get_by_role("tab", name="Cost").click()
    chip = pane.get_by_label("Chip", exact=True)
    expect(chip).to_have_value("h100")
    lab.get_by_role("button", name="Save HTML").click()
    assert "&quot;hardware&quot;: &quot;h100&quot;" in saved(server.root / "chip.hlo.html")
    set_settings(lab, {})
    lab.evaluate(CLOSE)
    pane = open_file(lab, "no-chip.hlo")
    pane.get_by_role("tab", name="Cost").click()
    expect(pane.get_by_label("Chip", exact=True)).to_have_value("")


def test_a_broken_file_says_why_and_can_be_mended(lab: Page, server: Server) -> None:
    file = server.root / "broken.hlo"
    file.write_text("Dear all,\n<img src=x onerror=alert(1)>\n")
    pane = open_file(lab, "broken.hlo")
    alert = pane.get_by_role("alert")
    expect(alert).to_contain_text("broken.hlo cannot be shown")
    expect(alert).to_contain_text("HloModule")
    expect(alert.locator("pre")).to_contain_text("1  Dear all,")
    assert pane.locator("img").count() == 0
    file.write_text(MODULE)
    alert.get_by_role("button", name="Try again").click()
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()


def test_a_file_that_changes_is_shown_again(lab: Page, server: Server) -> None:
    file = server.root / "changing.hlo"
    file.write_text(MODULE)
    pane = open_file(lab, "changing.hlo")
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    time.sleep(1.1)  # on some systems the contents API gives times in whole seconds
    file.write_text(MODULE.replace("jit_first", "jit_second"))
    expect(pane.get_by_text("jit_second", exact=True).first).to_be_visible()
    time.sleep(1.1)
    file.write_text("half of a mod")
    expect(pane.get_by_role("alert")).to_contain_text(
        "cannot be read; this is the previous version"
    )
    expect(pane.get_by_text("jit_second", exact=True).first).to_be_visible()
    time.sleep(1.1)
    file.write_text(MODULE.replace("jit_first", "jit_third"))
    expect(pane.get_by_text("jit_third", exact=True).first).to_be_visible()
    expect(pane.get_by_role("alert")).to_have_count(0)


def test_a_large_file_with_progress_cancel_and_again(lab: Page, server: Server) -> None:
    text = large_module(megabytes=12)
    assert len(text) > 12e6
    (server.root / "large.hlo").write_text(text)
    pane = open_file(lab, "large.hlo")
    bar = pane.get_by_role("progressbar")
    expect(bar).to_be_visible()
    expect(pane.get_by_role("status")).to_contain_text("Reading the module")
    assert len(server.children()) == 1
    pane.get_by_role("button", name="Cancel").click()
    expect(pane.get_by_text("Reading was cancelled.")).to_be_visible()
    for _ in range(100):
        if not server.children():
            break
        time.sleep(0.1)
    assert not server.children()
    pane.get_by_role("button", name="Read it").click()
    expect(pane.get_by_text("jit_large", exact=True).first).to_be_visible(timeout=90_000)


def test_a_file_is_read_once_and_a_large_one_after_a_question(lab: Page, server: Server) -> None:
    for name in ("once.hlo", "asked.hlo"):
        (server.root / name).write_text(MODULE)
    pane = open_file(lab, "once.hlo")
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    lab.wait_for_timeout(2500)  # the file has been checked again by now
    asked = "performance.getEntriesByType('resource').filter((e) => e.name.includes('/api/view'))"
    assert lab.evaluate(f"{asked}.length") == 1
    set_settings(lab, {"askAboveMegabytes": 0})
    lab.evaluate(CLOSE)
    pane = open_file(lab, "asked.hlo")
    dialog = lab.locator(".jp-Dialog")
    expect(dialog).to_contain_text("asked.hlo has 0 MB")
    dialog.get_by_role("button", name="Cancel").click()
    expect(pane.get_by_text("Reading was cancelled.")).to_be_visible()
    pane.get_by_role("button", name="Read it").click()
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    set_settings(lab, {})


def test_saving_does_not_touch_the_file(lab: Page, server: Server) -> None:
    file = server.root / "precious.hlo"
    file.write_text(MODULE)
    pane = open_file(lab, "precious.hlo")
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    pane.click()
    lab.keyboard.press("Control+s")
    run_command(lab, "docmanager:save")
    lab.wait_for_timeout(1000)
    assert file.read_text() == MODULE


def test_save_as_html(lab: Page, server: Server) -> None:
    (server.root / "page.hlo").write_text(MODULE)
    pane = open_file(lab, "page.hlo")
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    lab.get_by_role("button", name="Save HTML").click()
    assert "Content-Security-Policy" in saved(server.root / "page.hlo.html")
    lab.get_by_role("button", name="Save HTML").click()
    expect(lab.get_by_text("Replace the file?")).to_be_visible()
    lab.keyboard.press("Escape")


def test_compare(lab: Page, server: Server) -> None:
    (server.root / "one.hlo").write_text(MODULE)
    (server.root / "two.hlo").write_text(MODULE.replace(" tanh(", " cosine("))
    run_command(lab, "hloscope:compare", {"path": "one.hlo", "other": "two.hlo"})
    page = lab.frame_locator("iframe.hloscope-page")
    expect(page.get_by_role("heading", name="Changed")).to_be_visible()
    expect(page.locator("del")).to_have_text("tanh")
    assert lab.locator("iframe.hloscope-page").get_attribute("sandbox") == (
        "allow-scripts allow-downloads"  # and not the Lab's origin
    )
    run_command(lab, "hloscope:compare", {"path": "one.hlo", "other": "absent.hlo"})
    expect(lab.locator(".jp-Dialog")).to_contain_text("no such file")


def test_the_theme_is_followed(lab: Page, server: Server) -> None:
    (server.root / "theme.hlo").write_text(MODULE)
    pane = open_file(lab, "theme.hlo")
    root = pane.locator(".root")
    expect(root).to_be_visible()
    assert "dark" not in (root.get_attribute("class") or "").split()
    lab.evaluate(
        "window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    expect(pane.locator(".root.dark")).to_be_visible()
    lab.evaluate(
        "window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})"
    )
    expect(pane.locator(".root:not(.dark)")).to_be_visible()


def test_by_keyboard_only(lab: Page, server: Server) -> None:
    (server.root / "keys.hlo").write_text(MODULE)
    run_command(lab, "filebrowser:refresh")
    expect(lab.locator(".jp-DirListing-item:has-text('keys.hlo')")).to_be_visible()
    listing = ".jp-DirListing-content"  # either it or its items are focusable
    lab.locator(f"{listing} [tabindex='0'], {listing}[tabindex='0']").first.focus()
    for letter in "keys":
        lab.keyboard.press(letter)
    lab.keyboard.press("Enter")
    pane = lab.locator(".hloscope-pane")
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    inside = "document.activeElement?.closest('.hloscope-pane') !== null"
    lab.wait_for_function(inside)
    for _ in range(12):
        lab.keyboard.press("Tab")
        if lab.evaluate("document.activeElement?.shadowRoot?.activeElement?.tagName") == "INPUT":
            break
    lab.keyboard.type("tanh")
    assert lab.evaluate(inside)
    assert lab.evaluate("document.activeElement.shadowRoot.activeElement.value") == "tanh"


def test_no_serious_axe_violations(lab: Page, server: Server) -> None:
    (server.root / "axe.hlo").write_text(MODULE)
    (server.root / "axe-broken.hlo").write_text("nothing here")
    for name in ("axe.hlo", "axe-broken.hlo"):
        pane = open_file(lab, name)
        expect(pane.locator("canvas, [role=alert]").first).to_be_visible()
        found = serious_violations(lab, ".jp-MainAreaWidget:not(.lm-mod-hidden) .hloscope-pane")
        assert found == [], name


def test_the_document_comes_back_with_the_workspace(lab: Page, server: Server) -> None:
    (server.root / "again.hlo").write_text(MODULE)
    pane = open_file(lab, "again.hlo")
    expect(pane.get_by_text("jit_first", exact=True).first).to_be_visible()
    lab.wait_for_timeout(2500)  # the layout is saved a second after it settles
    lab.goto(lab.url.split("?")[0])
    expect(lab.locator(".hloscope-pane").get_by_text("jit_first", exact=True).first).to_be_visible()
