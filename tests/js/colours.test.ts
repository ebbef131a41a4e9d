/** Colours by measurement: which can be told apart, and whether text stays readable when dimmed. */
import { describe, expect, test } from "vitest";
import { DIM, DIM_WORDS } from "../../js/draw/paint/paint-state.ts";
import { DARK, LIGHT } from "../../js/theme/graph.ts";

type Rgb = [number, number, number];

const parsed = (hex: string): Rgb =>
  [1, 3, 5].map((k) => Number.parseInt(hex.slice(k, k + 2), 16) / 255) as Rgb;
const linear = (c: Rgb): Rgb =>
  c.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)) as Rgb;
const over = (top: Rgb, bottom: Rgb, alpha: number): Rgb =>
  top.map((v, k) => v * alpha + bottom[k] * (1 - alpha)) as Rgb;

function contrast(a: Rgb, b: Rgb): number {
  const of = (c: Rgb) => {
    const [r, g, blue] = linear(c);
    return 0.2126 * r + 0.7152 * g + 0.0722 * blue + 0.05;
  };
  return Math.max(of(a), of(b)) / Math.min(of(a), of(b));
}

/** Simulated colour blindness, on linear light (Machado, Oliveira, Fernandes 2009). */
const BLIND = {
  protan: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deutan: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
};

/** Distance in Oklab; 0.02 is just visible side by side, 0.09 across a picture. */
function distance(a: string, b: string, blind?: number[][]): number {
  const lab = (hex: string) => {
    const seen = linear(parsed(hex));
    const [r, g, blue] = (blind ?? [])
      .map((row) => row.reduce((sum, v, k) => sum + v * seen[k], 0))
      .map((v) => Math.min(1, Math.max(0, v)))
      .concat(blind ? [] : seen);
    const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * blue);
    const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * blue);
    const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * blue);
    return [
      0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
      1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
      0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
    ];
  };
  const other = lab(b);
  return Math.hypot(...lab(a).map((v, k) => v - other[k]));
}

/** Families that matter most in a picture: where the work is, and what waits. */
const TOLD = ["matmul", "convolution", "custom_call", "collective", "control_flow", "fusion"];

describe.each([
  ["light", LIGHT],
  ["dark", DARK],
])("in the %s theme", (_, theme) => {
  test("families that make a picture are told apart", () => {
    for (const [k, a] of [...TOLD, "reduction"].entries()) {
      for (const b of TOLD.slice(0, k)) {
        const found = distance(theme.families[a], theme.families[b]);
        expect(found, `${a} and ${b}`).toBeGreaterThanOrEqual(0.09);
      }
    }
  });

  test("products and kernels are told apart without red or green", () => {
    const [matmul, ...others] = ["matmul", "convolution", "custom_call"];
    for (const [kind, blind] of Object.entries(BLIND)) {
      for (const [a, b] of [[matmul, others[0]], [matmul, others[1]], others]) {
        const found = distance(theme.families[a], theme.families[b], blind);
        expect(found, `${a} and ${b}, ${kind}`).toBeGreaterThanOrEqual(0.07);
      }
    }
  });

  test("steps of amounts are told apart, from each other and from 0", () => {
    const steps = [theme.zero, ...theme.ramp];
    for (let k = 1; k < steps.length; k++) {
      expect(distance(steps[k], steps[k - 1]), `${k}`).toBeGreaterThanOrEqual(0.05);
    }
  });

  test("dimmed boxes step back, and are still read", () => {
    const ground = parsed(theme.background);
    const words = parsed(theme.text);
    const fills = [...Object.values(theme.families), ...theme.ramp, ...theme.categories];
    for (const fill of [...fills, theme.zero, theme.unknown, theme.group, theme.fold]) {
      const dimmed = over(parsed(fill), ground, DIM);
      const text = over(words, dimmed, DIM_WORDS);
      expect(contrast(text, dimmed), fill).toBeGreaterThanOrEqual(3);
    }
  });
});
