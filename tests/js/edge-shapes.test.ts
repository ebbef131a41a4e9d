/** Shape labels beside edges: each of a single value, shown once, and overlapping nothing. */
import { expect, test } from "vitest";
import { Engine } from "../../js/draw/engine.ts";
import { TextMetrics } from "../../js/graph/metrics.ts";
import { ItemKind } from "../../js/graph/project/projection.ts";
import { EDGE_SHAPE_SIZE, type EdgeShape, EdgeShapes } from "../../js/scene/edge-shapes.ts";
import type { Scene } from "../../js/scene/scene.ts";
import { Flag } from "../../js/view.ts";
import {
  buildModel,
  generator,
  type ModuleSpec,
  ONE_LAYER,
  randomModule,
  transformer,
} from "./fixtures.ts";

const METRICS = new TextMetrics();

function sceneOf(spec: ModuleSpec, open = true): Scene {
  const engine = new Engine(buildModel(spec), METRICS, 900, 600);
  if (open) engine.openAll(400);
  return engine.rebuild();
}

function shapesOf(scene: Scene, view = { x: -1e6, y: -1e6, w: 2e6, h: 2e6 }): EdgeShape[] {
  return new EdgeShapes(scene, METRICS, []).in(view);
}

/** sin → [group: cos → tan] → add, with sin used twice. */
const SPEC: ModuleSpec = {
  groups: ONE_LAYER,
  instructions: [
    { name: "p", opcode: "parameter", group: 1, flags: Flag.Parameter },
    { name: "sin", opcode: "sine", group: 1, operands: [0], shape: "f32[8,16]" },
    { name: "cos", opcode: "cosine", group: 2, operands: [1], shape: "f32[8,32]" },
    { name: "tan", opcode: "tan", group: 2, operands: [2], shape: "bf16[8,64]" },
    { name: "add", opcode: "add", group: 1, operands: [3, 1], shape: "f32[8,16]" },
  ],
};

test("a value's shape stands below where it comes from, once however many use it", () => {
  const found = shapesOf(sceneOf(SPEC));
  const texts = found.map((s) => s.text);
  expect(texts).toContain("f32[8,32]");
  expect(texts.filter((t) => t === "f32[8,16]").length).toBeLessThanOrEqual(1);
  expect(new Set(texts).size).toBe(texts.length);
});

test("a closed group says what comes out of it", () => {
  const engine = new Engine(buildModel(SPEC), METRICS, 900, 600);
  engine.openAll(100);
  engine.set({ kind: "group", index: 2 }, false);
  const scene = engine.rebuild();
  const out = shapesOf(scene).find((s) => s.text === "bf16[8,64]");
  expect(out).toBeDefined();
  expect(scene.picture.projection.kind[out?.item ?? 0]).toBe(ItemKind.Closed);
  expect(out?.inBox).toBe(false);
});

test("an edge of several values, or of a tuple, says none", () => {
  const two: ModuleSpec = {
    groups: SPEC.groups,
    instructions: [
      ...SPEC.instructions.slice(0, 2),
      { name: "cos", opcode: "cosine", group: 2, operands: [1], shape: "f32[8,32]" },
      { name: "tan", opcode: "tan", group: 2, operands: [1], shape: "bf16[8,64]" },
      { name: "both", opcode: "custom-call", group: 1, operands: [2, 3], shape: "(f32[], f32[2])" },
      { name: "end", opcode: "sine", group: 1, operands: [4], shape: "f32[2]" },
    ],
  };
  const engine = new Engine(buildModel(two), METRICS, 900, 600);
  engine.openAll(100);
  engine.set({ kind: "group", index: 2 }, false);
  const texts = shapesOf(engine.rebuild()).map((s) => s.text);
  expect(texts).not.toContain("f32[8,32]");
  expect(texts).not.toContain("bf16[8,64]");
  expect(texts).not.toContain("(f32[], f32[2])");
});

test("words stand over no box and no other words, in any picture", () => {
  const specs = [
    transformer(3, 8),
    ...[1, 2, 3, 4, 5].map((n) => randomModule(120, 9, generator(n))),
  ];
  let said = 0;
  for (const spec of specs) {
    const scene = sceneOf(spec);
    const { picture } = scene;
    const rects = shapesOf(scene).map((s) => ({
      x: s.x,
      y: s.y - EDGE_SHAPE_SIZE / 2,
      w: METRICS.width(s.text, EDGE_SHAPE_SIZE),
      h: EDGE_SHAPE_SIZE,
    }));
    said += rects.length;
    const meet = (a: (typeof rects)[0], b: (typeof rects)[0]): boolean =>
      a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
    for (const [n, r] of rects.entries()) {
      for (const other of rects.slice(n + 1)) expect(meet(r, other)).toBe(false);
      for (const item of scene.itemsIn(r)) {
        if (picture.projection.kind[item] === ItemKind.Open) continue;
        expect(meet(r, scene.rect(item))).toBe(false);
      }
    }
  }
  expect(said).toBeGreaterThan(10);
});

test("what is out of sight is not looked at", () => {
  const scene = sceneOf(transformer(3, 8));
  expect(shapesOf(scene, { x: -500, y: -500, w: 10, h: 10 })).toEqual([]);
});
