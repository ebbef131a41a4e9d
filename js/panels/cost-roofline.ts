/** Log-log roofline: FLOP/s that a chip allows over FLOPs per byte, and where each op stands. */
import { h, svg } from "../base/dom.ts";
import * as format from "../base/format.ts";
import { BOUNDS, type Chip, type Costs } from "../state/costs.ts";
import type { PanelContext } from "./panel.ts";

const HEIGHT = 260;
const LEFT = 58;
const RIGHT = 12;
const TOP = 24;
const BOTTOM = 36;
/** Dots beyond this many would hide each other; the smallest are left out and said so. */
const MOST_DOTS = 400;

interface Dot {
  instruction: number;
  intensity: number;
  /** FLOP/s that the model gives it. */
  rate: number;
  seconds: number;
}

export function dotsOf(costs: Costs): Dot[] {
  const out: Dot[] = [];
  for (let i = 0; i < costs.unit.length; i++) {
    // Where the vector units' peak is not known, only the matrix unit's work has a roof.
    const work = costs.matmulFlops[i] || costs.flops[i] + costs.transcendentals[i];
    const bytes = costs.mainBytes[i];
    const s = costs.seconds[i];
    if (costs.unit[i] !== 1 || !(work > 0) || !(bytes > 0) || !(s > 0) || !(costs.runs[i] > 0))
      continue;
    out.push({
      instruction: i,
      intensity: work / bytes,
      rate: work / s,
      seconds: s * costs.runs[i],
    });
  }
  return out.sort((a, b) => b.seconds - a.seconds || a.instruction - b.instruction);
}

const SUPER = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (exponent: number) => {
  if (exponent === 0) return "1";
  if (exponent === 1) return "10";
  const digits = String(Math.abs(exponent)).replace(/\d/g, (d) => SUPER[Number(d)]);
  return `10${exponent < 0 ? "⁻" : ""}${digits}`;
};

export function rooflinePlot(
  ctx: PanelContext,
  costs: Costs,
  chip: Chip,
  width: number,
): HTMLElement {
  const all = dotsOf(costs);
  const dots = all.slice(0, MOST_DOTS);
  const peak = Math.max(...chip.matmul.map((r) => r ?? 0), 0) || chip.peak;
  const ridge = peak / chip.memoryBandwidth;
  const xs = dots.map((d) => d.intensity);
  const low = Math.floor(Math.log10(Math.min(ridge / 10, ...xs)));
  const high = Math.ceil(Math.log10(Math.max(ridge * 10, ...xs)));
  const top = Math.ceil(Math.log10(peak * 1.5));
  const bottom = Math.min(
    top - 3,
    Math.floor(Math.log10(Math.min(peak, ...dots.map((d) => d.rate)))),
  );
  const x = (v: number) => LEFT + ((Math.log10(v) - low) / (high - low)) * (width - LEFT - RIGHT);
  const y = (v: number) =>
    HEIGHT - BOTTOM - ((Math.log10(v) - bottom) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
  const grid: SVGElement[] = [];
  const steps = (from: number, to: number) => {
    const step = Math.max(1, Math.ceil((to - from) / 7));
    return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, k) => from + k * step);
  };
  for (const e of steps(low, high)) {
    grid.push(
      svg("line", { class: "grid", x1: x(10 ** e), x2: x(10 ** e), y1: TOP, y2: HEIGHT - BOTTOM }),
      svg("text", { x: x(10 ** e), y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" }, power(e)),
    );
  }
  for (const e of steps(bottom, top)) {
    grid.push(
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(10 ** e), y2: y(10 ** e) }),
      svg("text", { x: LEFT - 6, y: y(10 ** e) + 4, "text-anchor": "end" }, power(e)),
    );
  }
  const start = Math.max(10 ** low, 10 ** bottom / chip.memoryBandwidth);
  const roof = svg("path", {
    class: "roof",
    d: `M${x(start)},${y(start * chip.memoryBandwidth)}L${x(ridge)},${y(peak)}L${x(10 ** high)},${y(peak)}`,
  });
  const most = dots.length ? dots[0].seconds : 1;
  const marks = dots
    .map((d) => {
      const i = d.instruction;
      const radius = 2.5 + 7 * Math.sqrt(d.seconds / most);
      const mark = svg(
        "circle",
        {
          class: `dot ${BOUNDS[costs.bound[i]]}`,
          cx: x(d.intensity).toFixed(1),
          cy: y(d.rate).toFixed(1),
          r: radius.toFixed(1),
          "data-instruction": i,
        },
        svg(
          "title",
          null,
          `%${ctx.model.name(i)}\n${format.quantity(d.intensity)} FLOP/B, ${format.seconds(d.seconds)} modelled, ${BOUNDS[costs.bound[i]]} bound`,
        ),
      );
      mark.addEventListener("click", () => {
        ctx.store.selectInstruction(i);
        ctx.graph.reveal(i);
      });
      return mark;
    })
    .reverse(); // the small ones on top of the large
  const chosen = svg("circle", { class: "ring", r: 0 });
  const ring = () => {
    const s = ctx.store.get("selection");
    const dot = s.kind === "instruction" ? dots.find((d) => d.instruction === s.index) : undefined;
    chosen.setAttribute("r", dot ? String(5 + 7 * Math.sqrt(dot.seconds / most)) : "0");
    if (!dot) return;
    chosen.setAttribute("cx", String(x(dot.intensity)));
    chosen.setAttribute("cy", String(y(dot.rate)));
  };
  ctx.store.on("selection", ring, ctx.signal);
  ring();
  const picture = svg(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${width} ${HEIGHT}`,
      role: "img",
      "aria-label": `Roofline of ${chip.label}: ${format.quantity(peak, "FLOP/s")} and ${format.quantity(chip.memoryBandwidth, "B")} per second; ${dots.length} operations. The table below has the figures.`,
    },
    ...grid,
    roof,
    svg(
      "text",
      { class: "axis", x: (LEFT + width) / 2, y: HEIGHT - 4, "text-anchor": "middle" },
      "FLOPs per byte of main memory",
    ),
    svg("text", { class: "axis", x: 4, y: 11 }, "FLOP/s"),
    svg(
      "text",
      { class: "axis", x: width - RIGHT, y: y(peak) - 6, "text-anchor": "end" },
      `${format.quantity(peak, "FLOP/s")}`,
    ),
    ...marks,
    chosen,
  );
  const out = h("div", { class: "roofline" });
  out.append(picture);
  if (all.length > dots.length) {
    out.append(
      h(
        "p",
        { class: "note" },
        `The ${MOST_DOTS} slowest of ${format.count(all.length)} operations.`,
      ),
    );
  }
  return out;
}
