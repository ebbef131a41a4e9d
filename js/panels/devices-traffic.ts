/** Bytes from each device (row) to each device (column), all collectives and executions. */
import { h } from "../base/dom.ts";
import * as format from "../base/format.ts";
import type { Devices } from "../state/devices.ts";
import { extent, heatColor, isDark } from "./heat.ts";

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
  const cell = side / count;
  const draw = () => {
    const ratio = globalThis.devicePixelRatio || 1;
    canvas.width = side * ratio;
    canvas.height = side * ratio;
    canvas.style.setProperty("width", `${side}px`);
    canvas.style.setProperty("height", `${side}px`);
    const g = canvas.getContext("2d");
    if (!g) return;
    const dark = isDark(canvas);
    g.scale(ratio, ratio);
    g.strokeStyle = dark ? "#56606c" : "#b6bec8";
    g.strokeRect(0.5, 0.5, side - 1, side - 1);
    const size = Math.max(1.5, cell - (cell > 8 ? 1 : 0));
    traffic.bytes.forEach((b, k) => {
      g.fillStyle = heatColor(0.15 + (0.85 * b) / (most || 1), dark);
      g.fillRect(traffic.target[k] * cell, traffic.source[k] * cell, size, size);
    });
    if (cell >= 18) {
      g.fillStyle = dark ? "#9aa5b1" : "#57636f";
      g.font = "11px system-ui, sans-serif";
      g.textAlign = "center";
      g.textBaseline = "middle";
      for (let d = 0; d < count; d++) g.fillText(String(d), (d + 0.5) * cell, (d + 0.5) * cell);
    }
  };
  canvas.addEventListener(
    "pointermove",
    (event) => {
      const box = canvas.getBoundingClientRect();
      const to = Math.floor(((event.clientX - box.left) / box.width) * count);
      const from = Math.floor(((event.clientY - box.top) / box.height) * count);
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
