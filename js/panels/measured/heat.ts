/** Device × instruction: measured time as cells on a canvas, with names beside it. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Measured, MeasuredRow } from "../../state/time/measured.ts";
import { againstColor, heatColor, type Ink } from "../../theme/inks.ts";
import type { PanelContext } from "../panel.ts";
import { painting } from "../parts/canvas.ts";
import { selectionLink } from "../parts/parts.ts";

const ROW = 20;
const HEAD = 18;
export type Mode = "time" | "mean";

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
  // Beyond a factor of eight, colours no longer differ.
  const limit = Math.log2(Math.min(8, Math.max(1.1, ...times)));
  const say = h("p", { class: "note", "aria-live": "polite" }, "Hover over a cell to read it.");
  const legend = h("div", { class: "heat-legend" });
  let cell = 0;
  let at = { row: -1, device: -1 };
  const paint = (g: CanvasRenderingContext2D, ink: Ink) => {
    g.font = "10px system-ui, sans-serif";
    g.textAlign = "center";
    g.fillStyle = ink.dim;
    const every = Math.ceil(22 / cell);
    devices.forEach((d, k) => {
      if (k % every === 0) g.fillText(String(d), (k + 0.5) * cell, HEAD / 2);
    });
    rows.forEach((row, r) => {
      row.seconds.forEach((s, k) => {
        const x = k * cell;
        const y = HEAD + r * ROW;
        if (!(s > 0)) {
          g.strokeStyle = ink.faint;
          g.strokeRect(x + 0.5, y + 0.5, cell - 2, ROW - 2);
          return;
        }
        const t = high > low ? (Math.log10(s) - low) / (high - low) : 1;
        g.fillStyle =
          mode === "time" ? heatColor(t, ink) : againstColor(Math.log2(s / row.mean) / limit, ink);
        g.fillRect(x, y, cell - 1, ROW - 1);
      });
      // The slowest device is marked by a shape as well.
      if (mode === "mean" && row.most > 1.02 * row.mean) {
        g.fillStyle = ink.text;
        g.beginPath();
        g.arc((row.slowest + 0.5) * cell - 0.5, HEAD + (r + 0.5) * ROW - 0.5, 2.5, 0, 7);
        g.fill();
      }
    });
    if (at.row >= 0) {
      g.lineWidth = 2;
      g.strokeStyle = ink.mark;
      g.strokeRect(at.device * cell, HEAD + at.row * ROW, cell - 1, ROW - 1);
    }
    const ramp = [0, 0.25, 0.5, 0.75, 1].map((t) =>
      mode === "time" ? heatColor(t, ink) : againstColor(2 * t - 1, ink),
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
  const {
    canvas,
    draw,
    at: place,
  } = painting(
    {
      tabindex: "0",
      "aria-label": `Measured time of ${rows.length} operations on ${devices.length} devices. The table below has the figures.`,
    },
    () => {
      cell = Math.max(10, Math.min(44, Math.floor((box.clientWidth || 360) / devices.length)));
      return [cell * devices.length, HEAD + ROW * rows.length];
    },
    paint,
    ctx.signal,
  );
  const box = h("div", { class: "measured-cells" }, canvas);
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
    const [x, y] = place(event);
    return { row: Math.floor((y - HEAD) / ROW), device: Math.floor(x / cell) };
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
  const names = h(
    "ul",
    { class: "measured-names" },
    ...rows.map((r) =>
      h("li", null, selectionLink(ctx, { kind: "instruction", index: r.instruction })),
    ),
  );
  return h("div", { class: "heat" }, h("div", { class: "measured-heat" }, names, box), legend, say);
}
