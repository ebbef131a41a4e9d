"""Panning far out with very many boxes: a moved picture is the one that would be painted afresh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from large_module import large_module
from test_snapshot import HANDLE, OpenPage, ready, settle

if TYPE_CHECKING:
    from playwright.sync_api import Page

BOXES = 4000
# Values of two pixels, where a line is half way between two of them: what is missing is a strip.
ROUNDED = 8
# Wheel steps are pans of whole pixels; the pane's PNG draws it first.
PAN = """async ([dx, dy, steps]) => {
  const { pane } = HANDLE;
  const canvas = ROOT.querySelector(".graph canvas");
  for (let k = 0; k < steps; k++) {
    canvas.dispatchEvent(new WheelEvent("wheel", {
      deltaX: dx, deltaY: dy, clientX: 400, clientY: 300, bubbles: true, cancelable: true,
    }));
    await new Promise((done) => requestAnimationFrame(done));
  }
}""".replace("HANDLE", HANDLE).replace("ROOT", HANDLE.removesuffix(".hloscope"))
# Number of values that differ by more than rounding, and of colours of the first picture.
DIFFER = """async ([a, b]) => {
  const pixels = async (url) => {
    const bytes = Uint8Array.from(atob(url.split(",")[1]), (c) => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height).data;
  };
  const [p, q] = [await pixels(a), await pixels(b)];
  let differ = p.length === q.length ? 0 : Infinity;
  for (let k = 0; k < p.length; k++) if (Math.abs(p[k] - q[k]) > 32) differ++;
  return [differ, new Set(new Uint32Array(p.buffer)).size];
}"""


@pytest.fixture(scope="module")
def saved(renderer: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    import hloscope as hs

    folder = tmp_path_factory.mktemp("panning")
    (folder / "step.hlo").write_text(large_module(1.5))
    return Path(hs.read(folder / "step.hlo").to_html(folder / "step.html")).as_uri()


@pytest.fixture
def page(open_page: OpenPage, saved: str) -> Page:
    made = ready(open_page(saved))
    settle(made)
    assert made.evaluate(f"() => {{ {HANDLE}.pane.openAll(1e6); }}") is None
    made.evaluate(f"() => {HANDLE}.pane.setColoring(null)")
    made.wait_for_timeout(600)
    stats = made.evaluate(f"() => {HANDLE}.pane.stats()")
    assert stats["boxes"] + stats["containers"] > BOXES
    return made


def png(page: Page) -> str:
    return str(page.evaluate(f"() => {HANDLE}.pane.screenshot()"))


def afresh(page: Page) -> str:
    """The picture without anything kept from before: its boxes get their colours again."""
    page.evaluate(f"() => {{ const {{pane}} = {HANDLE}; pane.setColoring(null); }}")
    page.wait_for_timeout(100)
    return png(page)


@pytest.mark.parametrize("scale", [0.1, 0.2])
def test_a_panned_picture_is_one_painted_afresh(page: Page, scale: float) -> None:
    zoom: Any = f"(s) => {{ const {{pane}} = {HANDLE}; pane.zoom(s / pane.stats().scale); }}"
    page.evaluate(zoom, scale)
    page.wait_for_timeout(400)
    before = png(page)
    # Out of what was painted at first, in both directions and back, then by fractions of a pixel.
    for pan in ([9, 7, 80], [-11, 0, 90], [0, -9, 60], [4, 3, 20]):
        page.evaluate(PAN, pan)
        page.wait_for_timeout(300)
        moved = png(page)
        differ, colours = page.evaluate(DIFFER, [moved, afresh(page)])
        assert differ <= ROUNDED, f"after {pan}"
        assert colours > 3
    page.evaluate(PAN, [2.4, 1.7, 9])
    page.wait_for_timeout(500)
    moved = png(page)
    differ, _ = page.evaluate(DIFFER, [moved, afresh(page)])
    assert differ <= ROUNDED
    changed, _ = page.evaluate(DIFFER, [before, moved])
    assert changed > 1000


def test_panning_copies_whole_pixels_and_paints_only_what_comes_into_view(page: Page) -> None:
    """Counted in calls of the canvas, not in milliseconds."""
    page.evaluate(f"() => {{ const {{pane}} = {HANDLE}; pane.zoom(0.1 / pane.stats().scale); }}")
    page.wait_for_timeout(400)
    page.evaluate(
        """() => {
          const kind = CanvasRenderingContext2D.prototype;
          const { fillRect, drawImage } = kind;
          window.filled = 0;
          window.copies = [];
          kind.drawImage = function (image, ...at) {
            const { a, e, f } = this.getTransform();
            const whole = a === 1 && [...at, e, f].every(Number.isInteger);
            if (image.width > 1000) copies.push(whole && !this.imageSmoothingEnabled);
            return drawImage.call(this, image, ...at);
          };
          kind.fillRect = function (...at) { window.filled++; return fillRect.apply(this, at); };
        }"""
    )
    page.evaluate(PAN, [3, 2, 20])
    copies = page.evaluate("() => window.copies")
    assert len(copies) >= 20
    assert all(copies), "not copied as whole pixels"
    few = page.evaluate("() => window.filled")
    afresh(page)
    all_of_it = page.evaluate("() => window.filled") - few
    assert 0 < few < all_of_it / 4
