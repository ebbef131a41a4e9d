/** The what-if cost model in the browser: limits, unknown values, loops, links. */

import { describe, expect, it } from "vitest";
import type { ViewModel } from "../../js/base/model.ts";
import { highest } from "../../js/panels/memory/timeline.ts";
import { Costs } from "../../js/state/cost/costs.ts";
import { transferTime } from "../../js/state/cost/what-if.ts";
import type { Chip, CostExtras } from "../../js/view-extras.ts";

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

/** Cost columns of a View for four instructions and two transfers. */
function costs(chosen: string | null, more: Record<string, ArrayLike<number>> = {}): Costs {
  const columns: Record<string, ArrayLike<number>> = {
    "cost.flops": Float64Array.of(0, 0, 8, 8),
    "cost.bytes": Float64Array.of(5, 0, 1, 2),
    "cost.runs": Float64Array.of(1, 1, 2, 2),
    "cost.unit": Uint8Array.of(1, 1, 1, 1),
    "cost.matmul_flops": new Float64Array(4),
    "cost.transcendentals": new Float64Array(4),
    "cost.main_bytes": new Float64Array(4),
    "cost.dtype": new Uint8Array(4),
    "cost.seconds": Float64Array.of(9, 0, 1, 1),
    "cost.step": Float64Array.of(1, 0, 4, 2),
    "transfer.start": Uint32Array.of(2, 2),
    "transfer.bytes": Float64Array.of(100, 10),
    "transfer.runs": Float64Array.of(3, 3),
    "transfer.seconds": Float64Array.of(7, 5),
    "transfer.waited": Float64Array.of(2, 1),
    ...more,
  };
  const column = (name: string) => columns[name] ?? null;
  const model = {
    column,
    optional: column,
    instruction: { computation: new Uint32Array(4), count: 4 },
    computation: { first: Uint32Array.of(0), size: Uint32Array.of(4) },
  } as unknown as ViewModel;
  const extras = { hardware: [{ ...chip, id: "a" }], chosen, unknownLoops: [], totals: {} };
  return new Costs(model, extras as unknown as CostExtras);
}

describe("costs", () => {
  it("adds up time on the wire and time waited, apart", () => {
    expect(costs("a").transferTime([0, 2])).toEqual({ wire: 12, waited: 3 });
  });
  it("gives no range of seconds once the chip is edited: it was of the published figures", () => {
    const of = costs("a");
    of.extras.ranges = { flops: [1, 2], seconds: [3, 4] };
    expect(of.ranges).toEqual({ flops: [1, 2], seconds: [3, 4] });
    of.setChip({ ...(of.chip as Chip), memoryBandwidth: 7 });
    expect(of.ranges).toEqual({ flops: [1, 2] });
    of.setChip(of.extras.hardware[0]);
    expect(of.ranges).toEqual({ flops: [1, 2], seconds: [3, 4] });
  });
  it("fills blocks of a systolic unit on an edited chip, unless the vector units are quicker", () => {
    const of = costs("a", {
      "cost.matmul_flops": Float64Array.of(0, 0, 8, 8),
      "filled.instruction": Uint32Array.of(2),
      "filled.flops": Float64Array.of(80, 160),
    });
    of.extras.sides = 2;
    const edited = { ...(of.chip as Chip), matmul: [4], memoryBandwidth: 1, vector: null, peak: 4 };
    const seconds = (more: Partial<Chip>) => {
      of.setChip({ ...edited, ...more });
      return [...of.seconds.slice(2)];
    };
    expect(seconds({})).toEqual([2, 2]); // no systolic unit
    expect(seconds({ side: 0 })).toEqual([20, 2]);
    expect(seconds({ side: 1 })).toEqual([40, 2]);
    expect(seconds({ side: 1, vector: 1 })).toEqual([8, 2]);
  });
  it("counts wire bytes of branches by those that send most, times what was edited", () => {
    const found = costs("a");
    expect([...found.wireBytes]).toEqual([0, 0, 330, 0]);
    found.runs = Float64Array.of(1, 1, 4, 2);
    expect([...found.wireBytes]).toEqual([0, 0, 660, 0]);
  });
});
