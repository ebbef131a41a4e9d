/**
 * Numbers as text, as python/hloscope/analysis/text/units.py prints them; a test keeps the two
 * in step. Three significant digits without trailing zeros; bytes in powers of 1024, everything
 * else in powers of 1000; unknown is "unknown", never 0.
 */

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SI = ["", "k", "M", "G", "T", "P", "E"];
const SECONDS: [step: number, unit: string][] = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const UNKNOWN = "unknown";
const MINUS = "−";

function fixed(value: number, decimals: number): string {
  const text = value.toFixed(decimals);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A value ≥ 0 with three digits, at most six decimals. */
function digits(value: number): string {
  let decimals = 0;
  for (let limit = 99.95; value < limit && decimals < 6; limit /= 10) decimals++;
  return fixed(value, decimals);
}

/** [digits, unit]; `whole`: values below the first step have no decimals. */
function scaled(value: number, base: number, units: string[], whole: boolean): [string, string] {
  let v = Math.abs(value);
  let power = 0;
  while (v >= base && power < units.length - 1) {
    v /= base;
    power++;
  }
  let text = whole && !power ? fixed(v, 0) : digits(v);
  // 1023.9996 KiB would print as 1024: step up instead.
  if (Number(text) >= base && power < units.length - 1) {
    text = digits(v / base);
    power++;
  }
  return [`${value < 0 && text !== "0" ? MINUS : ""}${text}`, units[power]];
}

/** "185 MiB". */
export function bytes(value: number): string {
  return Number.isFinite(value) ? scaled(value, 1024, BINARY, true).join(" ") : UNKNOWN;
}

/** "1.27 GFLOP" with unit "FLOP"; "B" and "s" have their own scales; without a unit, a number. */
export function quantity(value: number, unit = ""): string {
  if (!Number.isFinite(value)) return UNKNOWN;
  if (unit === "B") return bytes(value);
  if (unit === "s") return seconds(value);
  if (!unit) {
    if (Number.isInteger(value) || Math.abs(value) >= 999.5) return count(value);
    return `${value < 0 ? MINUS : ""}${digits(Math.abs(value))}`;
  }
  const [text, prefix] = scaled(value, 1000, SI, false);
  return `${text} ${prefix}${unit}`;
}

/** "1.23 ms". */
export function seconds(value: number): string {
  if (!Number.isFinite(value)) return UNKNOWN;
  const abs = Math.abs(value);
  const found = SECONDS.findIndex(([step]) => abs >= step);
  let at = found < 0 ? SECONDS.length - 1 : found;
  let text = digits(abs / SECONDS[at][0]);
  if (text === "0") return "0 s";
  // 999.96 µs would print as 1000.
  if (at && Number(text) >= 1000) {
    text = "1";
    at--;
  }
  return `${value < 0 ? MINUS : ""}${text} ${SECONDS[at][1]}`;
}

/** "9,679" */
export function count(value: number): string {
  if (!Number.isFinite(value)) return UNKNOWN;
  // More digits than a double has.
  if (Math.abs(value) >= 1e15) return scaled(value, 1000, SI, false).join(" ");
  const whole = Math.floor(value + 0.5);
  return `${whole < 0 ? MINUS : ""}${Math.abs(whole).toLocaleString("en-US")}`;
}

/** "1 fusion", "282 fusions". */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
