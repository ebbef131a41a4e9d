/** Stepping through passes: what exists after each, and that boxes which stay do not move. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, inject, test } from "vitest";
import { Engine } from "../../js/draw/engine.ts";
import { Flows, lifeOf } from "../../js/draw/life.ts";
import { TextMetrics } from "../../js/graph/metrics.ts";
import type { Flow } from "../../js/graph/project/flow.ts";
import { ItemKind } from "../../js/graph/project/projection.ts";
import type { Scene } from "../../js/scene/scene.ts";
import { dashes } from "../../js/scene/surface.ts";
import { PassLoader } from "../../js/state/passes/loader.ts";
import { DiffKind, decodePasses, Life, type Passes } from "../../js/state/passes/passes.ts";
import type { Host, PassCost, PassEvents } from "../../js/view.ts";

const read = () =>
  decodePasses(new Uint8Array(readFileSync(join(inject("views"), "by_hand.passes"))));

const named = (p: Passes, name: string): number => {
  for (let i = 0; i < p.first.length; i++) if (p.model.name(i) === name) return i;
  throw new Error(`no ${name}`);
};

/** Names of what the picture shows at a row. */
async function shown(p: Passes, row: number) {
  const engine = new Engine(p.model, new TextMetrics(), 1200, 800);
  engine.setShown(false, true);
  engine.openAll(1000);
  const scene = engine.rebuild();
  const life = lifeOf(
    scene,
    {
      state: p.lives(row),
      operands: p.operandsAt(row),
      before: p.operandsAt(Math.max(0, row - 1)),
    },
    new Flows(p.model),
    engine,
  );
  const { nodes } = scene.picture.projection;
  const name = (item: number) => p.model.name(nodes[item]);
  const boxes = new Map<string, number>();
  for (let k = 1; k < scene.count; k++) {
    if (nodes[k] < p.first.length && life.items[k]) boxes.set(name(k), life.items[k]);
  }
  const arrows: [string, string, number][] = life.direct.map(([a, b, life]) => [
    name(a),
    name(b),
    life,
  ]);
  const { edges } = scene.picture;
  for (let e = 0; e < edges.count; e++) {
    if (life.edges[e]) arrows.push([name(edges.from[e]), name(edges.to[e]), life.edges[e]]);
  }
  return { boxes, arrows, life, scene };
}

describe("a row", () => {
  test("tells what was added, removed and changed", async () => {
    const p = await read();
    const life = (row: number, name: string) => p.lives(row)[named(p, name)];
    expect(life(0, "dot_general.5")).toBe(Life.Kept);
    expect(life(1, "dot_general.5")).toBe(Life.Changed);
    expect(life(2, "scaled")).toBe(Life.Removed);
    expect(life(3, "scaled")).toBe(Life.Absent);
    expect(life(3, "dot_general.5")).toBe(Life.Kept); // only its name is another
    expect(life(4, "copy.3")).toBe(Life.Added);
    expect(life(5, "tanh_neg_fusion")).toBe(Life.Added);
  });

  test("draws boxes and arrows of that pass alone", async () => {
    const p = await read();
    const first = await shown(p, 0);
    expect([...first.boxes.keys()].sort()).toEqual(["dot_general.5", "neg.9", "scaled", "tanh.7"]);
    expect(first.arrows).toContainEqual(["scaled", "dot_general.5", Life.Kept]);
    const algsimp = await shown(p, 1);
    expect(algsimp.arrows.map(([a, b]) => `${a}>${b}`)).not.toContain("scaled>dot_general.5");
    const layout = await shown(p, 4);
    expect(layout.boxes.get("copy.3")).toBe(Life.Added);
    expect(layout.arrows).toContainEqual(["dot_general.5", "copy.3", Life.Added]);
    expect(layout.arrows).toContainEqual(["copy.3", "tanh.7", Life.Added]);
    const fusion = await shown(p, 5);
    expect(fusion.boxes.get("tanh.7")).toBe(Life.Removed);
    expect(fusion.arrows).toContainEqual(["copy.3", "tanh.7", Life.Removed]);
    expect(fusion.arrows).toContainEqual(["tanh.7", "neg.9", Life.Removed]);
    expect(fusion.boxes.get("tanh_neg_fusion")).toBe(Life.Added);
  });

  test("shows no chip of another pass", async () => {
    const p = await read();
    const { life, scene } = await shown(p, 5);
    const { nodes } = scene.picture.projection;
    const at = (name: string) => nodes.indexOf(named(p, name));
    expect(life.chips(at("dot_general.5"), named(p, "x.0"))).toBe(true);
    expect(life.chips(at("scaled"), named(p, "one"))).toBe(false);
    const first = await shown(p, 0);
    expect(first.life.chips(at("dot_general.5"), named(p, "x.0"))).toBe(false);
  });

  test("never moves a box", async () => {
    const p = await read();
    const places = new Map<string, string>();
    for (let row = 0; row < p.rows.length; row++) {
      const { scene, boxes } = await shown(p, row);
      const { nodes } = scene.picture.projection;
      for (let k = 1; k < scene.count; k++) {
        const name = nodes[k] < p.first.length ? p.model.name(nodes[k]) : "";
        if (!boxes.has(name)) continue;
        const { x, y, w, h } = scene.rect(k);
        const at = `${x} ${y} ${w} ${h}`;
        expect(places.get(name) ?? at).toBe(at);
        places.set(name, at);
      }
    }
    expect(places.size).toBeGreaterThan(6);
  });
});

/**
 * Arrows drawn straight: 0 → 1 and 0 → 2 stay; 1 → 2 stays, or goes with an instruction that was in
 * the same box as 1; `users` and `sources` add further arrows.
 */
function straight(gone: boolean, users: number, sources: number) {
  const n = 4 + users + sources;
  const other = n - 1;
  const flow = (of: (i: number) => number[]): Flow => {
    const lists = Array.from({ length: n }, (_, i) => of(i));
    const offsets = new Uint32Array(n + 1);
    for (let i = 0; i < n; i++) offsets[i + 1] = offsets[i] + lists[i].length;
    const none = new Uint32Array(n + 1);
    return {
      hidden: new Uint8Array(n),
      offsets,
      sources: Uint32Array.from(lists.flat()),
      chipOffsets: none,
      chips: none,
      output: new Uint8Array(n),
    };
  };
  const last = Array.from({ length: sources }, (_, k) => 3 + users + k);
  const operands = (one: boolean) => (i: number) => {
    if (i === 2) return one ? [0, gone ? other : 1, ...last] : [0, ...last];
    return i === 1 || (i > 2 && i < 3 + users) ? [0] : [];
  };
  const before = { offsets: new Uint32Array(1), values: new Uint32Array(0) };
  const now = { ...before };
  const flows = {
    of: (o: unknown) => flow(operands(o === before || !gone)),
  } as unknown as Flows;
  const items = Array.from({ length: n }, (_, i) => i + 1);
  const scene = {
    count: n + 1,
    picture: {
      projection: {
        itemOfInstruction: items.map((k) => (k - 1 === other ? 2 : k)),
        parent: [-1, ...items.map(() => 0)],
        depth: [0, ...items.map(() => 1)],
        kind: [ItemKind.Open, ...items.map(() => ItemKind.Box)],
        nodes: [n, ...items.map((k) => k - 1)],
      },
      edges: { count: 0, from: [], to: [], pointOffsets: [0] },
    },
  } as unknown as Scene;
  const state = new Uint8Array(n).fill(Life.Kept);
  if (gone) state[other] = Life.Removed;
  const shown = { plumbing: false, moves: false };
  const { direct } = lifeOf(scene, { state, operands: now, before }, flows, shown);
  return direct.map(([a, b, life]) => `${a - 1}>${b - 1} ${life}`);
}

test.each([
  [0, 0],
  [5, 0],
  [0, 5],
])("only what still stands makes an arrow needless", (users, sources) => {
  const both = straight(false, users, sources);
  expect(both).not.toContain(`0>2 ${Life.Kept}`);
  expect(both).toContain(`1>2 ${Life.Kept}`);
  const one = straight(true, users, sources);
  expect(one).toContain(`0>2 ${Life.Kept}`);
  expect(one).toContain(`1>2 ${Life.Removed}`);
});

test("dashes keep their proportion to the line, which far zoom makes wide", () => {
  expect(dashes(1)).toEqual([4, 3]);
  expect(dashes(16)).toEqual([40, 30]);
});

test("an instruction tells its whole life", async () => {
  const p = await read();
  const dot = p.history(named(p, "dot_general.5"));
  expect(dot.map((d) => [d.row, d.changed])).toEqual([
    [0, []],
    [1, ["operands"]],
    [3, ["name"]],
    [4, ["layout"]],
  ]);
  expect(dot[0].line).toContain("%dot.1 = ");
  const fusion = p.partners(named(p, "tanh_neg_fusion"));
  expect(fusion.before.map((b) => p.model.name(b.instruction))).toContain("neg.9");
  expect(p.partners(named(p, "neg.9")).after.length).toBeGreaterThan(0);
});

test("the text of a row is its changes", async () => {
  const p = await read();
  const kinds = Array.from(p.diffKind.subarray(p.diffOffsets[4], p.diffOffsets[5]));
  expect(kinds.filter((k) => k === DiffKind.New)).toHaveLength(3);
  expect(kinds.filter((k) => k === DiffKind.Gone)).toHaveLength(2);
  expect(kinds[0]).toBe(DiffKind.Computation);
});

test("a block without passes, or a damaged one, is refused in words", async () => {
  const raw = new Uint8Array(readFileSync(join(inject("views"), "plain.view")));
  await expect(decodePasses(raw)).rejects.toThrow("it has no passes");
});

test("figures that arrive before the passes are there when these are first shown", async () => {
  const bytes = new Uint8Array(readFileSync(join(inject("views"), "by_hand.passes")));
  const cost = { shapes: "local", flops: 7, bytes_accessed: 8, peak_bytes: 9 } as PassCost;
  const host = {
    passes: async (told: PassEvents) => {
      told.cost(1, cost);
      told.ended("");
      return bytes;
    },
  } as unknown as Host;
  const loader = new PassLoader(host, new AbortController().signal);
  const seen: unknown[] = [];
  loader.on(() => {
    if (loader.passes) seen.push(loader.passes.rows[1].cost);
  }, new AbortController().signal);
  await loader.start();
  expect(seen).toEqual([cost]);
});
