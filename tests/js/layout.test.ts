import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EdgeKind } from "../../js/graph/layout/edges.ts";
import { pack } from "../../js/graph/layout/pack.ts";
import { HEADER_HEIGHT, TextMetrics } from "../../js/graph/metrics.ts";
import {
  LayoutCache,
  layoutPicture,
  type Picture,
  type PictureShape,
  WAYS,
} from "../../js/graph/picture.ts";
import { buildFlow } from "../../js/graph/project/flow.ts";
import { ItemWriter } from "../../js/graph/project/items.ts";
import { Openness, weights } from "../../js/graph/project/openness.ts";
import { ItemKind, project } from "../../js/graph/project/projection.ts";
import { Tree } from "../../js/graph/project/tree.ts";
import { FamilyCounts } from "../../js/graph/project/words.ts";
import { buildModel, generator, type ModuleSpec, randomModule, transformer } from "./fixtures.ts";

const METRICS = new TextMetrics();

function engine(spec: ModuleSpec, way = 0) {
  const tree = new Tree(buildModel(spec));
  const flow = buildFlow(tree.model, false);
  const weight = weights(tree, flow);
  const counts = new FamilyCounts(tree, flow);
  const writer = new ItemWriter(tree, flow, counts, METRICS);
  const cache = new LayoutCache();
  const ways = new Map(Array.from({ length: tree.stacks }, (_, v) => [v, way]));
  const draw = (open: Openness, shape: Partial<PictureShape> = {}): Picture => {
    const projection = project(tree, flow, weight, open);
    return layoutPicture(projection, writer, cache, { aspect: 1.5, ways, ...shape });
  };
  return { tree, cache, draw };
}

function randomOpenness(tree: Tree, next: () => number): Openness {
  const open = new Openness(tree);
  for (let v = 0; v < tree.stacks; v++) if (next() < 0.6) open.open[v] = 1;
  for (let p = 0; p < open.loose.length; p++) if (next() < 0.4) open.loose[p] = 1;
  open.open[tree.root] = 1;
  return open;
}

function everythingOpen(tree: Tree): Openness {
  const open = new Openness(tree);
  open.open.fill(1);
  open.loose.fill(1);
  return open;
}

function check(picture: Picture): void {
  const { x, y, w, h, projection, edges } = picture;
  const { parent, kind, childOffsets, children } = projection;
  for (let item = 0; item < x.length; item++) {
    expect(Number.isFinite(x[item] + y[item] + w[item] + h[item])).toBe(true);
    const p = parent[item];
    if (p >= 0) {
      const header = p === 0 ? 0 : HEADER_HEIGHT;
      expect(x[item]).toBeGreaterThanOrEqual(x[p]);
      expect(y[item]).toBeGreaterThanOrEqual(y[p] + header);
      expect(x[item] + w[item]).toBeLessThanOrEqual(x[p] + w[p] + 0.01);
      expect(y[item] + h[item]).toBeLessThanOrEqual(y[p] + h[p] + 0.01);
    }
    if (kind[item] !== ItemKind.Open) continue;
    const list = [...children.subarray(childOffsets[item], childOffsets[item + 1])];
    list.sort((a, b) => y[a] - y[b]);
    for (let k = 0; k < list.length; k++) {
      const a = list[k];
      for (let j = k + 1; j < list.length && y[list[j]] < y[a] + h[a] - 0.01; j++) {
        const b = list[j];
        const apart = x[b] >= x[a] + w[a] - 0.01 || x[a] >= x[b] + w[b] - 0.01;
        if (!apart) expect.fail(`items ${a} and ${b} overlap`);
      }
    }
  }
  for (let e = 0; e < edges.count; e++) {
    if (edges.kind[e] !== EdgeKind.Plain) {
      expect(edges.pointOffsets[e + 1]).toBe(edges.pointOffsets[e]);
      continue;
    }
    const a = edges.from[e];
    const b = edges.to[e];
    // Down the column, or over to a column further right.
    const flows = y[b] >= y[a] + h[a] || x[b] >= x[a] + w[a];
    if (!flows) expect.fail(`edge ${a} → ${b} runs against the flow`);
    const first = edges.pointOffsets[e];
    const last = edges.pointOffsets[e + 1] - 1;
    expect(last).toBeGreaterThan(first);
    const sideways =
      Math.abs(edges.pointX[first] - x[a] - w[a]) + Math.abs(edges.pointX[last] - x[b]) < 0.01;
    if (sideways) {
      // From one side to the other, through nothing that is beside them.
      for (let p = first; p < last; p++) {
        const [x0, x1] = [edges.pointX[p], edges.pointX[p + 1]].sort((l, r) => l - r);
        const [y0, y1] = [edges.pointY[p], edges.pointY[p + 1]].sort((l, r) => l - r);
        for (let k = childOffsets[parent[a]]; k < childOffsets[parent[a] + 1]; k++) {
          const c = children[k];
          if (c === a || c === b || x1 <= x[c] + 0.01 || x0 >= x[c] + w[c] - 0.01) continue;
          if (y1 > y[c] && y0 < y[c] + h[c]) expect.fail(`edge ${a} → ${b} crosses ${c}`);
        }
      }
      expect(edges.pointY[first]).toBeGreaterThan(y[a]);
      expect(edges.pointY[first]).toBeLessThan(y[a] + h[a]);
      expect(edges.pointY[last]).toBeGreaterThan(y[b]);
      expect(edges.pointY[last]).toBeLessThan(y[b] + h[b]);
      continue;
    }
    expect(edges.pointY[first]).toBeCloseTo(y[a] + h[a]);
    expect(edges.pointY[last]).toBeCloseTo(y[b]);
    expect(edges.pointX[first]).toBeGreaterThanOrEqual(x[a]);
    expect(edges.pointX[first]).toBeLessThanOrEqual(x[a] + w[a]);
    expect(edges.pointX[last]).toBeGreaterThanOrEqual(x[b]);
    expect(edges.pointX[last]).toBeLessThanOrEqual(x[b] + w[b]);
  }
}

const cases = fc.record({
  seed: fc.nat(1_000_000),
  n: fc.integer({ min: 1, max: 260 }),
  groups: fc.nat(16),
});

describe("layout", () => {
  test("nothing overlaps, children are inside, edges follow the flow", () => {
    fc.assert(
      fc.property(cases, ({ seed, n, groups }) => {
        const next = generator(seed);
        const { tree, draw } = engine(randomModule(n, groups, next));
        check(draw(randomOpenness(tree, next), { aspect: 0.7 + 2 * next() }));
      }),
      { numRuns: 200 },
    );
  });

  test("the same for a transformer, closed, half open and open", () => {
    const { tree, draw } = engine(transformer(12, 21));
    check(draw(new Openness(tree)));
    for (let seed = 1; seed < 6; seed++) check(draw(randomOpenness(tree, generator(seed))));
    check(draw(everythingOpen(tree)));
  });

  test("the same input gives the same picture, whatever was drawn before", () => {
    fc.assert(
      fc.property(cases, ({ seed, n, groups }) => {
        const spec = randomModule(n, groups, generator(seed));
        const one = engine(spec);
        const two = engine(spec);
        two.draw(everythingOpen(two.tree));
        const a = one.draw(randomOpenness(one.tree, generator(seed + 1)));
        const b = two.draw(randomOpenness(two.tree, generator(seed + 1)));
        expect([...a.x, ...a.y, ...a.w, ...a.h]).toEqual([...b.x, ...b.y, ...b.w, ...b.h]);
        expect([...a.edges.pointX, ...a.edges.pointY]).toEqual([
          ...b.edges.pointX,
          ...b.edges.pointY,
        ]);
      }),
      { numRuns: 60 },
    );
  });

  test("rows: closed items that only follow one another stand side by side, in their order", () => {
    let level = 0;
    fc.assert(
      fc.property(cases, ({ seed, n, groups }) => {
        const next = generator(seed);
        const { tree, draw } = engine(
          randomModule(n, groups, next),
          WAYS.findIndex((way) => way.rows),
        );
        const picture = draw(randomOpenness(tree, next));
        check(picture);
        const { x, y, w, h, edges, projection } = picture;
        const plain = [...edges.kind.keys()].filter((e) => edges.kind[e] === EdgeKind.Plain);
        const leaving = (v: number) => plain.filter((e) => edges.from[e] === v).length;
        const entering = (v: number) => plain.filter((e) => edges.to[e] === v).length;
        for (const e of plain) {
          const [a, b] = [edges.from[e], edges.to[e]];
          const open = [a, b].some((v) => projection.kind[v] === ItemKind.Open);
          if (open || leaving(a) > 1 || entering(b) > 1) continue;
          const middle = y[a] + h[a] / 2;
          if (Math.abs(middle - y[b] - h[b] / 2) > 0.01) continue; // the row was full
          expect(x[b]).toBeGreaterThan(x[a] + w[a]);
          const first = edges.pointOffsets[e];
          expect(edges.pointOffsets[e + 1]).toBe(first + 2);
          expect(edges.pointX[first]).toBeCloseTo(x[a] + w[a]);
          expect(edges.pointX[first + 1]).toBeCloseTo(x[b]);
          level++;
        }
      }),
      {
        numRuns: 60,
        examples: [
          [{ seed: 712587, n: 79, groups: 3 }], // an edge between two rows is implied by others
          [{ seed: 380158, n: 252, groups: 16 }], // one arrives at the side of a low box of a row
        ],
      },
    );
    expect(level).toBeGreaterThan(100);
  });

  test("containers that are free fit more, and are the same again from the ways chosen", () => {
    let fitting = 0;
    fc.assert(
      fc.property(cases, ({ seed, n, groups }) => {
        const next = generator(seed);
        const { tree, draw } = engine(randomModule(n, groups, next));
        const open = randomOpenness(tree, next);
        const usual = draw(open);
        const side = 0.9 * Math.max(usual.width / 1.5, usual.height);
        const room = { width: 1.5 * side, height: side };
        const free = draw(open, { room });
        check(free);
        if (free.width <= room.width && free.height <= room.height) fitting++;
        const again = draw(open, { ways: free.ways });
        for (const key of ["x", "y", "w", "h"] as const) expect(again[key]).toEqual(free[key]);
      }),
      { numRuns: 60 },
    );
    expect(fitting).toBeGreaterThan(2); // some 12
  });

  test("opening a group leaves the order of the others", () => {
    fc.assert(
      fc.property(cases, ({ seed, n, groups }) => {
        const next = generator(seed);
        const { tree, draw } = engine(randomModule(n, Math.max(2, groups), next));
        const open = randomOpenness(tree, next);
        const before = draw(open);
        const closed = [...before.projection.nodes].filter(
          (v, k) => before.projection.kind[k] === ItemKind.Closed && v >= tree.instructions,
        );
        if (closed.length === 0) return;
        const chosen = closed[Math.floor(next() * closed.length)];
        open.open[chosen] = 1;
        const after = draw(open);
        const now = new Map([...after.projection.nodes].map((v, k) => [v, k]));
        const { childOffsets, children, nodes } = before.projection;
        for (let item = 0; item < nodes.length; item++) {
          for (let k = childOffsets[item]; k + 1 < childOffsets[item + 1]; k++) {
            for (let j = k + 1; j < childOffsets[item + 1]; j++) {
              const a = children[k];
              const b = children[j];
              const a2 = now.get(nodes[a]);
              const b2 = now.get(nodes[b]);
              if (a2 === undefined || b2 === undefined) continue;
              // Side by side before and after: the same one must still be on the left.
              if (before.y[a] !== before.y[b] || after.y[a2] !== after.y[b2]) continue;
              expect(Math.sign(after.x[a2] - after.x[b2])).toBe(
                Math.sign(before.x[a] - before.x[b]),
              );
            }
          }
        }
      }),
      { numRuns: 120 },
    );
  });

  test("work grows with the size, from 1,000 to 100,000 instructions", () => {
    const perNode = (layers: number): number => {
      const { tree, cache, draw } = engine(transformer(layers, 100));
      const picture = draw(everythingOpen(tree));
      // Equal layers are laid out once; `work` counts what a layout without the cache would do.
      expect(cache.hits).toBeGreaterThan(layers);
      return (cache.work + picture.edges.pointX.length) / picture.x.length;
    };
    const small = perNode(5);
    expect(perNode(50)).toBeLessThan(small * 2);
    expect(perNode(500)).toBeLessThan(small * 2);
  });

  test("one flat group of many thousand nodes keeps dummies in proportion", () => {
    const work = (n: number): number => {
      const { tree, cache, draw } = engine(randomModule(n, 0, generator(7)));
      draw(everythingOpen(tree));
      return cache.work / n;
    };
    const small = work(1_000);
    expect(work(20_000)).toBeLessThan(small * 3);
  });

  test("equal layers are laid out once", () => {
    const { tree, cache, draw } = engine(transformer(40, 30));
    draw(everythingOpen(tree));
    expect(cache.misses).toBeLessThan(12);
  });
});

describe("columns and packing", () => {
  test("a tall chain is cut into columns that suit a wide pane", () => {
    const spec = randomModule(1, 0, generator(1));
    spec.instructions = Array.from({ length: 60 }, (_, k) => ({
      name: `op${k}`,
      opcode: "add",
      group: 1,
      operands: k > 0 ? [k - 1] : [],
    }));
    const { tree, draw } = engine(spec);
    const picture = draw(everythingOpen(tree));
    expect(picture.height).toBeLessThan(1000);
    expect(picture.width / picture.height).toBeGreaterThan(0.7);
    check(picture);
  });

  test("packing overlaps nothing", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 300 })), {
          minLength: 1,
          maxLength: 40,
        }),
        fc.double({ min: 0.5, max: 3, noNaN: true }),
        (sizes, aspect) => {
          const w = Float64Array.from(sizes, (s) => s[0]);
          const h = Float64Array.from(sizes, (s) => s[1]);
          const turn = sizes.map((_, k) => k);
          const p = pack(w, h, turn, 10, 8, aspect);
          for (let a = 0; a < sizes.length; a++) {
            expect(p.x[a] + w[a]).toBeLessThanOrEqual(p.width);
            expect(p.y[a] + h[a]).toBeLessThanOrEqual(p.height);
            for (let b = a + 1; b < sizes.length; b++) {
              const apart =
                p.x[a] + w[a] <= p.x[b] ||
                p.x[b] + w[b] <= p.x[a] ||
                p.y[a] + h[a] <= p.y[b] ||
                p.y[b] + h[b] <= p.y[a];
              expect(apart).toBe(true);
            }
          }
        },
      ),
    );
  });
});
