/** Boundary cases: each test fails after a one-character change of the code. */
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeBlock } from "../../js/base/decode.ts";
import { readView, type ViewModel } from "../../js/base/model.ts";
import { Camera } from "../../js/draw/camera/camera.ts";
import { paintInstructions } from "../../js/draw/coloring.ts";
import { EdgeKind } from "../../js/graph/layout/edges.ts";
import type { Layers } from "../../js/graph/layout/layers.ts";
import { neighbours } from "../../js/graph/layout/layers.ts";
import { crossings, orderLayers } from "../../js/graph/layout/order.ts";
import { fillRanks } from "../../js/graph/layout/rank.ts";
import { costsOf } from "../../js/state/cost/costs.ts";
import { scopeCosts } from "../../js/state/cost/scope-costs.ts";
import { countRuns } from "../../js/state/cost/what-if.ts";
import { LIGHT } from "../../js/theme/graph.ts";
import { type AnalysesHeader, VIEW_VERSION } from "../../js/view.ts";
import { expressionAt } from "../../src/notebook/expression.ts";
import { buildModel } from "./fixtures.ts";

const raw = (name: string) =>
  new Uint8Array(gunzipSync(readFileSync(new URL(`../golden/blocks/${name}`, import.meta.url))));
const sharded = (): ViewModel => {
  const model = readView(raw("sharded.view"));
  model.extend(decodeBlock<AnalysesHeader>(raw("sharded.analyses"), "HLOA", VIEW_VERSION));
  return model;
};

describe("the camera", () => {
  test("keeps the place under the pointer while it zooms", () => {
    const camera = new Camera();
    camera.width = 800;
    camera.height = 600;
    camera.x = 50;
    camera.y = -20;
    for (const [x, y, factor] of [
      [300, 200, 2],
      [10, 590, 0.3],
      [799, 1, 1.7],
    ]) {
      const before = [camera.toWorldX(x), camera.toWorldY(y)];
      const scale = camera.scale;
      camera.zoomAt(x, y, factor);
      expect(camera.scale).toBeCloseTo(scale * factor, 10);
      expect(camera.toWorldX(x)).toBeCloseTo(before[0], 8);
      expect(camera.toWorldY(y)).toBeCloseTo(before[1], 8);
    }
  });
  test("stops at its limits, and keeps the place there too", () => {
    const camera = new Camera();
    camera.zoomAt(100, 100, 1e9);
    expect(camera.scale).toBe(6);
    const before = [camera.toWorldX(70), camera.toWorldY(30)];
    camera.zoomAt(70, 30, 1e-9);
    expect(camera.scale).toBe(0.004);
    expect([camera.toWorldX(70), camera.toWorldY(30)]).toEqual(
      before.map((v) => expect.closeTo(v, 6)),
    );
  });
});

describe("colours by amounts", () => {
  const painted = (values: number[]) => {
    const instructions = values.map((_, k) => ({ name: `i${k}`, opcode: "add", group: 1 }));
    const model = buildModel({
      instructions,
      groups: [
        { parent: -1, kind: "module", label: "m" },
        { parent: 0, kind: "entry", label: "e" },
      ],
    });
    const coloring = { id: "x", label: "x", values: () => Float64Array.from(values), unit: "s" };
    const { colors } = paintInstructions(model, coloring as never, LIGHT);
    return values.map((_, k) => colors.index[k] / (colors.palette.length - 1));
  };
  test("span at least one decade: 4 µs beside 3 µs is no red beside yellow", () => {
    const [three, four] = painted([3e-6, 4e-6]);
    expect(four).toBe(1);
    // log(3 / 0.4) / log(10) of the 32 steps that follow those of "unknown" and 0
    expect(three).toBeCloseTo(29 / 33, 6);
  });
  test("span what there is, and three decades at most", () => {
    const [least, middle, most] = painted([1, 10, 100]);
    expect([most, least]).toEqual([1, expect.closeTo(2 / 33, 1)]);
    expect(middle).toBeCloseTo((2 / 33 + 1) / 2, 1);
    const [tiny, low] = painted([1e-9, 1, 1000]);
    expect(tiny).toBe(low);
  });
});

describe("what Explore HLO is about", () => {
  test.each([
    ["a quote behind a backslash ends no string", `f("a\\") + g(x")`, 4, null],
    ["behind the string", `h("a\\"") + g(x)`, 11, "g(x)"],
    ["a backslash behind a backslash hides nothing", `h("a\\\\") + g(x)`, 11, "g(x)"],
    ["brackets in strings do not count", `g(")", "\\")", x)`, 0, `g(")", "\\")", x)`],
    ["in a comment", "# g(x)\ny", 2, null],
  ])("%s", (_, source, offset, text) => {
    expect(expressionAt(source, offset)?.text ?? null).toBe(text);
  });
});

/** Layers with the nodes of each rank in the order given, and edges between neighbouring ranks. */
function layersOf(ranks: number[][], edges: [number, number][]): Layers {
  const offsets = [0];
  for (const r of ranks) offsets.push(offsets[offsets.length - 1] + r.length);
  const slots = Int32Array.from(ranks.flat());
  const rank = new Int32Array(slots.length);
  ranks.forEach((nodes, r) => {
    for (const v of nodes) rank[v] = r;
  });
  return {
    nodes: Int32Array.from(slots.keys()),
    total: slots.length,
    rank,
    ranks: ranks.length,
    offsets: Int32Array.from(offsets),
    slots,
    upper: Int32Array.from(edges, (e) => e[0]),
    lower: Int32Array.from(edges, (e) => e[1]),
  } as unknown as Layers;
}

function crossed(layers: Layers): number {
  const place = new Float64Array(layers.total);
  for (let r = 0; r < layers.ranks; r++) {
    for (let k = layers.offsets[r]; k < layers.offsets[r + 1]; k++) {
      place[layers.slots[k]] = k - layers.offsets[r];
    }
  }
  return crossings(layers, neighbours(layers), place);
}

/** The fewest crossings of any order, by trying all. */
function fewest(ranks: number[][], edges: [number, number][]): number {
  const orders = (of: number[]): number[][] =>
    of.length < 2
      ? [of]
      : of.flatMap((v) => orders(of.filter((w) => w !== v)).map((rest) => [v, ...rest]));
  let best = Number.POSITIVE_INFINITY;
  const walk = (k: number, chosen: number[][]): void => {
    if (k === ranks.length) best = Math.min(best, crossed(layersOf(chosen, edges)));
    else for (const order of orders(ranks[k])) walk(k + 1, [...chosen, order]);
  };
  walk(0, []);
  return best;
}

describe("the order within ranks", () => {
  const graphs = fc
    .tuple(
      fc.integer({ min: 2, max: 4 }),
      fc.integer({ min: 2, max: 4 }),
      fc.integer({ min: 2, max: 3 }),
    )
    .chain((sizes) => {
      let next = 0;
      const ranks = sizes.map((n) => Array.from({ length: n }, () => next++));
      const pairs = ranks
        .slice(1)
        .flatMap((lower, r) => ranks[r].flatMap((a) => lower.map((b): [number, number] => [a, b])));
      return fc.tuple(fc.constant(ranks), fc.subarray(pairs, { minLength: 2 }));
    });
  test("is never worse than what it began with, and mostly the best there is", () => {
    let [ours, best] = [0, 0];
    fc.assert(
      fc.property(graphs, ([ranks, edges]) => {
        const layers = layersOf(ranks, edges);
        const before = crossed(layers);
        orderLayers(layers, neighbours(layers));
        const after = crossed(layers);
        expect(after).toBeLessThanOrEqual(before);
        expect([...layers.slots].sort((a, b) => a - b)).toEqual([...layers.slots.keys()]);
        ours += after;
        best += fewest(ranks, edges);
      }),
      { numRuns: 150, seed: 7 },
    );
    expect(ours).toBeLessThanOrEqual(best * 1.03);
  });
  test("neighbours are swapped, and a sweep that made it worse is forgotten", () => {
    let left = 0;
    const next = (() => {
      let s = 5;
      return (n: number) => {
        s = (Math.imul(s, 1103515245) + 12345) & 0x7fffffff;
        return s % n;
      };
    })();
    for (let round = 0; round < 60; round++) {
      const ranks = [0, 1, 2, 3].map((r) => Array.from({ length: 9 }, (_, k) => 9 * r + k));
      const edges = Array.from({ length: 40 }, (): [number, number] => {
        const r = next(3);
        return [9 * r + next(9), 9 * (r + 1) + next(9)];
      });
      const layers = layersOf(ranks, edges);
      orderLayers(layers, neighbours(layers));
      const once = crossed(layers);
      left += once;
      // ordering again must not make it worse
      orderLayers(layers, neighbours(layers));
      expect(crossed(layers)).toBeLessThanOrEqual(once);
    }
    // 1,400 are left without swaps, and more if the last sweep is kept instead of the best
    expect(left).toBeLessThanOrEqual(1290);
  });
});

describe("ranks", () => {
  const ranksOf = (n: number, edges: [number, number][], width = 99) => {
    const rank = new Int32Array(n);
    fillRanks(
      n,
      Int32Array.from(edges, (e) => e[0]),
      Int32Array.from(edges, (e) => e[1]),
      new Uint8Array(edges.length).fill(EdgeKind.Plain),
      rank,
      width,
      false,
    );
    return [...rank];
  };
  const chain: [number, number][] = [
    [0, 1],
    [1, 2],
    [2, 3],
  ];
  test("what only serves moves down to its first user", () => {
    expect(ranksOf(5, [...chain, [4, 3]])).toEqual([0, 1, 2, 3, 2]);
    expect(ranksOf(5, [...chain, [4, 3], [4, 2]])).toEqual([0, 1, 2, 3, 1]);
  });
  test("what has as many operands as users, or more, stays", () => {
    expect(ranksOf(5, [...chain, [0, 4], [4, 3]])).toEqual([0, 1, 2, 3, 1]);
    expect(ranksOf(6, [...chain, [0, 4], [5, 4], [4, 3]])).toEqual([0, 1, 2, 3, 1, 0]);
  });
  test("what has more users than operands moves, and only into rows with room", () => {
    const edges: [number, number][] = [...chain, [0, 4], [4, 3], [4, 5], [3, 5]];
    expect(ranksOf(6, edges)).toEqual([0, 1, 2, 3, 2, 4]);
    expect(ranksOf(6, edges, 1)).toEqual([0, 1, 3, 4, 2, 5]);
  });
});

describe("costs with trip counts set by hand", () => {
  test("a loop's body runs as often as was set, its condition once more", () => {
    const model = sharded();
    const costs = costsOf(model);
    if (!costs) throw new Error("no costs");
    const loop = model.column<Int32Array>("cost.loop");
    const condition = model.column<Uint8Array>("cost.condition");
    const before = costs.runs.slice();
    const rows = [...loop.keys()].filter((i) => loop[i] === 0);
    expect(rows.some((i) => condition[i] === 1)).toBe(true);
    expect(rows.some((i) => condition[i] === 0)).toBe(true);
    costs.setTrips(0, 5);
    for (let i = 0; i < loop.length; i++) {
      const times = loop[i] === 0 ? (condition[i] ? 6 : 5) : 1;
      expect(costs.runs[i], model.name(i)).toBe(before[i] * times);
    }
    costs.setTrips(0, 1);
    expect([...costs.runs]).toEqual([...before]);
  });
  test("of loops in loops each multiplies what is inside it", () => {
    const columns = {
      loop: Int32Array.of(-1, 0, 0, 1, 1),
      condition: Uint8Array.of(0, 0, 1, 0, 1),
    };
    const loops = [-1, 0].map((parent) => ({ instruction: 0, computation: 0, parent }));
    const runs = (...trips: number[]) => [
      ...countRuns(columns as never, loops as never, Float64Array.of(1, 1, 1, 1, 2), trips),
    ];
    expect(runs(1, 1)).toEqual([1, 1, 1, 1, 2]);
    // a loop of unknown trip count runs once, and so does its condition
    expect(runs(3, 1)).toEqual([1, 3, 4, 3, 6]);
    expect(runs(1, 5)).toEqual([1, 1, 1, 5, 12]);
    expect(runs(3, 5)).toEqual([1, 3, 4, 15, 36]);
  });
  test("near and far wires run at once, each one thing after the other", () => {
    const timed = (far: number[], seconds: number[], before = 0, under = 0) => {
      const model = sharded();
      const n = model.instruction.count;
      const { columns } = (model as unknown as { block: { columns: Map<string, unknown> } }).block;
      const zero = new Float64Array(n);
      for (const name of ["flops", "matmul_flops", "transcendentals", "bytes", "main_bytes"]) {
        columns.set(`cost.${name}`, zero);
      }
      columns.set(
        "cost.runs",
        zero.map(() => 1),
      );
      columns.set("cost.unit", new Uint8Array(n));
      const last = model.computation.count - 1;
      const first = model.computation.first[last];
      expect(model.computation.size[last]).toBeGreaterThan(6);
      const { reaches } = model.header.extras.cost as { reaches: number };
      columns.set("transfer.start", Uint32Array.of(first, first + 1));
      const { hardware } = model.header.extras.cost as { hardware: { memoryBandwidth: number }[] };
      const bytes = zero.slice();
      const unit = new Uint8Array(n);
      if (before) {
        columns.set("transfer.start", Uint32Array.of(first + 1, first + 1));
        unit[first] = 1;
        bytes[first] = before * hardware[0].memoryBandwidth;
      }
      if (under) {
        unit[first + 2] = 1;
        bytes[first + 2] = under * hardware[0].memoryBandwidth;
      }
      columns.set("cost.main_bytes", bytes);
      columns.set("cost.unit", unit);
      columns.set("transfer.done", Uint32Array.of(first + 4, first + 5));
      columns.set("transfer.far", Uint8Array.from(far));
      columns.set("transfer.bytes", new Float64Array(2));
      for (const kind of ["switch", "torus", "far"]) {
        const steps = seconds.flatMap((s) => new Array(reaches).fill(kind === "far" ? 0 : s));
        columns.set(`transfer.${kind}_steps`, Float64Array.from(steps));
        columns.set(`transfer.${kind}_bytes`, new Float64Array(2 * reaches));
      }
      const costs = costsOf(model);
      const chip = costs?.extras.hardware.find((h) => h.links.length > 0);
      if (!costs || !chip) throw new Error("no costs");
      const { memoryBandwidth } = costs.extras.hardware[0];
      costs.setChip({
        ...chip,
        memoryBandwidth,
        links: chip.links.map((l) => ({ ...l, latency: 1 })),
      });
      return costs.totals;
    };
    expect(timed([0, 1], [2, 3]).exposed).toBe(3);
    expect(timed([0, 0], [2, 3]).exposed).toBe(5);
    expect(timed([1, 1], [2, 3]).exposed).toBe(5);
    expect(timed([1, 0], [2, 3]).collective).toBe(5);
    // work that runs before a transfer hides none of it
    expect(timed([0, 1], [2, 3], 7).exposed).toBe(3);
    // nor does a transfer that ended long before its done give time back
    expect(timed([0, 1], [2, 3], 0, 7).exposed).toBe(0);
    expect(timed([0, 0], [2, 3], 0, 4).exposed).toBe(1);
  });
});

test("a scope's cost is that of all below it", () => {
  const model = sharded();
  const costs = costsOf(model);
  if (!costs) throw new Error("no costs");
  let all = 0;
  for (let i = 0; i < costs.unit.length; i++) {
    const value = (costs.chip ? costs.seconds[i] : costs.flops[i]) * costs.runs[i];
    if (costs.unit[i] && value > 0) all += value;
  }
  const root = scopeCosts(model, costs, 9);
  expect(root.value).toBeCloseTo(all, 6 - Math.round(Math.log10(all)));
  let deepest = 0;
  const walk = (node: typeof root, depth: number): void => {
    deepest = Math.max(deepest, depth);
    if (!node.children.length) return;
    const sum = node.children.reduce((s, c) => s + c.value, 0);
    expect(sum).toBeLessThanOrEqual(node.value * (1 + 1e-9));
    for (const c of node.children) walk(c, depth + 1);
  };
  walk(root, 0);
  expect(deepest).toBeGreaterThan(1);
  expect(root.children.reduce((s, c) => s + c.value, 0)).toBeCloseTo(
    all,
    6 - Math.round(Math.log10(all)),
  );
});
