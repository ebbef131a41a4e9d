/** Comparisons in a search: `bytes>1GiB`, `time>=1ms`, `flops<2T`. */
import { AMOUNTS, type Amount } from "../cost/amounts.ts";

export interface Comparison {
  of: Amount;
  holds(value: number): boolean;
}

const UNITS: Record<string, number> = {
  "": 1,
  b: 1,
  k: 1e3,
  m: 1e6,
  g: 1e9,
  t: 1e12,
  p: 1e15,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};
const SECONDS: Record<string, number> = { "": 1, s: 1, ms: 1e-3, us: 1e-6, µs: 1e-6, ns: 1e-9 };

/** Null for anything but a comparison; it is then an ordinary word. */
export function parseComparison(text: string): Comparison | null {
  const found = /^([a-z]+)(>=|<=|>|<|=)([\d.]+(?:e[+-]?\d+)?)([a-zµ]*)$/i.exec(text);
  if (!found) return null;
  const of = AMOUNTS.find((a) => a === found[1].toLowerCase());
  const unit = (of === "time" ? SECONDS : UNITS)[found[4].toLowerCase()];
  const limit = Number(found[3]) * unit;
  if (!of || !Number.isFinite(limit)) return null;
  // An unknown value is neither more nor less: NaN compares false.
  const tests: Record<string, (value: number) => boolean> = {
    ">": (v) => v > limit,
    ">=": (v) => v >= limit,
    "<": (v) => v < limit,
    "<=": (v) => v <= limit,
    "=": (v) => v === limit,
  };
  return { of, holds: tests[found[2]] };
}
