/**
 * Colours for boxes and legends, light and dark. Categories are told apart by people with any
 * of the common colour-vision deficiencies (hues after Okabe and Ito, with differing lightness);
 * amounts run along one ordered ramp (after cividis and viridis: lightness alone tells them).
 */

/** [fill on light, fill on dark, strong on light, strong on dark] */
type Quad = readonly [string, string, string, string];

const HUES: Record<string, Quad> = {
  orange: ["#f7b267", "#a85a12", "#b85c00", "#f2a65a"],
  red: ["#f0887e", "#a33a32", "#b3261e", "#ff8a80"],
  blue: ["#a9cbee", "#2f5d8c", "#1f5fa8", "#8ab8ec"],
  sky: ["#cfe6f5", "#27566f", "#0b6fa4", "#74c3ea"],
  green: ["#a6dcc0", "#1d6b4f", "#00734f", "#66cfa2"],
  yellow: ["#f5e08a", "#75650f", "#7a6400", "#ecd35c"],
  purple: ["#d6bdee", "#674493", "#7237a8", "#c9a4f0"],
  pink: ["#f3bcd8", "#8a3a66", "#a5296f", "#f09cc8"],
  teal: ["#9fdcdd", "#14666b", "#006a70", "#5fcdd1"],
  brown: ["#dcc3a5", "#6b4f2d", "#7a4f12", "#d3ac78"],
  grey: ["#dde1e6", "#4a525c", "#57606a", "#aab4bf"],
  stone: ["#eceef1", "#3a4149", "#6a737d", "#8b949e"],
};

const FAMILY_HUES: Record<string, string> = {
  matmul: "orange",
  convolution: "brown",
  collective: "red",
  fusion: "blue",
  reduce: "green",
  reduction: "green",
  control: "purple",
  loop: "purple",
  call: "purple",
  custom: "pink",
  custom_call: "pink",
  "custom-call": "pink",
  parameter: "teal",
  constant: "stone",
  elementwise: "sky",
  data: "grey",
  data_movement: "grey",
  "data-movement": "grey",
  movement: "grey",
  layout: "grey",
  copy: "grey",
  gather: "yellow",
  scatter: "yellow",
  indexing: "yellow",
  plumbing: "stone",
  tuple: "stone",
  shape: "stone",
  rng: "pink",
  random: "pink",
  host: "brown",
  async: "teal",
  other: "stone",
};

const ORDER = [
  "blue",
  "orange",
  "green",
  "purple",
  "yellow",
  "red",
  "teal",
  "pink",
  "brown",
  "sky",
];

const RAMP_LIGHT = ["#fdf6c9", "#d3e8ae", "#8fd0a6", "#46a9a5", "#2a7d9c", "#274f86", "#2a2460"];
const RAMP_DARK = ["#2b2250", "#30437f", "#2b6a8c", "#219187", "#45b56c", "#9fd43f", "#fbe54b"];

export interface Swatch {
  fill: string;
  /** For lines and text on the page's own background. */
  strong: string;
}

function swatch(name: string, dark: boolean): Swatch {
  const quad = HUES[name] ?? HUES.stone;
  return { fill: quad[dark ? 1 : 0], strong: quad[dark ? 3 : 2] };
}

/** Colour of an opcode family by its id; a family we do not know gets one by its place. */
export function familySwatch(id: string, index: number, dark: boolean): Swatch {
  return swatch(FAMILY_HUES[id] ?? ORDER[index % ORDER.length], dark);
}

/** Colour of category k; beyond ten, "everything else" is grey. */
export function categorySwatch(k: number, dark: boolean): Swatch {
  return swatch(k >= 0 && k < ORDER.length ? ORDER[k] : "grey", dark);
}

export const unknownSwatch = (dark: boolean): Swatch => swatch("stone", dark);

const parse = (hex: string): [number, number, number] => [
  Number.parseInt(hex.slice(1, 3), 16),
  Number.parseInt(hex.slice(3, 5), 16),
  Number.parseInt(hex.slice(5, 7), 16),
];
const print = (rgb: number[]): string =>
  `#${rgb.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("")}`;

/** Colour at t in [0, 1] of the ordered ramp. */
export function ramp(t: number, dark: boolean): string {
  const stops = dark ? RAMP_DARK : RAMP_LIGHT;
  const x = Math.min(1, Math.max(0, t)) * (stops.length - 1);
  const k = Math.min(stops.length - 2, Math.floor(x));
  const a = parse(stops[k]);
  const b = parse(stops[k + 1]);
  return print(a.map((v, c) => v + (b[c] - v) * (x - k)));
}

/** Relative luminance (WCAG 2), 0 black to 1 white. */
export function luminance(hex: string): number {
  const [r, g, b] = parse(hex).map((v) => {
    const s = v / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black-ish or white-ish, whichever reads better on `fill`. */
export function inkOn(fill: string): string {
  return luminance(fill) > 0.22 ? "#14181d" : "#f6f8fa";
}
