import { describe, expect, test } from "vitest";
import { filterRows } from "../../js/panels/collectives/collectives.ts";
import { balanceText, imbalance, type Metric, received } from "../../js/panels/devices/metrics.ts";
import { drawnDimensions, holders, rangesText } from "../../js/panels/devices/tiles.ts";
import { extent } from "../../js/panels/parts/heat.ts";
import {
  type CollectiveRow,
  executionsText,
  totalsBy,
  totalWire,
  wireText,
} from "../../js/state/devices/collectives.ts";
import { meshSpots, tileRanges, torusSpots } from "../../js/state/devices/devices.ts";
import { shortLine } from "../../js/state/source/places.ts";
import { classColor, heatColor, inkOf } from "../../js/theme/inks.ts";

const row = (more: Partial<CollectiveRow>): CollectiveRow => ({
  index: 0,
  kind: "all-gather",
  network: "",
  instruction: 0,
  anchor: 0,
  axes: "model",
  types: "bf16",
  onAxes: true,
  groupSize: 4,
  payload: 100,
  wire: 75,
  executions: 2,
  executionsATrip: 1,
  mayNotRun: false,
  branches: [],
  phase: "forward",
  written: "partitioner",
  moves: "params['w']",
  movesArgument: true,
  line: "a/train.py:31",
  opName: "jit(f)/dot",
  shows: "",
  why: null,
  assumes: "",
  ofPermutes: false,
  groups: null,
  members: new Uint32Array(),
  parts: [],
  ...more,
});

describe("totals", () => {
  test("of branches that exclude one another count one", () => {
    const branch = (number: number) => [{ conditional: 9, number, of: 2 }];
    const rows = [row({ branches: branch(0) }), row({ wire: 50, branches: branch(1) }), row({})];
    const [total] = totalsBy(rows, () => "");
    expect([total.leastWire, total.wire]).toEqual([250, 300]);
    expect(executionsText(rows[0])).toBe("0–2");
    const [one] = totalsBy([rows[0], rows[2]], () => ""); // the other branch sends nothing
    expect([one.leastWire, one.wire]).toEqual([150, 300]);
  });
  test("are a lower bound only where each loop runs at least once", () => {
    const unknown = { executions: Number.NaN };
    expect(wireText([row({ wire: 512 }), row({ wire: 512, ...unknown })])).toBe("≥ 1.5 KiB");
    const mayNotRun = row({ wire: 512, mayNotRun: true, ...unknown });
    expect(wireText([row({ wire: 512 }), mayNotRun])).toBe("1.5 KiB (1 trip)");
  });
  test("sum executions and say when something is unknown", () => {
    const rows = [row({}), row({ wire: 50 }), row({ axes: "data", executions: Number.NaN })];
    // 50 executions in one trip of a loop of unknown trip count
    expect(totalWire(row({ executions: Number.NaN, executionsATrip: 50 }))).toBe(50 * 75);
    expect(totalWire(rows[0])).toBe(150);
    expect(totalsBy(rows, (r) => r.axes)).toEqual([
      {
        key: "model",
        count: 2,
        wire: 250,
        leastWire: 250,
        payload: 400,
        leastPayload: 400,
        sent: "250 B",
      },
      {
        key: "data",
        count: 1,
        wire: 75,
        leastWire: 75,
        payload: 100,
        leastPayload: 100,
        sent: "≥ 75 B",
      },
    ]);
  });
  test("a formula that is unknown adds nothing and shows as at least", () => {
    const [t] = totalsBy([row({ wire: Number.NaN }), row({})], () => "all");
    expect([t.wire, t.sent]).toEqual([150, "≥ 150 B"]);
  });
  test("where no formula is known, what is sent is unknown rather than nothing", () => {
    const [t] = totalsBy([row({ wire: Number.NaN }), row({ wire: 0 })], () => "all");
    expect(t.sent).toBe("unknown");
  });
  test("filter holds every word, in any text", () => {
    const rows = [row({}), row({ line: "b/eval.py:2", moves: "x" })];
    expect(filterRows(rows, "MODEL train")).toEqual([rows[0]]);
    expect(filterRows(rows, " ")).toEqual(rows);
    expect(shortLine("c:\\a\\train.py:31")).toBe("train.py:31");
  });
});

describe("tiles", () => {
  test("ranges by row-major number, last ones smaller or empty", () => {
    expect(tileRanges([10, 64], [4, 1], 0)).toEqual([
      [0, 3],
      [0, 64],
    ]);
    expect(tileRanges([10, 64], [4, 1], 3)[0]).toEqual([9, 10]);
    expect(rangesText(tileRanges([5, 64], [4, 1], 3))).toBe("nothing but padding");
    expect(tileRanges([4, 6], [2, 3], 5)).toEqual([
      [2, 4],
      [4, 6],
    ]);
  });
  test("every index of an array is in exactly one tile", () => {
    const dims = [7, 5];
    const tiles = [3, 2];
    const seen = new Map<string, number>();
    for (let t = 0; t < 6; t++) {
      const [r, c] = tileRanges(dims, tiles, t);
      for (let i = r[0]; i < r[1]; i++)
        for (let j = c[0]; j < c[1]; j++) seen.set(`${i},${j}`, (seen.get(`${i},${j}`) ?? 0) + 1);
    }
    expect(seen.size).toBe(35);
    expect(new Set(seen.values())).toEqual(new Set([1]));
  });
  test("who holds them, and which dimensions to draw", () => {
    const place = Int32Array.from([0, 1, 0, 1, -1]);
    const held = holders({
      text: "",
      raw: "",
      kind: "tiled",
      replicas: 2,
      tiles: new Uint32Array(),
      place,
    });
    expect([...held]).toEqual([
      [0, [0, 2]],
      [1, [1, 3]],
    ]);
    expect(drawnDimensions([1, 4, 1, 2])).toEqual([1, 3]);
    expect(drawnDimensions([1, 1, 1])).toEqual([1, 2]);
    expect(drawnDimensions([8])).toEqual([0]);
  });
});

describe("places", () => {
  const distinct = (spots: { x: number; y: number }[]) =>
    new Set(spots.map((s) => `${s.x.toFixed(3)} ${s.y.toFixed(3)}`)).size;
  test.each([[[2, 4]], [[8]], [[512]], [[2, 2, 2]], [[4, 2, 4, 2]], [[16, 32]]])(
    "mesh %j: cells apart and inside",
    (sizes) => {
      const n = sizes.reduce((a, b) => a * b, 1);
      const order = Array.from({ length: n }, (_, k) => n - 1 - k);
      const { spots, width, height } = meshSpots(sizes, order);
      expect(distinct(spots)).toBe(n);
      for (const s of spots) {
        expect(s.x).toBeLessThanOrEqual(width - 1 + 1e-9);
        expect(s.y).toBeLessThanOrEqual(height - 1 + 1e-9);
      }
      for (let a = 0; a < Math.min(n, 64); a++)
        for (let b = 0; b < a; b++) {
          const apart = Math.max(
            Math.abs(spots[a].x - spots[b].x),
            Math.abs(spots[a].y - spots[b].y),
          );
          expect(apart).toBeGreaterThan(0.999);
        }
    },
  );
  test("the last axis runs to the right, partitions in mesh order", () => {
    const { spots } = meshSpots([2, 4], [7, 6, 5, 4, 3, 2, 1, 0]);
    expect(spots[7]).toEqual({ x: 0, y: 0 });
    expect(spots[4]).toEqual({ x: 3, y: 0 });
    expect(spots[3]).toEqual({ x: 0, y: 1 });
  });
  test("a torus of coordinates", () => {
    const coords = [
      [0, 0, 0],
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
    ];
    const { spots, height } = torusSpots(coords);
    expect(distinct(spots)).toBe(4);
    expect(height).toBe(2);
    expect(spots[3].x).toBeGreaterThan(1);
  });
});

test("colours: ends of the ramp differ, classes differ, extent skips unknowns", () => {
  expect(heatColor(0, inkOf(false))).not.toBe(heatColor(1, inkOf(false)));
  expect(heatColor(7, inkOf(true))).toBe(heatColor(1, inkOf(true)));
  expect(new Set(Array.from({ length: 40 }, (_, k) => classColor(k, inkOf(false)))).size).toBe(40);
  expect(extent([Number.NaN, 3, 1])).toEqual([1, 3]);
  expect(extent([])).toEqual([0, 0]);
});

test("received is the column sum; imbalance the most over the mean of what is known", () => {
  const traffic = {
    source: Uint32Array.of(0, 1, 2),
    target: Uint32Array.of(1, 2, 1),
    bytes: Float64Array.of(10, 20, 5),
  };
  expect([...received(traffic, 4)]).toEqual([0, 15, 20, 0]);
  expect(imbalance([1, 3, Number.NaN])).toBe(1.5);
  expect(imbalance([Number.NaN])).toBeNaN();
  const metric = (values: number[], note?: string): Metric => ({
    id: "x",
    label: "x",
    values,
    unit: "B",
    words: String,
    note,
  });
  expect(balanceText(metric([2, 2]))).toBe("Even: the same on all devices.");
  expect(balanceText(metric([1, 3]))).toBe("Imbalance 1.50: the most over the mean.");
  expect(balanceText(metric([2, 2], "SPMD"))).toBe("SPMD");
});
