/** Device × instruction: measured time as a canvas of cells, names beside it. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Measured, MeasuredRow } from "../../state/measured.ts";
import type { PanelContext } from "../panel.ts";
import { heatColor, isDark } from "../parts/heat.ts";
import { selectionLink } from "../parts/parts.ts";

const ROW = 20;
const HEAD = 18;
export type Mode = "time" | "mean";

/** Doublings against the mean: orange slower, blue faster, grey at it. */
function against(doublings: number, limit: number, dark: boolean): string {
  const t = Math.min(1, Math.abs(doublings) / limit);
  const middle = dark ? [48, 54, 61] : [240, 241, 243];
  const end =
    doublings > 0 ? (dark ? [255, 159, 90] : [190, 70, 0]) : dark ? [110, 180, 255] : [20, 90, 190];
  const mix = (k: number) => Math.round(middle[k] + (end[k] - middle[k]) * t);
  return `rgb(${mix(0)},${mix(1)},${mix(2)})`;
}

export function measuredHeat(
  ctx: PanelContext,
  measured: Measured,
  rows: readonly MeasuredRow[],
  mode: Mode,
): HTMLElement {
  const { devices } = measured;
  const positive = rows.flatMap((r) => Array.from(r.seconds).filter((s) => s > 0));
  const low = Math.log10(Math.min(...positive));
  const high = Math.log10(Math.max(...positive));
  const times = rows.flatMap((r) =>
    Array.from(r.seconds, (v) => (v > 0 ? Math.max(v / r.mean, r.mean / v) : 1)),
  );
  // Beyond eight times there is nothing more to tell apart.
  const limit = Math.log2(Math.min(8, Math.max(1.1, ...times)));
  const canvas = h("canvas", {
    role: "img",
    tabindex: "0",
    "aria-label": `Measured time of ${rows.length} operations on ${devices.length} devices. The table below has the figures.`,
  });
  const say = h("p", { class: "note", "aria-live": "polite" }, "Point at a cell to read it.");
  const legend = h("div", { class: "heat-legend" });
  const box = h("div", { class: "measured-cells" }, canvas);
  let cell = 0;
  let at = { row: -1, device: -1 };
  const draw = () => {
    cell = Math.max(10, Math.min(44, Math.floor((box.clientWidth || 360) / devices.length)));
    const dark = isDark(box);
    const ratio = globalThis.devicePixelRatio || 1;
    const width = cell * devices.length;
    const height = HEAD + ROW * rows.length;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.setProperty("width", `${width}px`);
    canvas.style.setProperty("height", `${height}px`);
    const g = canvas.getContext("2d");
    if (!g) return;
    g.scale(ratio, ratio);
    g.font = "10px system-ui, sans-serif";
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.fillStyle = dark ? "#9aa5b1" : "#57636f";
    const every = Math.ceil(22 / cell);
    devices.forEach((d, k) => {
      if (k % every === 0) g.fillText(String(d), (k + 0.5) * cell, HEAD / 2);
    });
    rows.forEach((row, r) => {
      row.seconds.forEach((s, k) => {
        const x = k * cell;
        const y = HEAD + r * ROW;
        if (!(s > 0)) {
          g.strokeStyle = dark ? "#56606c" : "#b6bec8";
          g.strokeRect(x + 0.5, y + 0.5, cell - 2, ROW - 2);
          return;
        }
        const t = high > low ? (Math.log10(s) - low) / (high - low) : 1;
        g.fillStyle =
          mode === "time" ? heatColor(t, dark) : against(Math.log2(s / row.mean), limit, dark);
        g.fillRect(x, y, cell - 1, ROW - 1);
      });
      // The slowest device is marked by form as well.
      if (mode === "mean" && row.most > 1.02 * row.mean) {
        g.fillStyle = dark ? "#fff" : "#10181f";
        g.beginPath();
        g.arc((row.slowest + 0.5) * cell - 0.5, HEAD + (r + 0.5) * ROW - 0.5, 2.5, 0, 7);
        g.fill();
      }
    });
    if (at.row >= 0) {
      g.lineWidth = 2;
      g.strokeStyle = dark ? "#ffd166" : "#b3261e";
      g.strokeRect(at.device * cell, HEAD + at.row * ROW, cell - 1, ROW - 1);
    }
    const ramp = [0, 0.25, 0.5, 0.75, 1].map((t) =>
      mode === "time" ? heatColor(t, dark) : against((2 * t - 1) * limit, limit, dark),
    );
    const ends =
      mode === "time"
        ? [format.seconds(10 ** low), format.seconds(10 ** high)]
        : [`÷${format.quantity(2 ** limit)}`, `×${format.quantity(2 ** limit)}`];
    fill(
      legend,
      h("span", { class: "dim" }, mode === "time" ? "Time a step, log" : "Against the row's mean"),
      h("span", null, ends[0]),
      h("i", {
        class: "heat-ramp",
        style: { background: `linear-gradient(90deg,${ramp.join(",")})` },
      }),
      h("span", null, ends[1]),
      mode === "mean" && h("span", { class: "dim" }, "● slowest device"),
    );
  };
  const point = (row: number, device: number) => {
    at = { row, device };
    const r = rows[row];
    const s = r?.seconds[device];
    if (r && s !== undefined) {
      const part = Math.round(100 * (s / r.mean - 1));
      say.textContent = `%${ctx.model.name(r.instruction)} on device ${devices[device]}: ${format.seconds(s)}, ${part >= 0 ? "+" : "−"}${Math.abs(part)} % against its mean`;
    }
    draw();
  };
  const under = (event: MouseEvent) => {
    const box = canvas.getBoundingClientRect();
    return {
      row: Math.floor((event.clientY - box.top - HEAD) / ROW),
      device: Math.floor((event.clientX - box.left) / cell),
    };
  };
  const inside = (row: number, device: number) =>
    row >= 0 && row < rows.length && device >= 0 && device < devices.length;
  const choose = () => {
    const r = rows[at.row];
    if (!r) return;
    ctx.store.selectInstruction(r.instruction);
    ctx.graph.reveal(r.instruction);
  };
  const { signal } = ctx;
  canvas.addEventListener(
    "pointermove",
    (event) => {
      const { row, device } = under(event);
      if (inside(row, device) && (row !== at.row || device !== at.device)) point(row, device);
    },
    { signal },
  );
  canvas.addEventListener(
    "click",
    (event) => {
      const { row, device } = under(event);
      if (!inside(row, device)) return;
      point(row, device);
      choose();
    },
    { signal },
  );
  const moves: Record<string, [number, number]> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
  };
  canvas.addEventListener(
    "keydown",
    (event) => {
      const by = moves[event.key];
      if (!by && event.key !== "Enter") return;
      event.preventDefault();
      if (!by) return choose();
      const row = at.row < 0 ? 0 : at.row + by[0];
      const device = at.row < 0 ? 0 : at.device + by[1];
      if (inside(row, device)) point(row, device);
    },
    { signal },
  );
  const watch = new ResizeObserver(draw);
  watch.observe(box);
  signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, { signal });
  const names = h(
    "ul",
    { class: "measured-names" },
    ...rows.map((r) =>
      h("li", null, selectionLink(ctx, { kind: "instruction", index: r.instruction })),
    ),
  );
  return h("div", { class: "heat" }, h("div", { class: "measured-heat" }, names, box), legend, say);
}
