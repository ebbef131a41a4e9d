/** Measured against modelled time, log-log: on the line the model is right. */
import { h, svg } from "../base/dom.ts";
import * as format from "../base/format.ts";
import type { MeasuredRow } from "../state/measured.ts";
import type { PanelContext } from "./panel.ts";

const WIDTH = 560;
const HEIGHT = 260;
const LEFT = 58;
const RIGHT = 12;
const TOP = 20;
const BOTTOM = 36;

export function measuredScatter(
  ctx: PanelContext,
  rows: readonly MeasuredRow[],
  chip: string,
): HTMLElement {
  const dots = rows.filter((r) => r.modelled > 0 && r.mean > 0);
  const range = (values: number[]) => [
    Math.floor(Math.log10(Math.min(...values))),
    Math.ceil(Math.log10(Math.max(...values)) + 1e-9),
  ];
  const [left, right] = range(dots.map((r) => r.modelled));
  const [bottom, top] = range(dots.map((r) => r.mean));
  const x = (v: number) =>
    LEFT + ((Math.log10(v) - left) / Math.max(1, right - left)) * (WIDTH - LEFT - RIGHT);
  const y = (v: number) =>
    HEIGHT -
    BOTTOM -
    ((Math.log10(v) - bottom) / Math.max(1, top - bottom)) * (HEIGHT - TOP - BOTTOM);
  const steps = (from: number, to: number) => {
    const step = Math.max(1, Math.ceil((to - from) / 6));
    return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, k) => from + k * step);
  };
  const grid: SVGElement[] = [];
  for (const e of steps(left, right)) {
    const at = x(10 ** e);
    grid.push(
      svg("line", { class: "grid", x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }),
      svg(
        "text",
        { x: at, y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" },
        format.seconds(10 ** e),
      ),
    );
  }
  for (const e of steps(bottom, top)) {
    const at = y(10 ** e);
    grid.push(
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }),
      svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, format.seconds(10 ** e)),
    );
  }
  // Where measured equals modelled, as far as both axes go.
  const from = Math.max(left, bottom);
  const to = Math.min(right, top);
  const equal =
    to > from
      ? svg("path", {
          class: "roof",
          d: `M${x(10 ** from)},${y(10 ** from)}L${x(10 ** to)},${y(10 ** to)}`,
        })
      : null;
  const marks = dots.map((r) => {
    const i = r.instruction;
    const mark = svg(
      "circle",
      {
        class: "dot",
        cx: x(r.modelled).toFixed(1),
        cy: y(r.mean).toFixed(1),
        r: 4,
        "data-instruction": i,
      },
      svg(
        "title",
        null,
        `%${ctx.model.name(i)}\n${format.seconds(r.mean)} measured, ${format.seconds(r.modelled)} modelled: ${format.quantity(r.mean / r.modelled)}×`,
      ),
    );
    mark.addEventListener("click", () => {
      ctx.store.selectInstruction(i);
      ctx.graph.reveal(i);
    });
    return mark;
  });
  const ring = svg("circle", { class: "ring", r: 0 });
  const follow = () => {
    const s = ctx.store.get("selection");
    const dot = s.kind === "instruction" ? dots.find((r) => r.instruction === s.index) : undefined;
    ring.setAttribute("r", dot ? "8" : "0");
    if (!dot) return;
    ring.setAttribute("cx", String(x(dot.modelled)));
    ring.setAttribute("cy", String(y(dot.mean)));
  };
  ctx.store.on("selection", follow, ctx.signal);
  follow();
  const picture = svg(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": `Measured against modelled time of ${dots.length} operations. The table below has the figures.`,
    },
    ...grid,
    equal,
    svg(
      "text",
      { class: "axis", x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" },
      `modelled on ${chip}, a step`,
    ),
    svg("text", { class: "axis", x: 4, y: 11 }, "measured, a step"),
    ...marks.reverse(),
    ring,
  );
  const out = h("div", { class: "scatter" });
  out.append(picture);
  return out;
}
