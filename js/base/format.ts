/** Numbers in words, the same everywhere: binary bytes, SI for the rest. */

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SI = ["", "k", "M", "G", "T", "P", "E"];

function scaled(value: number, base: number, units: string[]): string {
  let power = 0;
  let v = Math.abs(value);
  while (v >= base && power < units.length - 1) {
    v /= base;
    power++;
  }
  const digitsOf = () => (power === 0 ? 0 : v < 9.995 ? 2 : v < 99.95 ? 1 : 0);
  // 1023.9996 KiB would print as 1024: step up instead.
  if (power > 0 && power < units.length - 1 && Number(v.toFixed(digitsOf())) >= base) {
    v /= base;
    power++;
  }
  const digits = digitsOf();
  const text = v.toFixed(digits).replace(/\.0+$|(\.\d*[1-9])0+$/, "$1");
  return `${value < 0 ? "−" : ""}${text} ${units[power]}`.trim();
}

/** "185 MiB"; unknown is "unknown", never 0. */
export function bytes(value: number): string {
  return Number.isFinite(value) ? scaled(value, 1024, BINARY) : "unknown";
}

/** "1.27 GFLOP" with unit "FLOP"; "B" is binary; seconds go down to ns. */
export function quantity(value: number, unit = ""): string {
  if (!Number.isFinite(value)) return "unknown";
  if (unit === "B") return bytes(value);
  if (unit === "s") return seconds(value);
  if (!unit) return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(3)));
  const text = scaled(value, 1000, SI);
  return /\d$/.test(text) ? `${text} ${unit}` : `${text}${unit}`;
}

export function seconds(value: number): string {
  if (!Number.isFinite(value)) return "unknown";
  if (value === 0) return "0 s";
  const abs = Math.abs(value);
  const [unit, scale] =
    abs >= 1 ? ["s", 1] : abs >= 1e-3 ? ["ms", 1e3] : abs >= 1e-6 ? ["µs", 1e6] : ["ns", 1e9];
  return `${Number((value * (scale as number)).toPrecision(3))} ${unit}`;
}

/** "9,679" */
export function count(value: number): string {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en-US") : "unknown";
}

/** "1 fusion", "282 fusions". */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
