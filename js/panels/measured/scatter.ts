/** Measured against modelled time, log-log: on the line, the model is right. */
import { h, svg } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { comparable, type MeasuredRow } from "../../state/time/measured.ts";
import type { PanelContext } from "../panel.ts";
import { decades, logPlot } from "../parts/log-plot.ts";

export function measuredScatter(
  ctx: PanelContext,
  rows: readonly MeasuredRow[],
  chip: string,
  width: number,
): HTMLElement {
  const dots = rows.filter((r) => r.modelled > 0 && comparable(r) > 0);
  const across = decades(dots.map((r) => r.modelled));
  const up = decades(dots.map(comparable));
  const picture = logPlot(ctx, {
    width,
    x: { ...across, title: `modelled on ${chip}, a step`, tick: format.seconds },
    y: { ...up, title: "measured, a step", tick: format.seconds },
    label: `Measured against modelled time of ${dots.length} operations. The table below has the figures.`,
    under: ({ x, y }) => {
      // The line where measured equals modelled, as far as both axes extend.
      const from = 10 ** Math.max(across.low, up.low);
      const to = 10 ** Math.min(across.high, up.high);
      if (to <= from) return [];
      return [svg("path", { class: "roof", d: `M${x(from)},${y(from)}L${x(to)},${y(to)}` })];
    },
    dots: dots
      .map((r) => ({
        instruction: r.instruction,
        x: r.modelled,
        y: comparable(r),
        radius: 4,
        kind: "",
        title: `${format.seconds(comparable(r))} measured${r.flight > 0 ? " from start to done" : ""}, ${format.seconds(r.modelled)} modelled: ${format.quantity(comparable(r) / r.modelled)}×`,
      }))
      .reverse(),
  });
  const out = h("div", { class: "scatter" });
  out.append(picture);
  return out;
}
