"""How fast a page follows another chip: modelling, ranking and colouring every instruction.

    python benchmarks/what_if.py FILE

FILE is a dump; a 100,000-instruction one is written by ``benchmarks/read_module.py``. Prints one
row per chip, in milliseconds; the first is cold; then what a user waits for in a Chromium without
a GPU: from the choice of a chip in the Cost panel until the frame with its figures, treemap,
roofline, table and colours is painted. Goal: 100 ms. Needs node, Chromium and playwright.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests" / "ui"), str(REPO / "python")]

_CHOOSE = """(chip) => painted(() => {
  const select = root.querySelector('select[aria-label=Chip]');
  select.value = chip;
  select.dispatchEvent(new Event('change'));
})"""


def in_a_browser(cap: Any, folder: Path, chips: list[str]) -> dict[str, list[list[float]]]:
    """Milliseconds until the frame, and of script, per chip; by what colours the boxes."""
    from conftest import CHROMIUM_FLAGS
    from devices import PAGE
    from playwright.sync_api import sync_playwright

    path = Path(cap.to_html(folder / "step.html"))
    chromium = os.environ.get("HLOSCOPE_CHROMIUM") or shutil.which("chromium")
    out = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.goto(path.as_uri())
        page.locator("#tab-cost").wait_for(timeout=60_000)
        page.evaluate(PAGE)
        for colour in ("family", "seconds"):
            options = {"panel": "cost", "colorBy": colour}
            page.evaluate("(o) => root.hloscope.store.setOptions(o)", options)
            page.wait_for_timeout(500)
            out[colour] = []
            for chip in chips * 2:
                out[colour].append(page.evaluate(_CHOOSE, chip))
                page.wait_for_timeout(100)
        browser.close()
    return out


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    import hloscope as hs
    from hloscope.show import blocks

    cap = hs.read(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "view").write_bytes(blocks.view(cap))
        (folder / "analyses").write_bytes(blocks.analyses(cap))
        script = folder / "what_if.mjs"
        subprocess.run(
            [
                str(REPO / "node_modules" / ".bin" / "esbuild"),
                str(REPO / "benchmarks" / "front" / "what_if.ts"),
                "--bundle",
                "--platform=node",
                "--format=esm",
                f"--outfile={script}",
                "--log-level=error",
            ],
            check=True,
        )
        files = [str(folder / "view"), str(folder / "analyses")]
        done = subprocess.run(
            ["node", str(script), *files], check=True, capture_output=True, text=True
        )
        found = json.loads(done.stdout)
        pages = in_a_browser(cap, folder, [r["chip"] for r in found["rows"]])
    print(f"{found['instructions']:,} instructions; milliseconds")
    print(f"{'chip':>12} {'model':>8} {'rank':>8} {'paint':>8} {'total':>8}")
    for r in found["rows"]:
        total = r["model"] + r["rank"] + r["paint"]
        print(f"{r['chip']:>12} {r['model']:8.1f} {r['rank']:8.1f} {r['paint']:8.1f} {total:8.1f}")
    print("\n| Cost panel, coloured by | median ms | worst ms | script ms |\n|---|---:|---:|---:|")
    for colour, times in pages.items():
        whole, work = zip(*times[1:], strict=True)  # the first is cold
        middle = statistics.median(whole)
        print(f"| {colour} | {middle:.0f} | {max(whole):.0f} | {statistics.median(work):.0f} |")


if __name__ == "__main__":
    main()
