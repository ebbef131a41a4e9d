/** The what-if model in the browser: limits, unknown, loops, links. */
import { describe, expect, it } from "vitest";
import { highest } from "../../js/panels/memory-timeline.ts";
import { type Chip, linkFor } from "../../js/state/costs.ts";

const chip = {
  links: [
    { name: "near", kind: "switch", bytesPerSecond: 1, latency: 0, group: 8 },
    { name: "far", kind: "switch", bytesPerSecond: 1, latency: 0, group: 0 },
  ],
} as unknown as Chip;

describe("links", () => {
  it("takes the nearest that reaches", () => {
    expect(linkFor(chip, 0b0111)?.name).toBe("near");
    expect(linkFor(chip, 0b1000)?.name).toBe("far");
    expect(linkFor({ ...chip, links: [] }, 0)).toBeNull();
    expect(linkFor({ ...chip, links: chip.links.slice(0, 1) }, 0b1000)?.name).toBe("near");
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
