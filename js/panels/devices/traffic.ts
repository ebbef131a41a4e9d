/** Bytes from each device (row) to each device (column), over all collectives and executions. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Devices } from "../../state/devices/devices.ts";
import { heatColor, type Ink } from "../../theme/inks.ts";
import { painting } from "../parts/canvas.ts";
import { extent } from "../parts/heat.ts";

const MOST_SIDE = 420;

export function trafficMatrix(found: Devices, signal: AbortSignal, room = MOST_SIDE): HTMLElement {
  const side = Math.min(MOST_SIDE, room);
  const { traffic, count } = found;
  if (!traffic) return h("div");
  const known = new Map<number, number>();
  traffic.bytes.forEach((b, k) => {
    known.set(traffic.source[k] * count + traffic.target[k], b);
  });
  const [, most] = extent(traffic.bytes);
  const say = h("p", { class: "note", "aria-live": "polite" }, "Rows send, columns receive.");
  // Row and column numbers are outside the matrix, only every few of them so that they fit.
  const every = Math.ceil(count / 16);
  const left = 8 + 7 * String(count - 1).length;
  const top = 16;
  const cell = (side - left) / count;
  const ramp = h("i", { class: "heat-ramp" });
  const paint = (g: CanvasRenderingContext2D, ink: Ink) => {
    g.strokeStyle = ink.faint;
    g.strokeRect(left - 0.5, top - 0.5, cell * count, cell * count);
    const size = Math.max(1.5, cell - (cell > 8 ? 1 : 0));
    traffic.bytes.forEach((b, k) => {
      g.fillStyle = heatColor(0.15 + (0.85 * b) / (most || 1), ink);
      g.fillRect(left + traffic.target[k] * cell, top + traffic.source[k] * cell, size, size);
    });
    g.fillStyle = ink.dim;
    for (let d = 0; d < count; d += every) {
      g.textAlign = "center";
      g.fillText(String(d), left + (d + 0.5) * cell, top / 2);
      g.textAlign = "right";
      g.fillText(String(d), left - 5, top + (d + 0.5) * cell);
    }
    const stops = [0.15, 0.5, 1].map((t) => heatColor(t, ink)).join(",");
    ramp.style.setProperty("background", `linear-gradient(90deg,${stops})`);
  };
  const { canvas, at } = painting(
    { "aria-label": "Traffic matrix" },
    () => [side, cell * count + top],
    paint,
    signal,
  );
  canvas.addEventListener(
    "pointermove",
    (event) => {
      const [x, y] = at(event);
      const to = Math.floor((x - left) / cell);
      const from = Math.floor((y - top) / cell);
      if (to < 0 || from < 0 || to >= count || from >= count) return;
      const b = known.get(from * count + to) ?? 0;
      say.textContent = `device ${from} → device ${to}: ${format.bytes(b)}`;
    },
    { signal },
  );
  return h(
    "div",
    { class: "heat" },
    canvas,
    h("div", { class: "heat-legend" }, "0 B", ramp, format.bytes(most)),
    h("p", { class: "note" }, "Modelled as rings in the order of each group."),
    say,
  );
}
