"""Runs, and what is on the devices: pages in both themes, and live cells of a notebook."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import Server, code_cell, notebook, open_lab, run_command
from lab_server import wait_idle as idle

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest.importorskip("jax", reason="jax is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

VIEWPORT = {"width": 1300, "height": 950}

GIB = 2**30
PAGE = Path("made.html")


_RUN = """
import pickle, sys, jax, jax.numpy as jnp, hloscope as hs
f = jax.jit(lambda x, w: jnp.tanh(x @ w).sum())
found = hs.run(f, jnp.ones((64, 32)), jnp.ones((32, 32)), runs=7, hardware="tpu-v5e")
pickle.dump(found, open(sys.argv[1], "wb"))
"""


def runs(folder: Path) -> Any:
    """In a process of its own, as nothing is profiled where a TPU's compiler is loaded."""
    file = folder / "runs.pickle"
    subprocess.run([sys.executable, "-c", _RUN, str(file)], check=True)
    return pickle.loads(file.read_bytes())


def moments() -> tuple[Any, Any]:
    """What two moments on two GPUs would be; arrays by hand, as this machine has none."""
    from hloscope.hlo import StackFrame
    from hloscope.results import DeviceMemory, Live, LiveArrays

    stack = StackFrame("/home/me/train.py", 37, "step"), StackFrame("/home/me/train.py", 80, "main")
    params = LiveArrays(
        "/home/me/model.py:9", "bf16[4096,4096]", "P('data',)", 40, 5 * GIB, 3 * GIB, ("params",)
    )
    kept = LiveArrays("/home/me/train.py:37", "f32[]", "cuda:0", 3, 12, 12, ("losses",), stack)
    more = LiveArrays(*kept.key, 23, 92, 92, ("losses",), stack)
    devices = tuple(
        DeviceMemory(f"cuda:{n}", n * GIB, (n + 1) * GIB, 6 * GIB, 8 * GIB, 2 * GIB) for n in (2, 3)
    )
    return Live((params, kept), devices), Live((params, more), devices)


def shown(
    result: Any, open_page: Callable[..., Page], folder: Path, scheme: str = "light"
) -> Locator:
    file = result.to_html(folder / PAGE)
    page = open_page(file.as_uri(), width=1200, color_scheme=scheme)
    return page.locator(".plan")


def facts(plan: Locator) -> dict[str, str]:
    rows = plan.locator(".facts div").all()
    return {r.locator("dt").inner_text(): r.locator("dd").inner_text() for r in rows}


def cells(plan: Locator, title: str) -> list[list[str]]:
    table = plan.locator("section").filter(has=plan.page.get_by_role("heading", name=title))
    return [r.locator("td").all_inner_texts() for r in table.locator("tbody tr").all()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_runs_at_a_glance(
    open_page: Callable[..., Page], tmp_path: Path, page_errors: list[str], shots: Path, scheme: str
) -> None:
    from hloscope.analysis.text.units import duration

    found = runs(tmp_path)
    plan = shown(found, open_page, tmp_path, scheme)
    known = facts(plan)
    assert known["a run"] == f"{duration(found.median_seconds)}, the median of 7"
    assert known["modelled"] == found.modelled
    assert known["modelled"].endswith("TPU v5e")
    rows = cells(plan, "Runs")[-7:]
    assert [r[1] for r in rows] == [duration(s) for s in found.seconds]
    # a run's point and its row are one thing
    plan.locator("circle").nth(2).click()
    assert plan.locator("tr[aria-selected=true] td").first.inner_text() == "3"
    # operations: the same seconds as in the profile, sorted; shares add up
    operations = cells(plan, "Operations")
    total = sum(float(re.match(r"[\d.]+", r[4]).group()) for r in operations)  # type: ignore[union-attr]
    assert abs(total - 100) < len(operations)
    assert {r[0].lstrip("%") for r in operations} <= {r.instruction.name for r in found.measured}
    plan.page.screenshot(path=shots / f"runs-{scheme}.png", full_page=True)
    assert page_errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (480, "dark")])
def test_what_is_on_the_devices(
    open_page: Callable[..., Page], tmp_path: Path, page_errors: list[str], shots: Path,
    scheme: str, width: int,
) -> None:  # fmt: skip
    now, later = moments()
    plan = shown(now, open_page, tmp_path, scheme)
    page = plan.page
    page.set_viewport_size({"width": width, "height": 800})
    assert facts(plan)["bytes"] == "5 GiB"
    bars = plan.locator("svg").first.locator("rect title").all_text_contents()
    assert bars == [
        "cuda:3, arrays: 3 GiB", "cuda:3, in use beside them: 1 GiB", "cuda:3, free: 4 GiB",
        "cuda:2, arrays: 2 GiB", "cuda:2, in use beside them: 1 GiB", "cuda:2, free: 5 GiB",
    ]  # fmt: skip
    reported = ["cuda:2", "2 GiB", "3 GiB", "6 GiB", "8 GiB", "2 GiB"]
    assert cells(plan, "What they report")[0] == reported
    arrays = plan.locator("section").last
    arrays.get_by_role("button", name="bytes", exact=True).click()  # sorts
    first = arrays.locator("tbody tr").first
    assert first.locator("td").first.inner_text() == "train.py:37"
    first.click()
    stack = arrays.locator("pre").inner_text()
    assert stack == "/home/me/train.py:37 in step\n/home/me/train.py:80 in main"
    assert arrays.get_by_role("button", name="Copy its stack").is_visible()
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= width  # tables scroll, the page does not
    page.screenshot(path=shots / f"live-{scheme}-{width}.png", full_page=True)

    plan = shown(now.diff(later), open_page, tmp_path, scheme)
    assert facts(plan)["difference"] == "+80 B"
    assert cells(plan, "Changes") == [
        ["train.py:37", "f32[]", "cuda:0", "20", "80 B", "losses"],
    ]
    plan.page.screenshot(path=shots / f"live-diff-{scheme}-{width}.png", full_page=True)
    assert page_errors == []


def test_figures_can_be_copied(open_page: Callable[..., Page], tmp_path: Path) -> None:
    now, _ = moments()
    plan = shown(now, open_page, tmp_path)
    page = plan.page
    page.evaluate(
        "() => Object.defineProperty(navigator, 'clipboard',"
        " {value: {writeText: async (t) => { window.copied = t; }}})"
    )
    plan.get_by_role("button", name="Copy", exact=True).click()
    page.wait_for_function("() => window.copied")
    assert page.evaluate("() => window.copied") == str(now)
    plan.locator("section").last.get_by_role("button", name="Copy the table").click()
    page.wait_for_function("() => window.copied.startsWith('line')")
    lines = page.evaluate("() => window.copied").split("\n")
    assert lines[0].split("\t")[:4] == ["line", "shape", "sharding", "arrays"]
    assert lines[1].split("\t")[:4] == ["model.py:9", "bf16[4096,4096]", "P('data',)", "40"]


def test_whether_a_program_fits_beside_it(
    open_page: Callable[..., Page], tmp_path: Path, page_errors: list[str]
) -> None:
    from hloscope.results import Beside, Holder

    holders = Holder("params_old", "", 9 * GIB), Holder("", "/home/me/eval.py:3", GIB)
    made = Beside(7 * GIB, 11 * GIB, 16 * GIB, "tpu:0", holders)
    plan = shown(made, open_page, tmp_path)
    assert facts(plan)["together"] == "18 GiB"
    assert "params_old holds 9 GiB of them" in plan.locator(".note").inner_text()
    assert plan.locator("rect title").all_text_contents() == [
        "needed, this program's peak: 7 GiB", "needed, params_old: 9 GiB",
        "needed, eval.py:3: 1 GiB", "needed, the rest: 1 GiB",
        "tpu:0, the device's memory: 16 GiB",
    ]  # fmt: skip
    assert page_errors == []


CELLS = [
    "%load_ext hloscope\n"
    "import hloscope as hs, jax, jax.numpy as jnp, time\n"
    "slow = jax.jit(lambda x: jax.pure_callback("
    "lambda v: (time.sleep(0.4), v)[1], jax.ShapeDtypeStruct((8,), 'float32'), x) * 2)\n"
    "x = jnp.ones(8)",
    "hs.run(slow, x, runs=8)",
    "hs.live()",
    "%hlo --run jax.jit(lambda x: x * 2)(x)",
]


def test_cells_show_views_and_progress(
    server: Server, new_page: Callable[[], Page], shots: Path
) -> None:
    (server.root / "results.ipynb").write_text(notebook(*map(code_cell, CELLS)))
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    page = new_page()
    open_lab(page, server, "results")
    run_command(page, "docmanager:open", {"path": "results.ipynb"})
    idle(page)
    run_command(page, "notebook:run-all-cells")
    # while it runs, which run of how many
    moving = page.locator(".jp-OutputArea-output", has_text=re.compile(r"run \d of 8, \d+ s"))
    expect(moving.first).to_be_visible()
    page.screenshot(path=shots / "run-progress.png")
    idle(page)
    page.locator(".plan").nth(2).wait_for()
    assert page.get_by_text(re.compile(r"run \d of 8, \d+ s")).count() == 0
    titles = page.locator(".plan h2").all_inner_texts()
    assert titles[0].startswith("Runs of")
    assert titles[1] == "What is on the devices"
    assert titles[2].startswith("Runs of")
    assert "8" in facts(page.locator(".plan").first)["a run"]
    # the explorer comes after the figures, with its measured times open
    page.locator(".toolbar").first.wait_for()
    page.screenshot(path=shots / "run-notebook.png")
