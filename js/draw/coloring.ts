/** A colouring as a palette and an index per instruction, with its legend. */
import type { ViewModel } from "../base/model.ts";
import { type Colors, LEAST, ZERO } from "../scene/looks.ts";
import { familyColor, type GraphTheme } from "../theme/graph.ts";
import type { BoxColoring, LegendEntry } from "./api.ts";

const STEPS = 32;
/** Values below this fraction of the largest share the lowest colour: otherwise a few bytes would
 * use up a log scale that is meant to distinguish 200 µs from 20. */
const DECADES = 1e-3;

export interface Painted {
  colors: Colors;
  legend: LegendEntry[];
}

export function paintInstructions(
  model: ViewModel,
  coloring: BoxColoring | null,
  theme: GraphTheme,
): Painted {
  const n = model.instruction.count;
  if (!coloring || coloring.id === "family") {
    const { families } = model.header;
    const index = new Uint16Array(model.instruction.family);
    const palette = families.map((f) => familyColor(theme, f.id));
    const counts = new Uint32Array(families.length);
    for (let i = 0; i < n; i++) counts[index[i]]++;
    const legend = families
      .map((f, k) => ({ label: f.label, color: palette[k], count: counts[k] }))
      .filter((entry) => entry.count > 0)
      .sort((a, b) => b.count - a.count);
    return { colors: { index, palette, numeric: false }, legend };
  }
  const values = coloring.values(model);
  const index = new Uint16Array(n);
  const categories = coloring.categories?.(model);
  if (categories) {
    const shades = theme.categories.length;
    const palette = categories.map((_, k) => theme.categories[k % shades]);
    palette.push(theme.zero);
    const counts = new Uint32Array(palette.length);
    for (let i = 0; i < n; i++) {
      const v = values[i];
      index[i] = v >= 0 && v < categories.length ? v : categories.length;
      counts[index[i]]++;
    }
    const legend = [...categories, coloring.rest ?? "unknown"]
      .map((label, k) => ({ label, color: palette[k], count: counts[k] }))
      .filter((entry) => entry.count > 0);
    return { colors: { index, palette, numeric: false }, legend };
  }
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  const log = coloring.scale !== "linear";
  for (let i = 0; i < n; i++) {
    const v = values[i];
    if (!Number.isFinite(v) || v === 0 || (log && v < 0)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  const added = coloring.amounts?.(model);
  // Closed groups are on the same scale, so it ends at the total of everything: otherwise one per
  // cent and half of a step could be equally red.
  if (added && log && high > 0) {
    let total = 0;
    for (let i = 0; i < n; i++) if (added[i] > 0) total += added[i];
    high = Math.max(high, total);
  }
  // The scale spans at least one decade: 4 µs beside 3 µs should not look like red beside yellow.
  const known = high >= low;
  const least = log && known ? Math.min(high / 10, Math.max(low, high * DECADES)) : low;
  const atMost = least > low;
  low = least;
  // Unknown is coolest, then 0, so that groups show what is known inside them.
  const palette = [theme.unknown, theme.zero];
  for (let k = 0; k < STEPS; k++) palette.push(ramp(theme.ramp, k / (STEPS - 1)));
  const span = log ? Math.log(high / low) : high - low;
  const place = (v: number): number => {
    // A log scale has no place for 0, and 0 must not look like the smallest amount.
    if (v === 0) return ZERO;
    const raw = log ? (v > 0 ? Math.log(v / low) : 0) : v - low;
    const t = span > 0 ? Math.min(1, Math.max(0, raw / span)) : 1;
    return LEAST + Math.round(t * (STEPS - 1));
  };
  for (let i = 0; i < n; i++) if (Number.isFinite(values[i])) index[i] = place(values[i]);
  const legend: LegendEntry[] = [];
  if (known) {
    for (const t of [0, 0.25, 0.5, 0.75, 1]) {
      const value = log ? low * Math.exp(span * t) : low + span * t;
      legend.push({
        label: coloring.unit ?? "",
        color: ramp(theme.ramp, t),
        value,
        atMost: atMost && t === 0,
      });
    }
  }
  const amounts = added && { values: added, unit: coloring.unit ?? "", place };
  return { colors: { index, palette, numeric: true, amounts }, legend };
}

function ramp(stops: readonly string[], t: number): string {
  const at = Math.min(1, Math.max(0, t)) * (stops.length - 1);
  const k = Math.min(stops.length - 2, Math.floor(at));
  const f = at - k;
  let out = "#";
  for (let c = 1; c < 7; c += 2) {
    const a = Number.parseInt(stops[k].slice(c, c + 2), 16);
    const b = Number.parseInt(stops[k + 1].slice(c, c + 2), 16);
    out += Math.round(a + (b - a) * f)
      .toString(16)
      .padStart(2, "0");
  }
  return out;
}
