/** The colour legend of a picture that is saved: rows of swatches below it. */
import type { Surface } from "../../scene/surface.ts";
import type { GraphTheme } from "../../theme/graph.ts";
import type { LegendEntry } from "../api.ts";

const ROW = 20;
const SIZE = 11;
const LEFT = 12;
/** Width of a character of that size, on average. */
const WIDE = 6.2;

const words = (entry: LegendEntry): string =>
  entry.count === undefined ? entry.label : `${entry.label} ${entry.count.toLocaleString("en-US")}`;

function placed(entries: readonly LegendEntry[], width: number): { x: number; row: number }[] {
  let x = LEFT;
  let row = 0;
  return entries.map((entry) => {
    const w = words(entry).length * WIDE + 34;
    if (x > LEFT && x + w > width) {
      x = LEFT;
      row++;
    }
    const at = { x, row };
    x += w;
    return at;
  });
}

/** Height of the legend below a picture of that width. */
export function legendHeight(entries: readonly LegendEntry[], width: number): number {
  if (!entries.length) return 0;
  return ((placed(entries, width).at(-1)?.row ?? 0) + 1) * ROW + 12;
}

/** Paints it below `top`; returns its height. */
export function paintLegend(
  surface: Surface,
  theme: GraphTheme,
  entries: readonly LegendEntry[],
  width: number,
  top: number,
): number {
  placed(entries, width).forEach(({ x, row }, k) => {
    const y = top + 6 + row * ROW;
    const { color } = entries[k];
    surface.rect(x, y + 4, 12, 12, { fill: color, stroke: theme.containerBorder, radius: 3 });
    surface.text(words(entries[k]), x + 18, y + 10, { size: SIZE, color: theme.text });
  });
  return legendHeight(entries, width);
}
