/** Colours for what panels paint on canvases, in both themes; css/colors.css has those of the page. */

export interface Ink {
  dark: boolean;
  /** Text on cells; on cells of a strong colour; beside cells. */
  text: string;
  onStrong: string;
  dim: string;
  /** Edges of cells, and of cells with unknown values. */
  edge: string;
  faint: string;
  /** Ring around what is pointed at. */
  mark: string;
  /** Ends of the scale of amounts, as red, green, blue. */
  low: [number, number, number];
  high: [number, number, number];
  /** Less and more than expected, on either side of `even`. */
  even: [number, number, number];
  less: [number, number, number];
  more: [number, number, number];
  /** Saturation and the three lightnesses of classes, in percent. */
  classes: { saturation: number; lightness: [number, number, number] };
  /** Parts of the cost: compute, memory, collectives, unknown. */
  parts: [string, string, string, string];
  treemapEdge: string;
  treemapText: string;
}

const LIGHT: Ink = {
  dark: false,
  text: "#10181f",
  onStrong: "#fff",
  dim: "#57636f",
  edge: "#8a94a0",
  faint: "#b6bec8",
  mark: "#b3261e",
  low: [237, 243, 252],
  high: [11, 61, 145],
  even: [240, 241, 243],
  less: [20, 90, 190],
  more: [190, 70, 0],
  classes: { saturation: 60, lightness: [80, 68, 88] },
  parts: ["#c3e4ea", "#f8d5c0", "#dfd2f4", "#dbe3ec"],
  treemapEdge: "#66717d",
  treemapText: "#10181f",
};
const DARK: Ink = {
  dark: true,
  text: "#fff",
  onStrong: "#10181f",
  dim: "#9aa5b1",
  edge: "#56606c",
  faint: "#56606c",
  mark: "#ffd166",
  low: [30, 45, 66],
  high: [158, 208, 255],
  even: [48, 54, 61],
  less: [110, 180, 255],
  more: [255, 159, 90],
  classes: { saturation: 45, lightness: [34, 46, 28] },
  parts: ["#124a56", "#693818", "#46346a", "#313c49"],
  treemapEdge: "#8794a3",
  treemapText: "#f3f6f9",
};

export const inkOf = (dark: boolean): Ink => (dark ? DARK : LIGHT);

type Rgb = readonly [number, number, number];

/** Mixes two colours; `t` is clamped to 0 … 1. */
function mixed(from: Rgb, to: Rgb, t: number): string {
  const part = Math.min(1, Math.max(0, t));
  const [r, g, b] = [0, 1, 2].map((k) => Math.round(from[k] + (to[k] - from[k]) * part));
  return `rgb(${r},${g},${b})`;
}

/** Weak to strong blue; the number in the cell and the legend say the same without colour. */
export const heatColor = (t: number, ink: Ink): string => mixed(ink.low, ink.high, t);

/** Orange for more, blue for less, grey in between; `t` from -1 to 1. */
export const againstColor = (t: number, ink: Ink): string =>
  mixed(ink.even, t > 0 ? ink.more : ink.less, Math.abs(t));

/** Distinct hues by the golden angle; lightness alternates so that neighbours also differ in grey. */
export function classColor(k: number, { classes }: Ink): string {
  const hue = Math.round((k * 137.508 + 215) % 360);
  return `hsl(${hue} ${classes.saturation}% ${classes.lightness[k % 3]}%)`;
}
