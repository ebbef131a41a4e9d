"""Array → devices → collective → graph → source, on a program compiled for TPUs."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_widget import widget as show_widget

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="module")
def capture() -> Any:
    """Sequence parallelism on a v5e slice: a gather required by a constraint, and a reduction."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip('libtpu is not installed (pip install "hloscope[tpu]")')
    import hloscope as hs
    import jax
    import jax.numpy as jnp

    def step(x, w1, w2):
        x = jax.lax.with_sharding_constraint(x, jax.P("data", None, None))
        return jax.lax.with_sharding_constraint(jnp.tanh(x @ w1) @ w2, jax.P("data", None, None))

    shapes = [
        jax.ShapeDtypeStruct(shape, jnp.float32)
        for shape in ((4, 256, 512), (512, 1024), (1024, 512))
    ]
    specs = (jax.P("data", "model", None), jax.P(None, "model"), jax.P("model", None))
    return hs.capture(
        step, *shapes, topology="v5e:2x4", mesh={"data": 2, "model": 4}, in_shardings=specs
    )


@pytest.fixture
def snapshot(capture: Any, renderer: Path, open_page: OpenPage, tmp_path: Path) -> Page:
    path = tmp_path / "step.html"
    capture.to_html(path)
    return open_page(path.as_uri(), width=1500, height=1000)


@pytest.fixture
def widget(capture: Any, renderer: Path, open_page: OpenPage) -> Page:
    page = open_page("about:blank", width=1500, height=1000)
    return show_widget(page, renderer, capture, "{height: 900}")


def selected(page: Page) -> str:
    return page.locator(".status").inner_text()


@pytest.mark.parametrize(("host", "scheme"), [("snapshot", "light"), ("widget", "dark")])
def test_from_an_array_to_the_source(
    host: str, scheme: str, request: pytest.FixtureRequest, shots: Path, page_errors: list[str]
):
    page: Page = request.getfixturevalue(host)
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("tab", name="Devices").click()
    panel = page.locator(".devices")
    assert "8 × TPU v5 lite: mesh data=2, model=4" in panel.inner_text()

    # what a device does as well as what it holds
    colour = panel.get_by_label("Colour devices by")
    labels = colour.locator("option").all_inner_texts()
    assert {"live bytes at peak", "FLOPs", "bytes sent", "bytes received"} <= set(labels)
    colour.select_option("peak")
    assert "One program runs on every device" in panel.inner_text()
    colour.select_option("received")
    assert "Even: the same on all devices." in panel.inner_text()

    # an array: its tiles, and the device under the pointer
    picker = panel.get_by_label("Array")
    picker.select_option(label="x · f32[4,256,512] · parameter")
    assert "P('data', 'model', None)" in panel.inner_text()
    assert "%param" in selected(page)
    canvas = panel.get_by_label("Devices", exact=True)
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + box["height"] * 0.9)
    said = panel.locator(".note[aria-live]").first
    assert re.search(r"device 7, .*data 1, model 3, at \(\d, \d, 0\)", said.inner_text())
    assert "x [2:4, 192:256, 0:512]" in said.inner_text()
    panel.get_by_label("Arrange devices by").select_option("torus")
    page.screenshot(path=shots / f"devices_{host}_{scheme}.png")

    # the collective that gathers it: its card, the graph, the line
    page.get_by_role("tab", name="Collectives").click()
    page.get_by_label("Filter collectives").fill("all-gather")
    rows = page.locator(".collective-row[data-collective]")
    assert rows.count() == 1
    rows.first.click()
    assert "all-gather" in selected(page)
    card = page.locator(".card")
    assert "argument x" in card.inner_text()
    assert "2 groups of 4: {0,1,2,3} {4,5,6,7}" in card.inner_text()
    assert "the constraint at" in card.inner_text()
    assert "test_devices.py:" in card.inner_text()
    # the sharding change is marked in the graph and described in the details
    changes = page.get_by_role("button", name="sharding changes")
    assert changes.inner_text().split() == ["◆", "sharding", "changes", "1"]
    page.screenshot(path=shots / f"collectives_{host}_{scheme}.png")
    page.get_by_role("tab", name="Details").click()
    assert "P('data', 'model', None) → P('data', None, None)" in page.locator(".panel").inner_text()
    page.get_by_label("Colour by").select_option("family")
    assert changes.count() == 0
    page.get_by_role("tab", name="Collectives").click()

    # the line of the constraint that required it, in the user's own code
    origin = card.locator(".origins .link").first
    line = origin.inner_text().rpartition(":")[2]
    origin.click()
    assert page.get_by_role("tab", name="Source").get_attribute("aria-selected") == "true"
    pointed = page.locator(".source-line.pointed")
    assert pointed.locator(".number").inner_text() == line
    assert "with_sharding_constraint(x," in pointed.inner_text()
    page.screenshot(path=shots / f"source_{host}_{scheme}.png")
    if pointed.evaluate("e => e.tagName") == "BUTTON":
        pointed.click()
        assert f"test_devices.py:{line}" in page.locator(".graph").inner_text()
    page.get_by_role("tab", name="Collectives").click()

    # and its groups on the mesh
    card.get_by_role("button", name="Show on the devices").click()
    assert panel.get_by_label("Colour devices by").input_value() == "group"
    assert "2 groups, a colour and number each" in panel.inner_text()
    assert page_errors == []


def test_sorting_filtering_and_totals(snapshot: Page, page_errors: list[str]):
    page = snapshot
    page.get_by_role("tab", name="Collectives").click()
    rows = page.locator(".collective-row[data-collective]")
    assert rows.count() == 2
    page.get_by_role("button", name="Kind", exact=True).click()
    assert rows.first.inner_text().startswith("all-gather")
    page.get_by_role("button", name="Kind ↑").click()
    assert not rows.first.inner_text().startswith("all-gather")
    page.get_by_role("button", name="Totals", exact=True).click()
    page.get_by_label("Totals by").select_option("kind")
    page.locator(".collectives button.bar").first.click()
    assert rows.count() == 1
    page.get_by_role("button", name="Totals", exact=True).click()
    page.locator(".collectives button.bar").first.click()
    assert rows.count() == 2
    assert page_errors == []


PAINTED = """() => {
  const found = {};
  const walk = (at) => {
    for (const c of at.querySelectorAll("canvas[role=img]")) {
      const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      let sum = 0;
      for (let i = 0; i < data.length; i += 97) sum = (sum * 31 + data[i]) | 0;
      found[c.getAttribute("aria-label")] = sum;
    }
    for (const e of at.querySelectorAll("*")) if (e.shadowRoot) walk(e.shadowRoot);
  };
  walk(document);
  return found;
}"""


def test_a_theme_switch_paints_every_canvas_anew(snapshot: Page) -> None:
    """Map, tiles, traffic and treemap; all their colours come from the theme."""
    seen = set()
    for panel in ("Devices", "Cost"):
        snapshot.emulate_media(color_scheme="light")
        snapshot.get_by_role("tab", name=panel).click()
        if panel == "Cost":
            snapshot.get_by_role("button", name="By scope", exact=True).click()
        snapshot.wait_for_timeout(300)
        light = snapshot.evaluate(PAINTED)
        snapshot.emulate_media(color_scheme="dark")
        snapshot.wait_for_timeout(300)
        dark = snapshot.evaluate(PAINTED)
        assert light.keys() == dark.keys()
        for name, sum_ in light.items():
            assert dark[name] != sum_, name
        seen |= set(light)
    assert {n.split(" ")[0] for n in seen} >= {"Devices", "Tiles", "Traffic", "Treemap"}
