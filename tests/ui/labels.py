"""Every text that a page shows, with its position: in the document and on canvases.

A small picture does not show when one label of a hundred moves or disappears; this does:

    open_page(url, script=RECORD)       the page remembers what it writes on canvases
    found = labels(page)                {"probe": 312.4, "labels": [["tanh.1", 410.5, 96.0], …]}
    differences(found, golden)          ["'tanh.1' moved from 410,96 to 410,112", …]

Positions are in CSS pixels of the viewport: the top left corner of a text of the document, the
point at which a text on a canvas was drawn.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

NEAR = 2.0  # pixels that a label may move
Label = list[Any]  # text, x, y

# Records what was written on each canvas since it was last filled or cleared as a whole.
RECORD = """(() => {
  const C = CanvasRenderingContext2D.prototype;
  const written = new WeakMap();
  const at = (g, x, y) => {
    const m = g.getTransform();
    return [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f];
  };
  const whole = (g, x, y, w, h) => {
    const [left, top] = at(g, x, y);
    const [right, bottom] = at(g, x + w, y + h);
    const { width, height } = g.canvas;
    return left < 2 && top < 2 && right > width - 2 && bottom > height - 2;
  };
  const { fillText, drawImage } = C;
  for (const name of ["fillRect", "clearRect"]) {
    const before = C[name];
    C[name] = function (...place) {
      if (whole(this, ...place)) written.delete(this.canvas);
      return before.apply(this, place);
    };
  }
  C.fillText = function (text, x, y, ...more) {
    if (!written.has(this.canvas)) written.set(this.canvas, []);
    written.get(this.canvas).push([String(text), ...at(this, x, y)]);
    return fillText.call(this, text, x, y, ...more);
  };
  C.drawImage = function (image, ...place) {
    const [x, y, w, h] = place.length > 4 ? place.slice(4) : place;
    for (const [text, a, b] of written.get(image) ?? []) {
      const on = at(this, x + (a / image.width) * (w ?? image.width),
        y + (b / image.height) * (h ?? image.height));
      if (!written.has(this.canvas)) written.set(this.canvas, []);
      written.get(this.canvas).push([text, ...on]);
    }
    return drawImage.call(this, image, ...place);
  };
  window.writtenOn = (canvas) => written.get(canvas) ?? [];
})()"""

FOUND = """() => {
  const labels = [];
  const add = (text, x, y) => {
    if (x < 0 || y < 0 || x > innerWidth || y > innerHeight) return;
    labels.push([text, Math.round(x * 2) / 2, Math.round(y * 2) / 2]);
  };
  const visit = (node) => {
    if (node.nodeType === Node.TEXT_NODE) {
      const text = node.data.trim().replace(/\\s+/g, " ");
      if (!text) return;
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      if (box.width > 1 && box.height > 1) add(text.slice(0, 60), box.left, box.top);
      return;
    }
    if (node instanceof Element) {
      if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return;
      if (node instanceof HTMLStyleElement || node instanceof HTMLScriptElement) return;
    }
    if (node instanceof HTMLCanvasElement) {
      const box = node.getBoundingClientRect();
      for (const [text, x, y] of window.writtenOn(node)) {
        if (x < 0 || y < 0 || x > node.width || y > node.height) continue;
        add(text, box.left + (x / node.width) * box.width,
          box.top + (y / node.height) * box.height);
      }
      return;
    }
    for (const child of (node.shadowRoot ?? node).childNodes) visit(child);
  };
  visit(document.documentElement);
  const g = new OffscreenCanvas(1, 1).getContext("2d");
  g.font = "100px system-ui, sans-serif";
  return { probe: Math.round(g.measureText("Modelled time 0123456789").width), labels };
}"""


def labels(page: Page) -> dict[str, Any]:
    """Labels sorted by position, each once: a canvas may write one twice, bold over plain."""
    found = page.evaluate(FOUND)
    unique = {(text, x, y) for text, x, y in found["labels"]}
    return {"probe": found["probe"], "labels": [list(t) for t in sorted(unique, key=_down)]}


def _down(label: tuple[str, float, float]) -> tuple[float, float, str]:
    text, x, y = label
    return y, x, text


def differences(now: dict[str, Any], golden: dict[str, Any]) -> list[str]:
    """Describe labels that moved by more than ``NEAR``, are missing or are new.

    If the fonts differ (``probe``), positions mean nothing: then only the texts of labels that
    are not truncated are compared, and up to 5 % may be missing.
    """
    if now["probe"] != golden["probe"]:
        return _texts_only(now["labels"], golden["labels"])
    before, after = _by_text(golden["labels"]), _by_text(now["labels"])
    told = []
    for text in sorted({*before, *after}):
        old, new = before[text], after[text]
        for place in list(old):
            near = [p for p in new if max(abs(p[0] - place[0]), abs(p[1] - place[1])) <= NEAR]
            if near:
                new.remove(min(near, key=lambda p: abs(p[0] - place[0]) + abs(p[1] - place[1])))
                old.remove(place)
        for place in old:
            where = f"{place[0]:g},{place[1]:g}"
            if new:
                to = min(new, key=lambda p: abs(p[0] - place[0]) + abs(p[1] - place[1]))
                new.remove(to)
                told.append(f"{text!r} moved from {where} to {to[0]:g},{to[1]:g}")
            else:
                told.append(f"{text!r} at {where} is missing")
        told += [f"{text!r} at {p[0]:g},{p[1]:g} is new" for p in new]
    return told


def _by_text(found: list[Label]) -> dict[str, list[tuple[float, float]]]:
    out: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for text, x, y in found:
        out[text].append((x, y))
    return out


def _texts_only(now: list[Label], golden: list[Label]) -> list[str]:
    def words(found: list[Label]) -> set[str]:
        return {text for text, _, _ in found if "…" not in text and re.search(r"\w", text)}

    gone = sorted(words(golden) - words(now))
    few = len(gone) <= 0.05 * len(golden)
    return [] if few else [f"{text!r} is missing, in another font" for text in gone]
