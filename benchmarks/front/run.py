"""How fast the graph is in a browser without a GPU, and its layout beside dagre and Graphviz.

    python benchmarks/front/run.py FILE [--limit 60] [--skip-layouts]

FILE is a dump; a 100,000-instruction one is written by ``benchmarks/read_module.py``. Prints
tables: first picture, frames with 100,000 boxes open, opening groups, layouts of ENTRY with a
time limit in seconds. Needs node, Chromium (``CHROMIUM`` or /usr/bin/chromium) and playwright.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(REPO / "python"))
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--enable-precise-memory-info"]


def bundle(entry: Path, out: Path, *options: str) -> None:
    esbuild = REPO / "node_modules" / ".bin" / "esbuild"
    command = [str(esbuild), str(entry), "--bundle", f"--outfile={out}", "--log-level=error"]
    subprocess.run([*command, *options], check=True, cwd=REPO)


def table(title: str, head: list[str], rows: list[list[Any]]) -> None:
    cells = [head, *[[f"{c:,.1f}" if isinstance(c, float) else str(c) for c in r] for r in rows]]
    widths = [max(len(r[k]) for r in cells) for k in range(len(head))]
    print(f"\n{title}")
    for r in cells:
        print("  " + "  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)))


def browser(view: bytes, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    bundle(HERE / "page.ts", folder / "page.js", "--format=iife")
    with sync_playwright() as p:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        running = p.chromium.launch(executable_path=chromium, args=FLAGS)
        page = running.new_page(viewport={"width": 1000, "height": 620})
        page.set_content('<div id="graph" style="width:1000px;height:620px"></div>')
        page.add_script_tag(path=str(folder / "page.js"))
        block = base64.b64encode(view).decode()
        rows = []
        for k in range(3):
            r = page.evaluate("b => bench.first(b)", block)
            rows.append([k + 1, r["instructions"], r["boxes"], r["decode"], r["picture"]])
            rows[-1] += [r["total"], r["heap"] / 2**20]
        head = ["run", "instructions", "boxes", "decode ms", "picture ms", "total ms", "heap MiB"]
        table("First picture, from the View's bytes (run 1 is cold)", head, rows)
        r = page.evaluate("bench.openings(60)")
        head = ["runs", "median ms", "p95 ms"]
        table("Opening or closing a group", head, [[r["runs"], r["median"], r["p95"]]])
        r = page.evaluate("bench.frames()")
        rows = []
        for zoom in ("fit", "far", "middle", "near"):
            f = r[zoom]
            rows.append([zoom, f"{f['scale']:.3f}", f["median"], f["p95"], f["script"]])
        title = f"Pan and zoom with {r['boxes']:,} boxes open"
        title += f" (opened in {r['opened']:,.0f} ms, heap {r['heap'] / 2**20:,.0f} MiB)"
        table(title, ["zoom", "scale", "frame ms", "p95 ms", "script ms"], rows)
        running.close()


def timed(command: list[str], limit: float, stdin: str = "") -> tuple[float | None, str]:
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        return None, ""
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        return None, f"failed: {error}"
    return (time.monotonic() - begin) * 1000, done.stdout


def layouts(view: Path, folder: Path, limit: float) -> None:
    script = folder / "layouts.mjs"
    bundle(HERE / "layouts.ts", script, "--platform=node", "--format=esm")
    node = ["node", "--max-old-space-size=6000", str(script), str(view)]
    rows: list[list[Any]] = []
    done = 0
    for n in (250, 500, 1000, 5000, 20000):
        ours = json.loads(timed([*node, "ours", str(n)], 120)[1])
        if ours["n"] == done:
            break
        done = ours["n"]
        row: list[Any] = [ours["n"], ours["edges"], ours["ms"], ours["bytes"] / 2**20]
        _, out = timed([*node, "dagre", str(n)], limit)
        other = json.loads(out) if out else None
        row += versus(other["ms"] if other else None, ours["ms"], limit)
        row.append(other["bytes"] / 2**20 if other else "-")
        text = timed([*node, "text", str(n)], 120)[1]
        ms, _ = timed(["dot", "-Tplain", "-o", os.devnull], limit, text)
        row += versus(ms, ours["ms"], limit)
        rows.append(row)
    head = ["nodes", "edges", "ours ms", "MiB", "dagre ms", "ratio", "MiB", "dot ms", "ratio"]
    table(f"Layout of ENTRY, flat, at most {limit:g} s each", head, rows)


def versus(ms: float | None, ours: float, limit: float) -> list[Any]:
    if ms is None:
        return [f"> {limit * 1000:,.0f}", f"> {limit * 1000 / ours:,.0f}×"]
    return [ms, f"{ms / ours:,.0f}×"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--skip-layouts", action="store_true")
    options = parser.parse_args()
    from hloscope.readers import read_modules
    from hloscope.view import build_view

    modules = read_modules(options.file.read_bytes(), options.file.name)
    module = max(modules, key=lambda m: len(m.instructions))
    view = build_view(module)
    print(f"{options.file.name}: {len(module.instructions):,} instructions, {len(view):,} bytes")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "view.bin").write_bytes(view)
        browser(view, folder)
        if not options.skip_layouts:
            layouts(folder / "view.bin", folder, options.limit)


if __name__ == "__main__":
    main()
