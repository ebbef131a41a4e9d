"""Frames of the whole page while its picture is panned: panel, key to the colours, strip as well.

    python benchmarks/front/pan.py FILE [--boxes 10000]

FILE is a dump. Opens groups until there are that many boxes, and pans 150 steps at five zooms in
Chromium without a GPU. Prints milliseconds between frames and of our script in them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "python"), str(Path(__file__).parent)]

ROOT = "document.querySelector('#hloscope').shadowRoot.querySelector('.root')"
PAN = """async (limit) => {
  const root = ROOT;
  const { pane } = root.hloscope;
  const canvas = root.querySelector(".graph canvas");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const at = (values, q) => [...values].sort((a, b) => a - b)[Math.floor(values.length * q)];
  pane.openAll(limit);
  await pause(1500);
  const rows = [];
  for (const [zoom, scale] of [["fit", 0], ["far", 0.08], ["plain", 0.2], ["middle", 0.4],
    ["near", 1.2]]) {
    pane.fit();
    await pause(600);
    if (scale) pane.zoom(scale / pane.stats().scale);
    const gaps = [], script = [];
    let last = await frame();
    for (let k = 0; k < 150; k++) {
      const side = k % 80 < 40 ? 1 : -1;
      canvas.dispatchEvent(new WheelEvent("wheel", {
        deltaX: 9 * side, deltaY: 7 * side, clientX: 500, clientY: 400,
        bubbles: true, cancelable: true,
      }));
      const now = await frame();
      gaps.push(now - last);
      script.push(pane.stats().frameMs);
      last = now;
    }
    rows.push([zoom, at(gaps, 0.5), at(gaps, 0.95), at(script, 0.5), at(script, 0.95)]);
  }
  return [pane.stats().boxes + pane.stats().containers, rows];
}""".replace("ROOT", ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--boxes", type=int, default=10_000)
    options = parser.parse_args()
    import hloscope as hs
    from playwright.sync_api import sync_playwright
    from run import FLAGS, table

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "page.html"
        hs.read(options.file).to_html(page_file)
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".toolbar")
        page.wait_for_timeout(1000)
        boxes, rows = page.evaluate(PAN, options.boxes)
        browser.close()
    if boxes < options.boxes:
        print(f"only {boxes:,} boxes: {options.file} has no more to open than that; take another")
    head = ["zoom", "frame ms", "p95 ms", "script ms", "p95 ms"]
    table(f"Panning the whole page with {boxes:,} boxes open", head, rows)


if __name__ == "__main__":
    main()
