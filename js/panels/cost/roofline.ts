/** Log-log roofline: FLOP/s that a chip allows over FLOPs per byte, with a dot for each op. */

import { h, svg } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { BOUNDS, type Costs } from "../../state/cost/costs.ts";
import type { Chip } from "../../view-extras.ts";
import type { PanelContext } from "../panel.ts";
import { logPlot } from "../parts/log-plot.ts";
import { note } from "../parts/parts.ts";

/** More dots would hide each other; the fastest operations are left out, and a note says so. */
const MOST_DOTS = 400;

interface Dot {
  instruction: number;
  intensity: number;
  /** Modelled FLOP/s. */
  rate: number;
  seconds: number;
}

export function dotsOf(costs: Costs): Dot[] {
  const out: Dot[] = [];
  const { matmulFlops, transcendentals, mainBytes } = costs.columns;
  for (let i = 0; i < costs.unit.length; i++) {
    // With matmuls, only their FLOPs count; the roof is the matrix unit's.
    const work = matmulFlops[i] || costs.flops[i] + transcendentals[i];
    const bytes = mainBytes[i];
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
/** "10⁻³" */
const power = (value: number) => {
  const exponent = Math.round(Math.log10(value));
  if (exponent === 0) return "1";
  if (exponent === 1) return "10";
  const digits = String(Math.abs(exponent)).replace(/\d/g, (d) => SUPER[Number(d)]);
  return `10${exponent < 0 ? "⁻" : ""}${digits}`;
};

/** "10 T" */
const short = (value: number) => format.quantity(value, "\u2009").trim();

export function rooflinePlot(
  ctx: PanelContext,
  costs: Costs,
  chip: Chip,
  width: number,
): HTMLElement {
  const peak = Math.max(...chip.matmul.map((r) => r ?? 0), 0) || chip.peak;
  const found = dotsOf(costs);
  // Without a published vector peak, vector work has no roof and may appear above this one.
  const all = found.filter((d) => d.rate <= 1.01 * peak);
  const dots = all.slice(0, MOST_DOTS);
  const bandwidth = chip.memoryBandwidth;
  const ridge = peak / bandwidth;
  const xs = dots.map((d) => d.intensity);
  const low = Math.floor(Math.log10(Math.min(ridge / 10, ...xs)));
  const high = Math.ceil(Math.log10(Math.max(ridge * 10, ...xs)));
  const top = Math.ceil(Math.log10(peak * 1.5));
  const least = Math.floor(Math.log10(Math.min(peak, ...dots.map((d) => d.rate))));
  const bottom = Math.min(top - 3, least);
  const most = dots.length ? dots[0].seconds : 1;
  const picture = logPlot(ctx, {
    width,
    x: { low, high, title: "FLOPs per byte of main memory", tick: power },
    y: {
      low: bottom,
      high: top,
      title: "FLOP/s",
      tick: short,
    },
    label: `Roofline of ${chip.label}: ${format.quantity(peak, "FLOP/s")} and ${format.quantity(bandwidth, "B")} per second; ${dots.length} operations. The table below has the figures.`,
    under: ({ x, y, right }) => {
      const start = Math.max(10 ** low, 10 ** bottom / bandwidth);
      return [
        svg("path", {
          class: "roof",
          d: `M${x(start)},${y(start * bandwidth)}L${x(ridge)},${y(peak)}L${x(10 ** high)},${y(peak)}`,
        }),
        svg(
          "text",
          { class: "axis", x: right, y: y(peak) - 13, "text-anchor": "end" },
          format.quantity(peak, "FLOP/s"),
        ),
      ];
    },
    dots: dots
      .map((d) => {
        const bound = BOUNDS[costs.bound[d.instruction]];
        return {
          instruction: d.instruction,
          x: d.intensity,
          y: d.rate,
          radius: 2.5 + 7 * Math.sqrt(d.seconds / most),
          kind: bound,
          title: `${format.quantity(d.intensity)} FLOP/B, ${format.seconds(d.seconds)} modelled, ${bound} bound`,
        };
      })
      .reverse(), // small ones on top of large ones
  });
  const out = h("div", { class: "roofline" });
  out.append(picture);
  if (all.length > dots.length) {
    out.append(note(`The ${MOST_DOTS} slowest of ${format.count(all.length)} operations.`));
  }
  if (found.length > all.length) {
    const what = format.plural(found.length - all.length, "operation");
    out.append(note(`Without ${what} on the vector units, whose peak is unknown for this chip.`));
  }
  return out;
}
