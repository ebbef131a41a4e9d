"""The picture of JupyterLab: a notebook, the side panel of its captures, a file beside it.

A real server, started as the browser tests start theirs (tests/ui/lab_server.py).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]

SETUP = """\
%load_ext hloscope
import jax, jax.numpy as jnp

def loss(w, x):
    with jax.named_scope("mlp"):
        return jnp.tanh(jnp.tanh(x @ w["up"]) @ w["down"]).sum()

w = {"up": jnp.ones((64, 256)), "down": jnp.ones((256, 64))}
x = jnp.ones((32, 64))"""
CELLS = (SETUP, "forward = %hlo loss(w, x)\nforward", "step = %hlo jax.grad(loss)(w, x)\nstep")
DUMP = """\
import hloscope as hs
open("module_0001.jit_loss.hlo", "w").write(step.text)"""


def take(save: Callable[[Any], None], width: int, height: int, browser: Any) -> None:
    """Saves the picture of its page."""
    tests = str(REPOSITORY / "tests" / "ui")
    if tests not in sys.path:
        sys.path.append(tests)
    from lab_server import code_cell, notebook, open_lab, run_command, serving, wait_idle

    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as server:
        cells = (code_cell(source) for source in (*CELLS, DUMP))
        (server.root / "step.ipynb").write_text(notebook(*cells))
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="light"
        )
        page = context.new_page()
        page.set_default_timeout(90_000)
        open_lab(page, server, "picture")
        run_command(page, "hloscope:show-captures")
        run_command(page, "docmanager:open", {"path": "step.ipynb"})
        wait_idle(page)
        run_command(page, "notebook:run-all-cells")
        page.locator("#hloscope-captures li").nth(1).wait_for()
        wait_idle(page)
        dump = {"path": "module_0001.jit_loss.hlo", "options": {"mode": "split-right"}}
        run_command(page, "docmanager:open", dump)
        document = page.locator(".hloscope-pane")
        document.get_by_role("tab", name="Cost", exact=True).wait_for()
        page.locator("#hloscope-captures li button").first.click()
        page.wait_for_timeout(1500)  # until scrolling and animations end
        save(page)
        context.close()
