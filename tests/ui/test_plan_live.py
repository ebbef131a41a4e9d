"""Planning in a live notebook: the kernel answers clicks."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from test_notebooks import jupyter, open_notebook, wait_idle

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

__all__ = ["jupyter"]

SEARCH = """
import os
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import hloscope as hs, jax, jax.numpy as jnp
def step(w1, w2, x):
    return w1 - 1e-3 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) @ w2))(w1), w2
def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)
hs.search_shardings(
    step, array(64, 64), array(64, 64), array(32, 64), mesh={"x": 4}, hardware="a100",
    groups={"w2": [(), ("x",)], "x": ()}, options=hs.SearchOptions(isolate=False),
)
"""
STAGES = """
from hloscope.plan.stages.choices import Choice, exactly
from hloscope.plan.stages.plan import make_plan
choices = [
    Choice(a, b, (n,), exactly((b - a + 1) / n), exactly(2 * (b - a + 1) / n), "", 2**30, 2**28)
    for a in range(2) for b in range(a, 2) for n in (1, 2, 4)
]
make_plan(choices, ["embed", "head"], 4, 8)
"""
MODEL = """
hs.transformer(
    batch=8, seq=512, embed=512, heads=8, depth=4, mesh={"tensor": 2}, hardware="h100"
).explore(batch=[8, 16], chips=[2, 4])
"""


def write(jupyter: dict[str, Any], name: str, *sources: str) -> None:
    """Put a notebook into the folder of the server."""
    blank: dict[str, Any] = {"execution_count": None, "metadata": {}, "outputs": []}
    cells = [
        {"cell_type": "code", "id": f"c{n}", "source": source, **blank}
        for n, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {
        "cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    body = json.dumps({"type": "notebook", "format": "json", "content": content}).encode()
    request = urllib.request.Request(
        f"{jupyter['base']}/api/contents/{name}", data=body, method="PUT",
        headers={"Authorization": f"token {jupyter['token']}", "Content-Type": "application/json"},
    )  # fmt: skip
    urllib.request.urlopen(request).close()


def opened(plan: Locator) -> Any:
    """Frame of the page that was opened below."""
    return plan.frame_locator("iframe[title=opened]")


def test_planning_in_jupyterlab(
    open_page: Callable[..., Page], jupyter: dict[str, Any], page_errors: list[str], shots: Path
) -> None:
    write(jupyter, "plan.ipynb", SEARCH, STAGES, MODEL)
    page = open_notebook(open_page, jupyter, "lab/workspaces/plan/tree/plan.ipynb")
    page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    wait_idle(page)
    plans = page.locator(".plan")
    plans.nth(2).wait_for(timeout=60_000)
    shown = {plan.locator("h2").inner_text(): plan for plan in plans.all()}
    search = shown["Shardings of step"]
    a_search(search)
    search.screenshot(path=shots / "plan-live-search.png")
    stages = next(plan for title, plan in shown.items() if "2 layers" in title or "stage" in title)
    a_plan(stages)
    stages.screenshot(path=shots / "plan-live-stages.png")
    rest = [plan for plan in shown.values() if plan not in (search, stages)]
    a_model(rest[0])
    rest[0].screenshot(path=shots / "plan-live-model.png")
    assert [e for e in page_errors if "hloscope" in e.lower()] == []


def a_search(plan: Locator) -> None:
    # a click on a dot opens its capture
    dots = plan.locator("circle")
    dots.first.click()
    opened(plan).locator(".toolbar").first.wait_for(timeout=60_000)
    assert plan.locator("tr[aria-selected=true]").count() == 1
    # with any other selected, one more click compares it with the best
    rows = plan.locator("tbody tr")
    compare = plan.get_by_role("button", name="Compare")
    plan.locator("tr[aria-selected=true]").click()
    assert compare.is_disabled()
    rows.nth(3).click()
    assert compare.inner_text() == "Compare with the best"
    compare.click()
    opened(plan).locator("table").first.wait_for(timeout=60_000)
    # any two: Shift-click a dot, or click a second row
    rows.nth(1).click()
    assert compare.inner_text() == "Compare two"
    compare.click()
    plan.locator("p.status:empty").wait_for(state="attached", timeout=60_000)
    dots.last.click(modifiers=["Shift"])
    assert plan.locator("tr[aria-selected=true]").count() == 2


def a_plan(plan: Locator) -> None:
    note = plan.locator("section p[role=status]")
    before = note.inner_text()
    plan.locator(".edit input").first.fill("32")
    plan.get_by_role("button", name="Plan again").click()
    plan.locator(".picture svg[aria-label*='32 microbatches']").wait_for(timeout=30_000)
    assert note.inner_text() != before
    # change a time by hand
    second = plan.locator(".edit input").nth(1)
    now = note.inner_text()
    second.fill(str(10 * float(second.input_value())))
    plan.get_by_role("button", name="Plan again").click()
    note.filter(has_not_text=now).wait_for(timeout=30_000)


def a_model(plan: Locator) -> None:
    before = plan.locator("tbody").first.inner_text()
    plan.get_by_label("chips").press("ArrowRight")
    assert plan.locator("tbody").first.inner_text() != before
