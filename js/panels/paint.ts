/** A colouring turned into palette indices: what the strip and the bars paint with. */
import type { ViewModel } from "../base/model.ts";
import type { Coloring } from "./panel.ts";

/** The part of the graph's theme that painting needs. */
export interface Palette {
  dark: boolean;
  families: Record<string, string>;
  ramp: readonly string[];
  unknown: string;
  categories: readonly string[];
}

export interface Paint {
  coloring: Coloring;
  /** Per instruction, into `colors`. */
  index: Uint8Array;
  colors: string[];
  /** Numeric colourings: share of the range per colour index, else null. */
  level: Float32Array | null;
  /** Smallest and largest known value; null for categories or when nothing is known. */
  range: [low: number, high: number] | null;
}

const STEPS = 48;

function mix(a: string, b: string, t: number): string {
  let out = "#";
  for (let k = 1; k < 7; k += 2) {
    const x = Number.parseInt(a.slice(k, k + 2), 16);
    const y = Number.parseInt(b.slice(k, k + 2), 16);
    out += Math.round(x + (y - x) * t)
      .toString(16)
      .padStart(2, "0");
  }
  return out;
}

/** Colour at t in [0, 1] along the ramp. */
export function rampColor(ramp: readonly string[], t: number): string {
  const x = Math.min(1, Math.max(0, t)) * (ramp.length - 1);
  const k = Math.min(ramp.length - 2, Math.floor(x));
  return mix(ramp[k], ramp[k + 1], x - k);
}

export function paint(model: ViewModel, coloring: Coloring, palette: Palette): Paint {
  const values = coloring.values(model);
  const n = model.instruction.count;
  const index = new Uint8Array(n);
  const categories = coloring.categories?.(model);
  if (categories) {
    const known = Math.min(categories.length, 254);
    const colors = categories.slice(0, known).map((_, k) => {
      if (coloring.id === "family") {
        return palette.families[model.header.families[k].id] ?? palette.families.other;
      }
      return palette.categories[k % palette.categories.length];
    });
    colors.push(palette.unknown);
    for (let i = 0; i < n; i++) {
      const v = values[i];
      index[i] = v >= 0 && v < known ? v : known;
    }
    return { coloring, index, colors, level: null, range: null };
  }
  const log = coloring.scale === "log";
  const usable = (v: number) => Number.isFinite(v) && (!log || v > 0);
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < n; i++) {
    const v = values[i];
    if (!usable(v)) continue;
    if (v < low) low = v;
    if (v > high) high = v;
  }
  const level = new Float32Array(STEPS + 1);
  const colors: string[] = [];
  for (let k = 0; k < STEPS; k++) {
    level[k] = k / (STEPS - 1);
    colors.push(rampColor(palette.ramp, level[k]));
  }
  colors.push(palette.unknown);
  const to = log ? Math.log : (v: number) => v;
  const begin = to(low);
  const span = to(high) - begin;
  for (let i = 0; i < n; i++) {
    const v = values[i];
    const t = span > 0 ? (to(v) - begin) / span : 1;
    index[i] = usable(v) ? Math.round(t * (STEPS - 1)) : STEPS;
  }
  return { coloring, index, colors, level, range: high >= low ? [low, high] : null };
}
