"""Canonical views of one program compared with small golden pictures, light and dark.

    HLOSCOPE_ACCEPT=1 python -m pytest tests/ui/test_pictures.py    accepts what it sees now

Pictures are compared at low resolution and in few colours, as if seen from a distance: another
version of a font or a browser passes; an empty panel, a changed arrangement or missing colours
do not. The list of labels and their positions beside it shows what so small a picture cannot:
that one label moved or disappeared. When a test fails, tests/ui/shots/ has what was seen.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hloscope as hs
import pytest
from labels import RECORD, differences, labels

if TYPE_CHECKING:
    from playwright.sync_api import Page

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "pictures"
PROGRAM = GOLDEN.parent / "blocks" / "sharded.hlo.gz"
SIZE = (1200, 780)
SMALL = (300, 195)
# Limits for the small picture: mean difference (of 255), share of pixels off by over a sixth.
MEAN, PART = 3.0, 0.03


def _tab(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("tab", name=name, exact=True).click()


def _selected(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("opcode:all-reduce")
    page.wait_for_timeout(300)
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")


def _details(page: Page) -> None:
    _selected(page)
    _tab("Details")(page)


def _colored(label: str) -> Callable[[Page], None]:
    return lambda page: (
        page.get_by_label("Colour", exact=False).first.select_option(label=label),
        None,
    )[1]


VIEWS: dict[str, Callable[[Page], None]] = {
    "overview": lambda page: None,
    "selected": _selected,
    "details": _details,
    "time": _colored("Modelled time"),
    "outline": _tab("Outline"),
    "text": _tab("Text"),
    "collectives": _tab("Collectives"),
    "devices": _tab("Devices"),
    "cost": _tab("Cost"),
    "memory": _tab("Memory"),
    "source": _tab("Source"),
    "narrow": lambda page: page.set_viewport_size({"width": 620, "height": 780}),
}

# Compares PNGs, scaled down and in 16 levels per channel; the second is the golden one, or "".
COMPARE = """async ([shot, golden, [w, h]]) => {
  const pixels = async (data) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes]));  // the page allows no other
    const canvas = new OffscreenCanvas(w, h);
    const g = canvas.getContext("2d", { willReadFrequently: true });
    g.imageSmoothingQuality = "high";
    g.drawImage(image, 0, 0, w, h);
    const found = g.getImageData(0, 0, w, h);
    for (let k = 0; k < found.data.length; k++) {
      if (k % 4 < 3) found.data[k] = Math.round(found.data[k] / 17) * 17;
    }
    g.putImageData(found, 0, 0);
    return [canvas, found.data];
  };
  const [canvas, now] = await pixels(shot);
  const blob = await canvas.convertToBlob({ type: "image/png" });
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let small = "";
  for (const b of bytes) small += String.fromCharCode(b);
  if (!golden) return { small: btoa(small), mean: 255, part: 1 };
  const [, before] = await pixels(golden);
  let sum = 0;
  let far = 0;
  for (let k = 0; k < now.length; k += 4) {
    // a text that moved by a pixel is the same text: the nearest of the neighbours counts
    let least = 255;
    for (const d of [0, 4, -4, 4 * w, -4 * w]) {
      let most = 0;
      for (let c = 0; c < 3; c++) most = Math.max(most, Math.abs(now[k + c] - before[k + d + c]));
      if (most < least) least = most;
    }
    sum += least;
    if (least > 42) far++;
  }
  const count = now.length / 4;
  return { small: btoa(small), mean: sum / count, part: far / count };
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, renderer: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    capture = hs.read(PROGRAM)
    capture.hardware = "tpu-v5e"
    made = {}
    for theme in ("light", "dark"):
        capture.display["theme"] = theme
        made[theme] = Path(capture.to_html(folder / f"{theme}.html"))
    return made


def seen(page: Page, view: str) -> str:
    page.locator(".graph canvas").first.wait_for()
    page.get_by_role("tab", name="Cost", exact=True).wait_for()  # the analyses have arrived
    page.wait_for_timeout(200)
    VIEWS[view](page)
    page.mouse.move(1, 1)
    page.wait_for_timeout(500)
    return base64.b64encode(page.screenshot(animations="disabled")).decode()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_looks_as_it_did(
    view: str, theme: str, pages: dict[str, Path], open_page: Callable[..., Page], shots: Path
) -> None:
    page = opened(open_page, pages, theme)
    shot = seen(page, view)
    path, names = GOLDEN / f"{view}-{theme}.png", GOLDEN / f"{view}.json"
    golden = base64.b64encode(path.read_bytes()).decode() if path.exists() else ""
    found = page.evaluate(COMPARE, [shot, golden, SMALL])
    now = labels(page)
    if os.environ.get("HLOSCOPE_ACCEPT"):
        if found["mean"] > MEAN / 3 or found["part"] > PART / 3:
            path.write_bytes(base64.b64decode(found["small"]))
        if theme == "light" and (not names.exists() or differences(now, written(names))):
            rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in now["labels"])
            names.write_text(f'{{"probe": {now["probe"]}, "labels": [\n{rows}\n]}}\n')
        return
    assert golden, f"{path.name} is missing: HLOSCOPE_ACCEPT=1 makes it"
    moved = differences(now, written(names))
    if found["mean"] > MEAN or found["part"] > PART or moved:
        (shots / f"{path.stem}-now.png").write_bytes(base64.b64decode(shot))
        (shots / f"{path.stem}-before.png").write_bytes(path.read_bytes())
    assert found["mean"] <= MEAN, f"{path.stem}: see tests/ui/shots/{path.stem}-now.png"
    assert found["part"] <= PART, f"{path.stem}: see tests/ui/shots/{path.stem}-now.png"
    assert not moved, f"{path.stem}: see tests/ui/shots/{path.stem}-now.png"


def opened(open_page: Callable[..., Page], pages: dict[str, Path], theme: str) -> Page:
    width, height = SIZE
    url = pages[theme].as_uri()
    return open_page(url, color_scheme=theme, width=width, height=height, script=RECORD)


def written(names: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(names.read_text())
    return found


@pytest.mark.parametrize(
    ("where", "style"),
    [
        (".graph canvas", "filter: hue-rotate(60deg)"),  # a different colour scale
        (".graph canvas", "transform: translate(0, 16px)"),  # everything a line lower
        (".graph canvas", "visibility: hidden"),
    ],
)
def test_a_view_that_looks_otherwise_is_seen(
    where: str, style: str, pages: dict[str, Path], open_page: Callable[..., Page]
) -> None:
    page = opened(open_page, pages, "light")
    seen(page, "time")
    page.locator(where).first.evaluate("(e, style) => { e.style.cssText += style }", style)
    shot = base64.b64encode(page.screenshot(animations="disabled")).decode()
    golden = base64.b64encode((GOLDEN / "time-light.png").read_bytes()).decode()
    found = page.evaluate(COMPARE, [shot, golden, SMALL])
    assert found["mean"] > MEAN or found["part"] > PART, found


GRAPH_LABEL = "layer_2"  # occurs once

# Draws one label of the graph elsewhere, or not at all.
OTHERWISE = """([text, dx, dy, gone]) => {
  const C = CanvasRenderingContext2D.prototype;
  const before = C.fillText;
  C.fillText = function (label, x, y) {
    if (label !== text) before.call(this, label, x, y);
    else if (!gone) before.call(this, label, x + dx, y + dy);
  };
}"""


@pytest.mark.parametrize(
    ("dx", "dy", "gone", "told"),
    [(0, 4, False, "moved"), (-4, 0, False, "moved"), (0, 0, True, "missing")],
)
def test_one_label_that_moved_is_seen(
    dx: float,
    dy: float,
    gone: bool,
    told: str,
    pages: dict[str, Path],
    open_page: Callable[..., Page],
) -> None:
    page = opened(open_page, pages, "light")
    golden = written(GOLDEN / "overview.json")
    seen(page, "overview")
    assert differences(labels(page), golden) == []
    page.evaluate(OTHERWISE, [GRAPH_LABEL, dx, dy, gone])
    for height in (SIZE[1] - 40, SIZE[1]):  # forces a redraw
        page.set_viewport_size({"width": SIZE[0], "height": height})
        page.wait_for_timeout(400)
    (one,) = differences(labels(page), golden)
    assert one.startswith(f"{GRAPH_LABEL!r} ")
    assert told in one


@pytest.mark.parametrize(
    ("selector", "style", "told"),
    [
        (".legend", "position: relative; top: 4px", "moved"),
        ("[role=tab]", "visibility: hidden", "missing"),
    ],
)
def test_one_text_of_the_page_that_moved_is_seen(
    selector: str, style: str, told: str, pages: dict[str, Path], open_page: Callable[..., Page]
) -> None:
    page = opened(open_page, pages, "light")
    seen(page, "overview")
    page.locator(selector).first.evaluate("(e, style) => { e.style.cssText += style }", style)
    found = differences(labels(page), written(GOLDEN / "overview.json"))
    assert found
    assert all(told in one for one in found)
