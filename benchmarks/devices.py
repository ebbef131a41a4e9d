"""How fast the Devices panel is for a pod and a big module; prints a table.

    python benchmarks/devices.py [--devices 512] [--instructions 100000] [--repeat 7]

A generated step over a mesh of two axes, with sharded arguments and a collective in every
thirtieth instruction, opened as an HTML page in a Chromium without a GPU. Opening is timed from
the click on the tab until a frame with the panel is painted; a selection, from its change until
the frame with it. Goals: 300 ms and 50 ms.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests" / "ui"), str(REPO / "python")]

ARGUMENTS = 300
PAGE = """
window.root = [...document.querySelectorAll('*')].find((e) => e.shadowRoot)
  .shadowRoot.querySelector('.root');
window.painted = (work) => new Promise((done) => {
  const begun = performance.now();
  work();
  const script = performance.now() - begun;
  requestAnimationFrame(() => setTimeout(() => done([performance.now() - begun, script]), 0));
});
window.tab = (id) => root.querySelector(`#tab-${id}`);
"""


def module_text(devices: int, instructions: int) -> str:
    """HLO with that many instructions, partitioned over a mesh x × y."""
    x = 1 << (devices.bit_length() - 1) // 2
    y = devices // x
    cuts = [
        (f"{{devices=[{x},{y}]<=[{devices}]}}", (8192 // x, 8192 // y)),
        (f"{{devices=[1,{y},{x}]<=[{x},{y}]T(1,0) last_tile_dim_replicate}}", (8192, 8192 // y)),
        (f"{{devices=[{x},1,{y}]<=[{devices}] last_tile_dim_replicate}}", (8192 // x, 8192)),
    ]
    lines = [
        f"HloModule step, is_scheduled=true, num_partitions={devices}",
        "",
        "%add (a: f32[], b: f32[]) -> f32[] {",
        "  %a = f32[] parameter(0)",
        "  %b = f32[] parameter(1)",
        "  ROOT %sum = f32[] add(%a, %b)",
        "}",
        "",
        "ENTRY %main_spmd () -> f32[8] {",
    ]
    body = []
    for k in range(ARGUMENTS):
        sharding, (rows, columns) = cuts[k % len(cuts)]
        body.append(
            f"  %p{k} = f32[{rows},{columns}]{{1,0}} parameter({k}), sharding={sharding}, "
            f"metadata={{op_name=\"params['layer_{k}']\"}}"
        )
    groups = [
        f"[{x},{y}]<=[{devices}]",
        f"[{y},{x}]<=[{x},{y}]T(1,0)",
        f"[1,{devices}]<=[{devices}]",
    ]
    dims = cuts[0][1]
    shape = f"f32[{dims[0]},{dims[1]}]{{1,0}}"
    before = "p0"
    for k in range(instructions - ARGUMENTS - 3):
        name = f"v{k}"
        scope = f"jit(step)/layer_{k * 32 // instructions}"
        if k % 30 == 7:
            body.append(
                f"  %{name} = {shape} all-reduce(%{before}), channel_id={k + 1}, "
                f"replica_groups={groups[k // 30 % 3]}, use_global_device_ids=true, "
                f'to_apply=%add, metadata={{op_name="{scope}/dot_general"}}'
            )
        else:
            body.append(
                f'  %{name} = {shape} cosine(%{before}), metadata={{op_name="{scope}/cos"}}'
            )
        before = name
    body[-1] = body[-1].replace("  %", "  ROOT %", 1)
    lines[-1] = lines[-1].replace("f32[8]", shape.partition("{")[0])
    return "\n".join([*lines, *body, "}", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=512)
    parser.add_argument("--instructions", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--shot", type=Path, help="a PNG of the open panel")
    options = parser.parse_args()
    import hloscope as hs
    from conftest import CHROMIUM_FLAGS
    from playwright.sync_api import sync_playwright

    begun = time.process_time()
    capture = hs.read(module_text(options.devices, options.instructions))
    read = time.process_time() - begun
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "step.html"
        begun = time.process_time()
        capture.to_html(path)
        built = time.process_time() - begun
        chromium = os.environ.get("HLOSCOPE_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        rows: dict[str, list[tuple[float, float]]] = {"open, cold": [], "open": [], "select": []}
        for turn in range(options.repeat):
            page = browser.new_page(viewport={"width": 1500, "height": 1000})
            page.goto(path.as_uri())
            page.locator("#tab-devices").wait_for(timeout=60_000)
            page.wait_for_timeout(500)
            page.evaluate(PAGE)
            click = "() => painted(() => tab('devices').click())"
            rows["open, cold"].append(tuple(page.evaluate(click)))
            page.evaluate("() => painted(() => tab('details').click())")
            rows["open"].append(tuple(page.evaluate(click)))
            select = "(i) => painted(() => root.hloscope.store.selectInstruction(i))"
            for i in range(4, 4 + 5):
                rows["select"].append(tuple(page.evaluate(select, i)))
            if options.shot and turn == 0:
                page.screenshot(path=options.shot)
            page.close()
        browser.close()
    size = f"{len(capture.module.instructions):,} instructions, {options.devices} devices"
    print(f"{size}, {len(capture.collectives):,} collectives, {len(capture.shardings)} arrays")
    print(f"read {read:.1f} s, page with all analyses {built:.1f} s of CPU\n")
    print("| Devices panel | median ms | worst ms | script ms |\n|---|---:|---:|---:|")
    for name, found in rows.items():
        whole, script = zip(*found, strict=True)
        middle = statistics.median(whole)
        print(f"| {name} | {middle:.0f} | {max(whole):.0f} | {statistics.median(script):.0f} |")


if __name__ == "__main__":
    main()
