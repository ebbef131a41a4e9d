/** The what-if model in the browser: limits, unknown, loops, links. */

import { describe, expect, it } from "vitest";
import { highest } from "../../js/panels/memory/memory-timeline.ts";
import { transferTime } from "../../js/state/what-if.ts";
import type { Chip } from "../../js/view-extras.ts";

const chip = {
  links: [
    { name: "near", kind: "switch", bytesPerSecond: 100, latency: 1, group: 8 },
    { name: "far", kind: "switch", bytesPerSecond: 10, latency: 2, group: 0 },
  ],
} as unknown as Chip;
const levels = {
  switchSteps: [7, 3],
  switchBytes: [700, 300],
  torusSteps: [4, 4],
  torusBytes: [350, 350],
  farSteps: [0, 5],
  farBytes: [0, 200],
};

describe("a transfer", () => {
  it("takes all steps, and the slower of both links", () => {
    expect(transferTime(chip, levels, 0)).toBe(7 + 7);
    expect(transferTime(chip, levels, 1)).toBe(3 + 10 + 20);
    const torus = { ...chip, links: [{ ...chip.links[0], kind: "torus" as const }] };
    expect(transferTime(torus, levels, 0)).toBe(4 + 3.5);
    expect(transferTime({ ...chip, links: [] }, levels, 0)).toBeNaN();
  });
});

describe("the timeline", () => {
  it("keeps every peak however few columns there are", () => {
    const values = Float64Array.from({ length: 1000 }, (_, k) => (k === 617 ? 9 : k % 5));
    for (const columns of [1, 7, 100, 1000, 5000]) {
      expect(Math.max(...highest(values, columns))).toBe(9);
    }
    expect([...highest(Float64Array.of(1, 3, 2), 8)]).toEqual([1, 3, 2]);
    expect(highest(new Float64Array(0), 8)).toHaveLength(0);
  });
});
