/** A log-log plot of operations: a grid of decades, dots to select, a ring around the selected one. */
import { svg } from "../../base/dom.ts";
import type { PanelContext } from "../panel.ts";

const HEIGHT = 260;
const LEFT = 58;
const RIGHT = 16;
const TOP = 24;
const BOTTOM = 36;
/** Size of a label with the gap to the next one, px. */
const LABEL_WIDTH = 54;
const LABEL_HEIGHT = 22;

export interface LogAxis {
  /** Exponents of 10 at both ends. */
  low: number;
  high: number;
  title: string;
  tick: (value: number) => string;
}

export interface LogDot {
  instruction: number;
  x: number;
  y: number;
  radius: number;
  kind: string;
  title: string;
}

export interface LogPlot {
  width: number;
  x: LogAxis;
  y: LogAxis;
  /** Text for screen readers. */
  label: string;
  /** Drawn below the dots, such as a roof; `at` converts values to px. */
  under: (at: {
    x: (v: number) => number;
    y: (v: number) => number;
    right: number;
  }) => (SVGElement | null)[];
  /** The last one is drawn on top. */
  dots: readonly LogDot[];
}

/** Exponents of the decades that enclose all positive values, at least one decade. */
export function decades(values: readonly number[]): { low: number; high: number } {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const v of values) {
    if (!(v > 0)) continue;
    low = Math.min(low, Math.floor(Math.log10(v) + 1e-9));
    high = Math.max(high, Math.ceil(Math.log10(v) - 1e-9));
  }
  if (low > high) return { low: 0, high: 1 };
  return { low, high: Math.max(high, low + 1) };
}

/** Number of decades from one label to the next, so that labels of `size` px fit into `room` px. */
export function labelStep(decadeCount: number, room: number, size: number): number {
  return Math.max(1, Math.ceil((decadeCount + 1) / Math.max(1, Math.floor(room / size))));
}

export function logPlot(ctx: PanelContext, plot: LogPlot): SVGElement {
  const right = plot.width - RIGHT;
  const bottom = HEIGHT - BOTTOM;
  const along = (axis: LogAxis, v: number) =>
    (Math.log10(v) - axis.low) / Math.max(1, axis.high - axis.low);
  const x = (v: number) => LEFT + along(plot.x, v) * (right - LEFT);
  const y = (v: number) => bottom - along(plot.y, v) * (bottom - TOP);
  const grid: SVGElement[] = [];
  const stepX = labelStep(plot.x.high - plot.x.low, right - LEFT, LABEL_WIDTH);
  for (let e = plot.x.low; e <= plot.x.high; e++) {
    const at = x(10 ** e);
    grid.push(svg("line", { class: "grid", x1: at, x2: at, y1: TOP, y2: bottom }));
    if ((e - plot.x.low) % stepX) continue;
    const text = plot.x.tick(10 ** e);
    grid.push(svg("text", { x: at, y: bottom + 14, "text-anchor": "middle" }, text));
  }
  const stepY = labelStep(plot.y.high - plot.y.low, bottom - TOP, LABEL_HEIGHT);
  for (let e = plot.y.low; e <= plot.y.high; e++) {
    const at = y(10 ** e);
    grid.push(svg("line", { class: "grid", x1: LEFT, x2: right, y1: at, y2: at }));
    if ((e - plot.y.low) % stepY) continue;
    const text = plot.y.tick(10 ** e);
    grid.push(svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, text));
  }
  const marks = plot.dots.map((d) => {
    const mark = svg(
      "circle",
      {
        class: `dot ${d.kind}`,
        cx: x(d.x).toFixed(1),
        cy: y(d.y).toFixed(1),
        r: d.radius.toFixed(1),
        "data-instruction": d.instruction,
      },
      svg("title", null, `%${ctx.model.name(d.instruction)}\n${d.title}`),
    );
    mark.addEventListener("click", () => {
      ctx.store.selectInstruction(d.instruction);
      ctx.graph.reveal(d.instruction);
    });
    return mark;
  });
  const ring = svg("circle", { class: "ring", r: 0 });
  const follow = () => {
    const s = ctx.store.get("selection");
    const dot =
      s.kind === "instruction" ? plot.dots.find((d) => d.instruction === s.index) : undefined;
    ring.setAttribute("r", dot ? String(dot.radius + 3) : "0");
    if (!dot) return;
    ring.setAttribute("cx", String(x(dot.x)));
    ring.setAttribute("cy", String(y(dot.y)));
  };
  ctx.store.on("selection", follow, ctx.signal);
  follow();
  return svg(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${plot.width} ${HEIGHT}`,
      role: "img",
      "aria-label": plot.label,
    },
    ...grid,
    ...plot.under({ x, y, right }),
    svg(
      "text",
      { class: "axis", x: (LEFT + right) / 2, y: HEIGHT - 4, "text-anchor": "middle" },
      plot.x.title,
    ),
    svg("text", { class: "axis", x: 4, y: 11 }, plot.y.title),
    ...marks,
    ring,
  );
}
