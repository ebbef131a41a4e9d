"""How smooth the timeline zooms and pans with 100,000 instructions, and events of a trace.

    python benchmarks/front/timeline.py [--layers 30] [--events 100000]

The program is that of ``benchmarks/unrolled.py``; its trace is made up: each instruction of
ENTRY once a run, on four devices, transfers beside them. Prints, in milliseconds, the time
between frames and the CPU time that the page's main thread takes for one (script, style, layout
and painting, from Chromium's own trace), while the wheel turns in a browser without a GPU. 60
frames a second are 16.7 ms; CPU time is the same on a shared machine. Needs Chromium
(``CHROMIUM`` or /usr/bin/chromium) and playwright.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from bisect import bisect
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from run import FLAGS, REPO, table

sys.path.insert(0, str(REPO / "benchmarks"))

DRIVE = """async ([share, steps]) => {
  const canvas = (function find(root) {
    for (const e of root.querySelectorAll("*")) {
      if (e.matches(".timeline-box canvas")) return e;
      const inside = e.shadowRoot && find(e.shadowRoot);
      if (inside) return inside;
    }
    return null;
  })(document);
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const box = canvas.getBoundingClientRect();
  const turn = (more) => canvas.dispatchEvent(new WheelEvent("wheel", {
    clientX: box.left + box.width / 2, clientY: box.top + 60, bubbles: true, cancelable: true,
    deltaX: 0, deltaY: 0, ...more,
  }));
  canvas.focus();
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "0", bubbles: true }));
  for (let at = 1; at > share; at /= 1.25) turn({ deltaY: -1 });
  await frame();
  const gaps = [];
  let last = performance.now();
  for (let k = 0; k < steps; k++) {
    const side = k % 60 < 30 ? 1 : -1;
    if (k % 20 >= 14) turn({ deltaY: side }); else turn({ deltaX: 12 * side });
    await frame();
    const now = performance.now();
    gaps.push(now - last);
    last = now;
  }
  return gaps;
}"""


def quantiles(values: list[float]) -> tuple[float, float]:
    """Median and 95th of a hundred."""
    return tuple(float(np.quantile(values, q)) for q in (0.5, 0.95))


def cpu_of_frames(trace: bytes) -> list[float]:
    """Milliseconds of CPU that the main thread took for each frame, from a trace of Chromium."""
    events = json.loads(trace)["traceEvents"]
    frames = [e for e in events if e.get("name") == "FireAnimationFrame"]
    threads = Counter((e["pid"], e["tid"]) for e in frames)
    main = threads.most_common(1)[0][0]
    begins = sorted(e["ts"] for e in frames if (e["pid"], e["tid"]) == main)
    tasks = [
        e for e in events if e.get("name", "").endswith("RunTask") and (e["pid"], e["tid"]) == main
    ]
    spent: list[float] = []
    for e in sorted(tasks, key=lambda e: e["ts"]):
        # A frame begins with the task that requests it, and includes what runs before the next.
        if bisect(begins, e["ts"]) < bisect(begins, e["ts"] + e.get("dur", 0)):
            spent.append(0.0)
        if spent:
            spent[-1] += e.get("tdur", 0) / 1000
    return spent[1:-1]


def with_trace(cap: Any, events: int) -> Any:
    """The capture with a made-up trace of that many events."""
    from hloscope.analysis.measured.events import MeasuredEvents, MeasuredLane
    from hloscope.analysis.measured.join import join
    from hloscope.readers.xplane.xplane import OpTime

    module = cap.module
    ran = np.array([i.index for i in module.entry.instructions])
    rng = np.random.default_rng(7)
    lanes, ops = [], []
    each = events // 8
    for device in range(4):
        for name, beside in (("XLA Ops", False), ("Async XLA Ops", True)):
            took = rng.lognormal(-11, 1.5, each)
            start = np.concatenate(([0.0], np.cumsum(took)[:-1]))
            long = took * (8 if beside else 1)  # transfers overlap
            of = np.resize(ran, each)
            lanes.append(
                MeasuredLane(
                    device, f"TPU:{device}", name, beside, start, start + long, long, of, of * 0
                )
            )
        ops.append(OpTime(module.name, module.instructions[int(ran[-1])].name, device, 1.0, 1))
    found = join(module, ops)
    events = MeasuredEvents(tuple(lanes), ("op",))
    cap.for_hosts.measured = replace(found, events=events)
    cap.for_hosts.revision += 1
    return cap


def main() -> None:
    import hloscope as hs
    from playwright.sync_api import sync_playwright
    from unrolled import module

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--events", type=int, default=100_000)
    options = parser.parse_args()
    cap = hs.read(module(options.layers).encode())
    cap.hardware = "tpu-v5p"
    with_trace(cap, options.events)
    print(f"{len(cap.module.instructions):,} instructions, {options.events:,} events")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as p:
        file = cap.to_html(Path(folder) / "page.html")
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        running = p.chromium.launch(executable_path=chromium, args=FLAGS)
        page = running.new_page(viewport={"width": 1500, "height": 1000})
        page.goto(file.as_uri())
        page.get_by_role("tab", name="Timeline", exact=True).click(timeout=120_000)
        rows = []
        for part, device in (("Measured", "TPU:0"), ("Measured", "all devices"), ("Modelled", "")):
            page.get_by_role("button", name=part, exact=True).click()
            if device:
                page.get_by_label("Device").select_option(device)
            for share in (1.0, 0.1, 0.001):
                running.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
                gaps = page.evaluate(DRIVE, [share, 120])
                spent = cpu_of_frames(running.stop_tracing())
                times = *quantiles(gaps), *quantiles(spent)
                rows.append([f"{part} {device}".strip(), f"{share:g}", *times])
        head = ["timeline", "shown", "frame ms", "p95 ms", "CPU ms", "p95 ms"]
        table("Zoom and pan", head, rows)
        running.close()


if __name__ == "__main__":
    main()
