/** Bytes from each device (row) to each device (column), all collectives and executions. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Devices } from "../../state/devices.ts";
import { extent, heatColor, isDark } from "../parts/heat.ts";

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
  const canvas = h("canvas", { role: "img", "aria-label": "Traffic matrix" });
  const say = h("p", { class: "note", "aria-live": "polite" }, "Rows send, columns receive.");
  // Row and column numbers stand outside, where every few of them fit.
  const every = Math.ceil(count / 16);
  const left = 8 + 7 * String(count - 1).length;
  const top = 16;
  const cell = (side - left) / count;
  const draw = () => {
    const ratio = globalThis.devicePixelRatio || 1;
    canvas.width = side * ratio;
    canvas.height = (cell * count + top) * ratio;
    canvas.style.setProperty("width", `${side}px`);
    canvas.style.setProperty("height", `${cell * count + top}px`);
    const g = canvas.getContext("2d");
    if (!g) return;
    const dark = isDark(canvas);
    g.scale(ratio, ratio);
    g.strokeStyle = dark ? "#56606c" : "#b6bec8";
    g.strokeRect(left - 0.5, top - 0.5, cell * count, cell * count);
    const size = Math.max(1.5, cell - (cell > 8 ? 1 : 0));
    traffic.bytes.forEach((b, k) => {
      g.fillStyle = heatColor(0.15 + (0.85 * b) / (most || 1), dark);
      g.fillRect(left + traffic.target[k] * cell, top + traffic.source[k] * cell, size, size);
    });
    g.fillStyle = dark ? "#9aa5b1" : "#57636f";
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    for (let d = 0; d < count; d += every) {
      g.textAlign = "center";
      g.fillText(String(d), left + (d + 0.5) * cell, top / 2);
      g.textAlign = "right";
      g.fillText(String(d), left - 5, top + (d + 0.5) * cell);
    }
  };
  canvas.addEventListener(
    "pointermove",
    (event) => {
      const box = canvas.getBoundingClientRect();
      const to = Math.floor((event.clientX - box.left - left) / cell);
      const from = Math.floor((event.clientY - box.top - top) / cell);
      if (to < 0 || from < 0 || to >= count || from >= count) return;
      const b = known.get(from * count + to) ?? 0;
      say.textContent = `device ${from} → device ${to}: ${format.bytes(b)}`;
    },
    { signal },
  );
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, { signal });
  requestAnimationFrame(draw);
  const ramp = h("i", { class: "heat-ramp" });
  requestAnimationFrame(() => {
    const dark = isDark(canvas);
    const stops = [0.15, 0.5, 1].map((t) => heatColor(t, dark)).join(",");
    ramp.style.setProperty("background", `linear-gradient(90deg,${stops})`);
  });
  return h(
    "div",
    { class: "heat" },
    canvas,
    h("div", { class: "heat-legend" }, "0 B", ramp, format.bytes(most)),
    h("p", { class: "note" }, "Modelled as rings in the order of each group."),
    say,
  );
}
