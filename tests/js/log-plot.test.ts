/** Axes of the log-log plots: decades that cover the values, labels that do not touch. */
import { describe, expect, it } from "vitest";
import { decades, labelStep } from "../../js/panels/parts/log-plot.ts";

describe("decades", () => {
  it("holds all positive values", () => {
    expect(decades([3e-6, 2e-3])).toEqual({ low: -6, high: -2 });
    expect(decades([1e-6, 1e-3])).toEqual({ low: -6, high: -3 });
    expect(decades([1e-15, 0, Number.NaN, -5, 1e15])).toEqual({ low: -15, high: 15 });
  });
  it("is one decade at least", () => {
    expect(decades([1])).toEqual({ low: 0, high: 1 });
    expect(decades([5])).toEqual({ low: 0, high: 1 });
    expect(decades([])).toEqual({ low: 0, high: 1 });
  });
});

describe("labels", () => {
  it("leaves each its room", () => {
    for (const room of [100, 220, 480, 700]) {
      for (let count = 1; count < 40; count++) {
        const step = labelStep(count, room, 54);
        const labels = Math.floor(count / step) + 1;
        expect(labels).toBeLessThanOrEqual(Math.max(2, Math.floor(room / 54)));
      }
    }
    expect(labelStep(4, 480, 54)).toBe(1);
  });
});
