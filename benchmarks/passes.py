"""How fast stepping from pass to pass is, and what the passes cost; prints figures.

    python benchmarks/passes.py [DUMP] [--steps 30] [--layers 48]

DUMP is a folder that XLA dumped every pass to; without it a training step of plain layers is
compiled for eight CPU devices here; 48 layers make 15,000 instructions. A step is timed from the
key until the frame with the next pass is painted, in a Chromium without a GPU, as the picture
opens and with 5,000 boxes of it open. Goal: under 100 ms where the module has 10,000
instructions. Also how long it takes from pointing at a line of the Code panel until the
highlighted lines are painted.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests" / "ui"), str(REPO / "python")]
STEP = """async () => {
  const root = document.querySelector('#hloscope').shadowRoot.querySelector('.root');
  const begun = performance.now();
  root.dispatchEvent(new KeyboardEvent('keydown', {key: 'j', cancelable: true, bubbles: true}));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - begun;
}"""


POINT = """async (k) => {
  const root = document.querySelector('#hloscope').shadowRoot;
  const panes = [...root.querySelectorAll('.code-pane')];
  const lines = [...panes[k % panes.length].querySelectorAll('.code-line.linked code')];
  if (!lines.length) return null;
  const begun = performance.now();
  lines[k % lines.length].dispatchEvent(
    new PointerEvent('pointerover', {bubbles: true, composed: true}));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - begun;
}"""
OPEN = """() => document.querySelector('#hloscope').shadowRoot.querySelector('.stage')
  .hloscope.pane.openAll(5000)"""


def said(what: str, times: list[float]) -> None:
    times = sorted(times)
    late = times[int(0.95 * len(times))]
    print(f"{what}: median {statistics.median(times):.0f} ms, p95 {late:.0f} ms")


def compile_dump(folder: str, layer_count: int = 48) -> None:
    """A training step of plain layers over eight CPU devices, every pass dumped."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))

    def array(shape: tuple[int, ...], *spec: str | None) -> Any:
        where = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=where)

    layers = [
        {"w1": array((512, 2048), None, "model"), "w2": array((2048, 512), "model", None)}
        for _ in range(layer_count)
    ]

    def loss(layers: Any, x: Any) -> Any:
        for p in layers:
            mean = x.mean(-1, keepdims=True)
            x = x + jax.nn.gelu((x - mean) @ p["w1"]) @ p["w2"]
        return jnp.mean(jax.nn.logsumexp(x, -1))

    def step(layers: Any, x: Any) -> Any:
        return jax.tree.map(
            lambda p, g: p - g / (jnp.abs(g) + 1e-8), layers, jax.grad(loss)(layers, x)
        )

    options = {
        "xla_dump_to": folder,
        "xla_dump_hlo_pass_re": ".*",
        "xla_dump_hlo_as_text": True,
    }
    jax.jit(step).lower(layers, array((64, 512), "data")).compile(compiler_options=options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dump", nargs="?")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--layers", type=int, default=48)
    arguments = parser.parse_args()
    import hloscope as hs
    from hloscope.show import blocks
    from hloscope.view import passes as block
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as made:
        folder = arguments.dump or made
        if not arguments.dump:
            compile_dump(folder, arguments.layers)
        cap = hs.read(folder)
        began = time.process_time()
        rows = cap.passes()
        listed = time.process_time() - began
        size = len(blocks.passes(cap))
        whole = time.process_time() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        most = max(r.counts["instructions"] for r in rows)
        text = sum(s.size for s in rows.snapshots) / 1e6
        print(f"{len(rows)} passes, {text:,.0f} MB of text, {most:,} instructions at most")
        print(f"listed in {listed:.1f} s, with the picture {whole:.1f} s of CPU; {memory:,.0f} MB")
        print(f"block {size / 1e6:.2f} MB, {len(rows.steps.nodes):,} instructions of all passes")
        block.MOST_COSTED = 0
        page_file = Path(made) / "passes.html"
        cap.to_html(page_file, passes=True)
        with sync_playwright() as playwright:
            path = os.environ.get("HLOSCOPE_CHROMIUM") or shutil.which("chromium")
            flags = ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
            browser = playwright.chromium.launch(executable_path=path, args=flags)
            page = browser.new_page(viewport={"width": 1500, "height": 1000})
            page.goto(page_file.as_uri())
            page.get_by_role("tab", name="Passes").click()
            page.wait_for_selector(".pass-bar", timeout=120_000)
            page.wait_for_timeout(2000)
            for what in ("a step", "a step with 5,000 boxes open"):
                page.keyboard.press("Home")
                page.wait_for_timeout(1000)
                said(what, [page.evaluate(STEP) for _ in range(arguments.steps)])
                heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
                print(f"  {heap:.0f} MB in the browser")
                page.evaluate(OPEN)
                page.wait_for_timeout(2000)
            page.get_by_role("tab", name="Code", exact=True).click()
            page.wait_for_selector(".code-stage .code-line.linked", timeout=120_000)
            page.wait_for_timeout(2000)
            pointed = [page.evaluate(POINT, k) for k in range(2 * arguments.steps)]
            said("pointing at a line", [t for t in pointed if t is not None])
            browser.close()


if __name__ == "__main__":
    main()
