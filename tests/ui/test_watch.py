"""Recompilations: table and timeline in a page, and in a notebook rows that open as captures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab_server import Server, code_cell, notebook, open_lab, run_command
from lab_server import wait_idle as idle

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("jax", reason="jax is not installed")
expect: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
expect.set_options(timeout=45_000)  # a busy machine starts processes slowly

VIEWPORT = {"width": 1300, "height": 950}

CELL = """import hloscope as hs
import jax, jax.numpy as jnp

@jax.jit
def predict(w, x):
    return jnp.tanh(x @ w)

w = jnp.ones((16, 16))
for rows in (4, 4, 6):
    predict(w, jnp.ones((rows, 16)))
predict(w, jnp.ones((6, 16), jnp.bfloat16))"""


def watched() -> Any:
    import hloscope as hs

    with hs.watch() as session:
        exec(compile(CELL, "watched.py", "exec"), {})
    return session


def rows_of(plan: Any) -> list[list[str]]:
    return [row.locator("td").all_inner_texts() for row in plan.locator("tbody tr").all()]


def test_a_page_has_the_table_and_the_timeline(
    open_page: Callable[..., Page], tmp_path: Path, page_errors: list[str], shots: Path
) -> None:
    session = watched()
    page = open_page(Path(session.to_html(tmp_path / "watch.html")).as_uri(), width=1200)
    names = [c.function for c in session]
    found = rows_of(page)
    assert [row[1] for row in found] == names
    changed = [row[-1] for row in found if row[1] == "predict"]
    assert len(changed) == 3
    assert changed == [
        "compiled for the first time",
        "x was float32[4,16], is float32[6,16]",
        "x was float32[6,16], is bfloat16[6,16]",
    ]
    # one lane per function; no bar lies outside the picture
    lanes = page.locator("svg text[text-anchor=end]").all_text_contents()[:-1]
    assert lanes == list(dict.fromkeys(names))
    bars = page.locator("svg rect").evaluate_all(
        "all => all.map((b) => ['x', 'y', 'width'].map((k) => Number(b.getAttribute(k)))"
        ".concat(b.querySelector('title').textContent))"
    )
    parts = {label.split(": ")[1].split(",")[0] for *_, label in bars}
    assert parts == {"tracing", "lowering", "compiling"}
    assert all(x >= 170 and x + width <= 1000 for x, _, width, _ in bars)
    assert {label.split(":")[0] for *_, label in bars} == {f"#{k}" for k in range(len(names))}
    page.screenshot(path=shots / "watch.png", full_page=True)
    assert page_errors == []


CACHED = """import jax
jax.config.update("jax_compilation_cache_dir", {folder!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
{cell}
jax.clear_caches()
predict(w, jnp.ones((4, 16)))
"""


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (480, "dark")])
def test_a_page_says_which_compiles_the_cache_spared(
    open_page: Callable[..., Page], tmp_path: Path, scheme: str, width: int, shots: Path,
    page_errors: list[str],
) -> None:  # fmt: skip
    import subprocess
    import sys

    program = CACHED.format(folder=str(tmp_path / "cache"), cell=CELL)
    body = "\n".join(f"    {line}" for line in program.split("\n"))
    target = str(tmp_path / "watch.html")
    whole = (
        f"import hloscope as hs\nwith hs.watch() as session:\n{body}\nsession.to_html({target!r})"
    )
    subprocess.run([sys.executable, "-c", whole], check=True, timeout=120)
    page = open_page(Path(target).as_uri(), width=width, color_scheme=scheme)
    head = page.locator("th").all_inner_texts()
    assert head[-2:] == ["cache", "what changed"]
    found = [row for row in rows_of(page) if row[1] == "predict"]
    assert [row[-2] for row in found] == ["miss", "miss", "miss", "hit"]
    assert "cache: no program of this name was in its folder" in found[0][-1]
    assert "1 hits" not in page.locator(".facts").inner_text()
    assert "1 hit, 3 misses" in page.locator(".facts").inner_text()
    # nothing is cut off: sentences take several lines, and pictures are not made smaller
    for cell in page.locator("td.wrap").all():
        assert cell.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    letters = page.locator(".spans text").first.evaluate("(e) => e.getBoundingClientRect().height")
    assert letters >= 7
    page.screenshot(path=shots / f"watch-cache-{scheme}-{width}.png", full_page=True)
    assert page_errors == []


def test_each_row_opens_as_a_capture(
    server: Server, new_page: Callable[[], Page], shots: Path
) -> None:
    body = "\n".join(f"    {line}" for line in CELL.split("\n")[7:])
    cell = "\n".join([*CELL.split("\n")[:7], "with hs.watch() as session:", body, "session"])
    (server.root / "watch.ipynb").write_text(notebook(code_cell(cell)))
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    page = new_page()
    open_lab(page, server, "watch")
    run_command(page, "docmanager:open", {"path": "watch.ipynb"})
    idle(page)
    run_command(page, "notebook:run-all-cells")
    plan = page.locator(".plan").first
    expect(plan.locator("tbody tr").first).to_be_visible()
    own = [k for k, row in enumerate(rows_of(plan)) if row[1] == "predict"]
    assert len(own) == 3
    shapes = ("f32[4,16]", "f32[6,16]", "bf16[6,16]")
    for k, shape in zip(own, shapes, strict=True):
        for chosen in plan.locator("tr[aria-selected=true]").all():
            chosen.click()
        plan.locator("tbody tr").nth(k).click()
        before = plan.locator("iframe[title=opened]")
        before.evaluate_all("all => all.forEach((f) => { f.title = 'before' })")
        plan.get_by_role("button", name="Open the capture").click()
        frame = plan.frame_locator("iframe[title=opened]")
        expect(frame.get_by_text("jit_predict", exact=True).first).to_be_visible()
        frame.get_by_role("tab", name="Text", exact=True).click()
        expect(frame.locator(".text-line", has_text=shape).first).to_be_attached()
    plan.screenshot(path=shots / "watch-notebook.png")
