"""Frames of the whole page while its picture is panned: panel, key to the colours, strip as well.

    python benchmarks/front/pan.py FILE [--boxes 10000]

FILE is a dump. Opens groups until there are that many boxes, and pans 150 steps at five zooms in
Chromium without a GPU. Prints milliseconds between frames, of our script in them, and of CPU that
the page's main thread takes for one, painting included: that is the same on a shared machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "python"), str(Path(__file__).parent)]

ROOT = "document.querySelector('#hloscope').shadowRoot.querySelector('.root')"
ZOOMS = {"fit": 0, "far": 0.08, "plain": 0.2, "middle": 0.4, "near": 1.2}
OPEN = """async (limit) => {
  const { pane } = ROOT.hloscope;
  pane.openAll(limit);
  await new Promise((done) => setTimeout(done, 1500));
  return pane.stats().boxes + pane.stats().containers;
}""".replace("ROOT", ROOT)
ZOOM = """async (scale) => {
  const { pane } = ROOT.hloscope;
  pane.fit();
  await new Promise((done) => setTimeout(done, 600));
  if (scale) pane.zoom(scale / pane.stats().scale);
}""".replace("ROOT", ROOT)
PAN = """async () => {
  const root = ROOT;
  const { pane } = root.hloscope;
  const canvas = root.querySelector(".graph canvas");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
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
  return [gaps, script];
}""".replace("ROOT", ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--boxes", type=int, default=10_000)
    options = parser.parse_args()
    import hloscope as hs
    from playwright.sync_api import sync_playwright
    from run import FLAGS, table
    from timeline import cpu_of_frames, quantiles

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "page.html"
        hs.read(options.file).to_html(page_file)
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".toolbar")
        page.wait_for_timeout(1000)
        boxes = page.evaluate(OPEN, options.boxes)
        rows: list[list[object]] = []
        for zoom, scale in ZOOMS.items():
            page.evaluate(ZOOM, scale)
            gaps, script = page.evaluate(PAN)
            page.evaluate(ZOOM, scale)
            browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
            page.evaluate(PAN)
            spent = cpu_of_frames(browser.stop_tracing())
            rows.append([zoom, *quantiles(gaps), *quantiles(script), *quantiles(spent)])
        browser.close()
    if boxes < options.boxes:
        print(f"only {boxes:,} boxes: {options.file} has no more to open than that; take another")
    head = ["zoom", "frame ms", "p95 ms", "script ms", "p95 ms", "CPU ms", "p95 ms"]
    table(f"Panning the whole page with {boxes:,} boxes open", head, rows)


if __name__ == "__main__":
    main()
