/** Marks on edges go where the value is drawn: on lines, chips, closed groups. */
import { expect, test } from "vitest";
import { Engine } from "../../js/draw/engine.ts";
import { CHIP_HEIGHT, SIGN, TextMetrics } from "../../js/graph/metrics.ts";
import { ItemKind } from "../../js/graph/project/projection.ts";
import { edgeMarks, markAt } from "../../js/scene/marks.ts";
import { Flag } from "../../js/view.ts";
import { buildModel, loop, type ModuleSpec, ONE_LAYER } from "./fixtures.ts";

/** parameter → sin → [group: copy → cos] → dot */
const SPEC: ModuleSpec = {
  groups: ONE_LAYER,
  instructions: [
    { name: "p", opcode: "parameter", group: 1, flags: Flag.Parameter },
    { name: "sin", opcode: "sine", group: 1, operands: [0] },
    { name: "get", opcode: "bitcast", group: 1, operands: [1], flags: Flag.Plumbing },
    { name: "copy", opcode: "all-gather", group: 2, operands: [2] },
    { name: "cos", opcode: "cosine", group: 2, operands: [3] },
    { name: "dot", opcode: "dot", group: 1, operands: [4, 0] },
  ],
};

function engine(): Engine {
  return new Engine(buildModel(SPEC), new TextMetrics(), 900, 600);
}

test("on the line, looked at through plumbing", () => {
  const e = engine();
  e.openAll(100);
  const scene = e.rebuild();
  const [mark] = edgeMarks(scene, [{ source: 2, target: 3, text: "a → b" }]);
  const consumer = scene.picture.projection.itemOfInstruction[3];
  expect(scene.picture.projection.kind[mark.item]).not.toBe(ItemKind.Closed);
  // The edge is lifted to the container around the consumer, and ends at its top.
  const top = scene.rect(scene.picture.projection.parent[consumer]).y;
  expect(mark.y).toBeCloseTo(top - 13);
  expect(markAt([mark], mark.x + 3, mark.y - 3, 5)).toBe(mark);
  expect(markAt([mark], mark.x + 30, mark.y, 5)).toBeNull();
});

test("at a parameter's chip", () => {
  const e = engine();
  e.openAll(100);
  const scene = e.rebuild();
  const [mark] = edgeMarks(scene, [{ source: 0, target: 5, text: "a → b" }]);
  const item = scene.picture.projection.itemOfInstruction[5];
  const chip = scene.picture.text[item].chips.find((c) => c.value === 0);
  expect(chip).toBeDefined();
  expect(mark.x).toBeCloseTo(scene.rect(item).x + (chip?.x ?? 0));
  expect(mark.y).toBeGreaterThan(scene.rect(item).y);
});

test("at the group that hides both ends, once", () => {
  const e = engine();
  e.openAll(100);
  e.set({ kind: "group", index: 2 }, false);
  const scene = e.rebuild();
  const notes = ["a → b", "b → c", "a → b"].map((text) => ({ source: 3, target: 4, text }));
  const marks = edgeMarks(scene, notes);
  expect(marks).toHaveLength(1);
  expect(marks[0].texts).toEqual(["a → b", "b → c"]);
  expect(scene.picture.projection.kind[marks[0].item]).toBe(ItemKind.Closed);
});

test("what moves inside of a closed group is one mark there, each move counted once", () => {
  const e = engine();
  e.openAll(100);
  e.set({ kind: "group", index: 2 }, false);
  const scene = e.rebuild();
  const moved = { source: 3, target: 4, bytes: 10, exposed: 1 };
  const marks = edgeMarks(scene, [
    { ...moved, text: "a", kind: "hidden", move: 3, exposed: 0 },
    { ...moved, text: "a", kind: "hidden", move: 3, exposed: 0 }, // another that reads it
    { ...moved, text: "b", kind: "exposed", move: 4 },
  ]);
  expect(marks).toHaveLength(1);
  expect(marks[0]).toMatchObject({ kind: "exposed", count: 2, bytes: 20, exposed: 1 });
  const box = scene.rect(marks[0].item);
  expect(marks[0].x).toBeCloseTo(box.x + box.w);
  expect(marks[0].y).toBeLessThan(box.y + box.h);
  // and an open group has no mark for a move that is hidden
  e.set({ kind: "group", index: 2 }, true);
  const open = edgeMarks(e.rebuild(), [{ ...moved, text: "a", kind: "hidden", move: 3 }]);
  expect(open.every((m) => m.item !== marks[0].item || m.y < box.y + 60)).toBe(true);
});

test("at a chip of an open loop's title, which stands at its right end", () => {
  const e = new Engine(buildModel(loop()), new TextMetrics(), 900, 600);
  e.openAll(100);
  const scene = e.rebuild();
  const moved = { source: 0, target: 1, text: "p", kind: "hidden", move: 0 } as const;
  const [mark] = edgeMarks(scene, [moved]);
  const item = scene.picture.projection.itemOfInstruction[1];
  expect(scene.isOpen(item)).toBe(true);
  const [chip] = scene.picture.text[item].chips;
  const right = scene.rect(item).x + scene.rect(item).w;
  expect(mark.x).toBeCloseTo(right - SIGN - 8 - chip.w);
  expect(scene.chipAt(item, mark.x + 4, mark.y, CHIP_HEIGHT)).toBe(chip);
  // at its corner: words begin below and to the right
  expect(mark.y).toBeCloseTo(scene.picture.y[item] + scene.chipShift(item)[1] + chip.y);
});
