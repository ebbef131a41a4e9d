/** A canvas of cells with a value or a class each: hover, zoom, legend. Never colour alone. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Spot } from "../../state/devices/devices.ts";
import { classColor, heatColor, type Ink } from "../../theme/inks.ts";
import { painting } from "./canvas.ts";

export interface Cells {
  spots: Spot[];
  width: number; // in cells
  height: number;
  /** Text in the cell if it fits. */
  label(cell: number): string;
}

export interface Shown {
  /** NaN: no value. */
  values: ArrayLike<number>;
  /** Number of classes, if values are classes (tile numbers, groups) instead of amounts. */
  classes?: number;
  unit: string;
  what: string;
}

export interface HeatMap {
  element: HTMLElement;
  show(shown: Shown): void;
  /** Draws a ring around these cells. */
  mark(cells: Iterable<number>): void;
}

/** Height to fit the whole mesh into at first, px, as long as its cells are at least 12 px high. */
const TALLEST = 420;
/** Lowest and highest finite value. */
export function extent(values: ArrayLike<number>): [number, number] {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (let k = 0; k < values.length; k++) {
    const v = values[k];
    if (!Number.isFinite(v)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low > high ? [0, 0] : [low, high];
}

export function heatMap(
  cells: Cells,
  name: string,
  hover: (cell: number) => void,
  pick: (cell: number) => void,
  signal: AbortSignal,
): HeatMap {
  const painted = painting(
    { tabindex: "0", "aria-label": name },
    () => {
      if (!size) size = fitted();
      return [Math.ceil(cells.width * size) + 2, Math.ceil(cells.height * size) + 2];
    },
    (g, ink) => paint(g, ink),
    signal,
  );
  const { canvas, draw } = painted;
  const legend = h("div", { class: "heat-legend" });
  const box = h("div", { class: "heat-box" }, canvas);
  const zoomOut = h("button", { class: "mini", type: "button", onclick: () => zoom(1 / 1.5) }, "−");
  const zoomIn = h("button", { class: "mini", type: "button", onclick: () => zoom(1.5) }, "+");
  zoomOut.setAttribute("aria-label", "Smaller cells");
  zoomIn.setAttribute("aria-label", "Larger cells");
  const element = h(
    "div",
    { class: "heat" },
    box,
    h("div", { class: "heat-foot" }, legend, zoomOut, zoomIn),
  );
  let size = 0; // CSS pixels a cell; 0 until measured
  let now: Shown | null = null;
  let marked = new Set<number>();
  const fitted = () => {
    const across = Math.floor(((box.clientWidth || 480) - 2) / cells.width);
    const down = Math.floor(TALLEST / cells.height);
    return Math.min(56, Math.max(12, Math.min(across, down)));
  };
  const zoom = (by: number) => {
    size = Math.min(96, Math.max(4, Math.round(size * by)));
    draw();
  };
  const paint = (g: CanvasRenderingContext2D, ink: Ink) => {
    if (!now) return;
    const { values, classes } = now;
    const [low, high] = extent(values);
    const base = now.classes ? low : Math.min(low, 0);
    const span = high - base || 1;
    g.textAlign = "center";
    const edge = size >= 6 ? 1 : 0;
    cells.spots.forEach((spot, k) => {
      const v = values[k];
      const known = Number.isFinite(v) && v >= (classes ? 0 : Number.NEGATIVE_INFINITY);
      const t = (v - base) / span;
      const x = 1 + spot.x * size;
      const y = 1 + spot.y * size;
      g.fillStyle = !known ? "transparent" : classes ? classColor(v, ink) : heatColor(t, ink);
      g.fillRect(x, y, size - edge, size - edge);
      if (!known) {
        g.strokeStyle = ink.faint;
        g.strokeRect(x + 0.5, y + 0.5, size - edge - 1, size - edge - 1);
      }
      if (size >= 20) {
        const strong = !classes && t > 0.55;
        g.fillStyle = strong && known ? ink.onStrong : ink.dark && !known ? ink.dim : ink.text;
        const two = size >= 46 && known;
        g.fillText(cells.label(k), x + size / 2, y + size * (two ? 0.34 : 0.5), size - 2);
        if (two) {
          const text = classes ? `${now?.unit} ${v}`.trim() : format.quantity(v, now?.unit);
          g.fillText(text, x + size / 2, y + size * 0.68, size - 3);
        }
      }
    });
    g.lineWidth = 2;
    g.strokeStyle = ink.mark;
    for (const k of marked) {
      const spot = cells.spots[k];
      if (spot) g.strokeRect(2 + spot.x * size, 2 + spot.y * size, size - 3, size - 3);
    }
    fill(legend, ...legendOf(now, low, high, base, ink));
  };
  const cellAt = (event: MouseEvent): number => {
    const [x, y] = painted.at(event).map((v) => (v - 1) / size);
    return cells.spots.findIndex((s) => x >= s.x && x < s.x + 1 && y >= s.y && y < s.y + 1);
  };
  let over = -1;
  const move = (cell: number) => {
    if (cell === over) return;
    over = cell;
    hover(cell);
  };
  canvas.addEventListener("pointermove", (e) => move(cellAt(e)), { signal });
  canvas.addEventListener("pointerleave", () => move(-1), { signal });
  canvas.addEventListener("click", (e) => pick(cellAt(e)), { signal });
  canvas.addEventListener(
    "keydown",
    (e) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!step) return;
      e.preventDefault();
      move((over + step + cells.spots.length) % cells.spots.length);
    },
    { signal },
  );
  return {
    element,
    show(shown) {
      now = shown;
      draw();
    },
    mark(which) {
      marked = new Set(which);
      draw();
    },
  };
}

function legendOf(shown: Shown, low: number, high: number, base: number, ink: Ink): HTMLElement[] {
  if (shown.classes) {
    const text = `${shown.what}: ${format.count(shown.classes)} ${shown.unit}s, a colour and number each`;
    return [h("span", { class: "dim" }, text)];
  }
  if (low === high) {
    const known = Array.prototype.some.call(shown.values, Number.isFinite);
    const each = known ? `${format.quantity(low, shown.unit)} on each` : "unknown";
    return [h("span", { class: "dim" }, `${shown.what}: ${each}`)];
  }
  const stops = [0, 0.25, 0.5, 0.75, 1].map((t) => heatColor(t, ink)).join(",");
  return [
    h("span", { class: "dim" }, shown.what),
    h("span", null, format.quantity(base, shown.unit)),
    h("i", { class: "heat-ramp", style: { background: `linear-gradient(90deg,${stops})` } }),
    h("span", null, format.quantity(high, shown.unit)),
  ];
}
