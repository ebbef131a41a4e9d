"""First pictures beside Model Explorer's, which is given our own groups as its namespaces.

    python benchmarks/front/model_explorer.py FILE … [--with PYTHON] [--limit 50]

PYTHON is an interpreter that has ``ai-edge-model-explorer`` (in an environment of its own: it
pins what notebooks need); without one this says so and measures nothing. Both get the same
module in the same Chromium: ours as a saved page, Model Explorer from its own server. A picture
counts from the request for the page until the first box is drawn. Prints milliseconds and ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "python"), str(Path(__file__).parent)]

# WebGL in software; the time of the first box of either: text on a canvas, instances of a shape.
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
# Model Explorer's list of files, where one of them could not be read.
REFUSED = "[...document.querySelectorAll('.status, td')].some((e) => /^error/i.test(e.innerText))"
WATCH = """(() => {
  window.drawn = 0;
  const note = () => { window.drawn ||= performance.now(); };
  const hook = (of, name, test) => {
    const before = of?.prototype?.[name];
    if (!before) return;
    of.prototype[name] = function (...all) {
      if (test.call(this, all)) note();
      return before.apply(this, all);
    };
  };
  hook(window.CanvasRenderingContext2D, "fillText", function () {
    return this.canvas.isConnected && this.canvas.width > 400;
  });
  for (const name of ["drawElementsInstanced", "drawArraysInstanced"]) {
    hook(window.WebGL2RenderingContext, name, (all) => all[all.length - 1] > 0);
  }
})()"""


def namespaces(module: Any) -> dict[str, Any]:
    """The module in Model Explorer's format: one node per instruction, our groups around it."""
    from hloscope.analysis.base.labels.flags import QUIET, flags
    from hloscope.analysis.base.labels.labels import labels
    from hloscope.analysis.grouping.groups import KINDS, group_tree

    tree, names = group_tree(module), labels(module)
    path = [""] * len(tree.parent)
    for g, parent in enumerate(tree.parent.tolist()):
        label = re.sub(r"[/;]", "·", tree.label[g])
        if parent >= 0 and KINDS[tree.kind[g]] != "entry":  # opens with what ENTRY holds, as ours
            path[g] = f"{path[parent]}/{label} #{g}".lstrip("/")
    quiet = (flags(module) & QUIET) != 0
    shown = {i.index for i in module.instructions if not quiet[i.index]}
    nodes = []
    for i in module.instructions:
        if i.index not in shown:
            continue
        sources = [o for o in i.operands if o.index in shown]
        nodes.append({
            "id": str(i.index),
            "label": names[i.index],
            "namespace": path[int(tree.group[i.index])],
            "incomingEdges": [
                {"sourceNodeId": str(o.index), "targetNodeInputId": str(k)}
                for k, o in enumerate(sources)
            ],
        })  # fmt: skip
    return {"label": module.name or "module", "graphs": [{"id": "step", "nodes": nodes}]}


def first_picture(browser: Any, url: str, limit: float) -> float | None:
    """Milliseconds from asking for the page to its first box; None past the limit, in seconds."""
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.add_init_script(WATCH)
    end = time.monotonic() + limit
    try:
        page.goto(url, wait_until="commit")
        while time.monotonic() < end:
            drawn, refused = page.evaluate(f"() => [window.drawn, {REFUSED}]")
            if drawn:
                return float(drawn)
            if refused:
                raise RuntimeError(f"the page refused its file: {url}")
            page.wait_for_timeout(50)
        return None
    finally:
        page.close()


class Server:
    """Model Explorer's own server, for one file; ``url`` is the page it says to open."""

    def __init__(self, python: str, file: Path, port: int) -> None:
        command = [python, "-c", "from model_explorer.cmdline import main; main()", str(file)]
        command += ["--no_open_in_browser", "--skip_health_check", "--port", str(port)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def url(self, limit: float) -> str:
        end = time.monotonic() + limit
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"https?://\S+/\?data=\S+", "".join(self.lines))
            if found:
                time.sleep(1)
                return found[0]
            time.sleep(0.1)
        raise RuntimeError("Model Explorer's server did not start: " + "".join(self.lines)[-400:])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def missing(python: str) -> str:
    """'' where the interpreter has Model Explorer, else why not."""
    try:
        run = subprocess.run(
            [python, "-c", "import model_explorer"], capture_output=True, text=True
        )
    except OSError as error:
        return f"{python}: {error.strerror}"
    lines = run.stderr.strip().splitlines()
    return lines[-1] if run.returncode and lines else "" if not run.returncode else "it failed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="+", type=Path)
    parser.add_argument("--with", dest="python", default=sys.executable)
    parser.add_argument("--limit", type=float, default=50.0, help="seconds")
    options = parser.parse_args()
    reason = missing(options.python)
    if reason:
        print(f"Not compared with Model Explorer: {reason}. Install ai-edge-model-explorer in an "
              "environment of its own and name its interpreter: --with PYTHON")  # fmt: skip
        return
    import hloscope as hs
    from playwright.sync_api import sync_playwright
    from run import table

    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for n, file in enumerate(options.file):
            capture = hs.read(file)
            page, graph = Path(name) / f"{n}.html", Path(name) / f"{n}.json"
            capture.to_html(page)
            graph.write_text(json.dumps(namespaces(capture.module)))
            ours = first_picture(browser, page.as_uri(), options.limit)
            server = Server(options.python, graph, 8090 + n)
            try:
                other = first_picture(browser, server.url(60), options.limit)
            finally:
                server.close()
            late = f"> {options.limit * 1000:,.0f}"
            ratio = "-" if not ours else f"{other / ours:.1f}×" if other else (
                f"> {options.limit * 1000 / ours:.0f}×")  # fmt: skip
            rows.append([file.name[:40], f"{len(capture.module.instructions):,}",
                         ours or late, other or late, ratio])  # fmt: skip
        browser.close()
    head = ["program", "instructions", "ours ms", "Model Explorer ms", "ratio"]
    table("From asking for the page to its first box", head, rows)


if __name__ == "__main__":
    main()
