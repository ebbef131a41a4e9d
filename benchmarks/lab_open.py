"""How long a dump takes to open in JupyterLab, from the command to the picture; prints a table.

    python benchmarks/lab_open.py [FILE ...] [--megabytes 25] [--repeat 3]

Without files, a generated training step of 25 MB. The server's cache is defeated by a
comment in front of the module, so each opening reads the file in a process of its own.
"View" is when the View has arrived and the explorer starts, "picture" when the graph is drawn,
"all read" when the analyses and the text are ready too. "Longest block" is the longest stretch in
which the browser's main thread did not answer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests" / "ui"), str(REPO / "python")]

from conftest import CHROMIUM_FLAGS  # noqa: E402
from lab_server import Server, open_file, open_lab, serving  # noqa: E402
from large_module import large_module  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402

_WATCH = """() => {
  window.blocks = [];
  new PerformanceObserver((list) => {
    for (const e of list.getEntries()) window.blocks.push(e.duration);
  }).observe({ type: "longtask" });
}"""


def measure(page: Page, server: Server, name: str) -> dict[str, float]:
    page.evaluate(_WATCH)
    begun = time.perf_counter()
    pane = open_file(page, name)
    pane.locator(".hloscope-explorer").wait_for(state="attached", timeout=180_000)
    view = time.perf_counter() - begun
    first = pane.locator(".root canvas").first
    first.wait_for(state="visible", timeout=180_000)
    # the picture is drawn once two frames have passed
    page.evaluate(
        "() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r())))"
    )
    seen = time.perf_counter() - begun
    page.wait_for_timeout(500)
    for _ in range(600):
        if not server.children():
            break
        page.wait_for_timeout(100)
    done = time.perf_counter() - begun
    blocks = page.evaluate("window.blocks")
    return {"view": view, "picture": seen, "all": done, "block": max(blocks, default=0.0) / 1000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--megabytes", type=float, default=25.0)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    dumps = {p.name: p.read_text() for p in options.files} or {
        "generated step": large_module(options.megabytes)
    }
    chromium = os.environ.get("HLOSCOPE_CHROMIUM") or shutil.which("chromium")
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        for title, text in dumps.items():
            runs = []
            for k in range(options.repeat):
                name = f"dump{len(rows)}_{k}.hlo"
                (server.root / name).write_text(f"// opening {k}\n{text}")
                page = browser.new_page(viewport={"width": 1300, "height": 850})
                open_lab(page, server, f"{len(rows)}-{k}")
                runs.append(measure(page, server, name))
                page.close()
            rows.append((title, len(text) / 1e6, min(runs, key=lambda r: r["picture"])))
        browser.close()
    print("| dump | MB | view, s | picture, s | all read, s | longest block, s |")
    print("|---|---:|---:|---:|---:|---:|")
    for title, size, best in rows:
        print(
            f"| {title} | {size:.1f} | {best['view']:.1f} | {best['picture']:.1f} "
            f"| {best['all']:.1f} | {best['block']:.2f} |"
        )


if __name__ == "__main__":
    main()
