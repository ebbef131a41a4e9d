import { beforeEach, expect, test } from "vitest";
import { decodeView, type ViewModel } from "../../js/base/model.ts";
import { GROUPINGS, type ProfileRow, profileRows } from "../../js/state/cost/op-profile.ts";
import { type GroupRow, gzip, type Row, smallView } from "./small-view.ts";

const ROWS: Row[] = [
  { name: "p.1", opcode: "parameter", shape: "f32[8,4]", bytes: 128 },
  { name: "dot.3", opcode: "dot", shape: "f32[8,16]", bytes: 512, stack: ["a/train.py:31"] },
  { name: "dot.30", opcode: "dot", shape: "bf16[8,16]", bytes: 256, stack: ["a/train.py:31"] },
  { name: "sin.2", opcode: "sine", shape: "f32[8,16]", bytes: 512, stack: ["a/model.py:3"] },
];

let model: ViewModel;
beforeEach(async () => {
  model = await decodeView(await gzip(smallView(ROWS)));
});
const metrics = () => [
  { id: "time", label: "Time", unit: "s", values: [Number.NaN, 3, 4, 1] },
  { id: "bytes", label: "Bytes", unit: "B", values: model.instruction.bytes },
];

test.each(GROUPINGS)("by %s the rows add up to the program, and to what is inside them", (by) => {
  const rows = profileRows(model, metrics(), by, true);
  const sum = (list: ProfileRow[], m: number) => list.reduce((s, r) => s + r.sums[m], 0);
  expect(sum(rows, 0)).toBe(8); // what is unknown adds nothing
  expect(sum(rows, 1)).toBe(128 + 512 + 256 + 512);
  const check = (row: ProfileRow) => {
    const inside = row.inside?.() ?? [];
    if (!inside.length) return;
    expect(sum(inside, 0)).toBeCloseTo(row.sums[0]);
    for (const each of inside) check(each);
  };
  for (const row of rows) check(row);
});

test("a scope has the sums of the scopes in it", async () => {
  const scopes: GroupRow[] = [
    { label: "layer", kind: "scope", parent: 1 },
    { label: "mlp", kind: "scope", parent: 2 },
  ];
  const rows = ROWS.map((row, k) => ({ ...row, group: [1, 2, 3, 3][k] }));
  model = await decodeView(await gzip(smallView(rows, scopes)));
  const [main] = profileRows(model, metrics(), "scope", true);
  const layer = main.inside?.().find((r) => r.label === "layer");
  expect(layer?.sums).toEqual([8, 512 + 256 + 512]);
});

test("lines are named by file and line, kinds by family and opcode", () => {
  const lines = profileRows(model, metrics(), "line", true);
  expect(lines.map((r) => [r.label, r.count])).toEqual([
    ["no line", 1],
    ["train.py:31", 2],
    ["model.py:3", 1],
  ]);
  expect(lines[1].instructions()).toEqual([1, 2]);
  const kinds = profileRows(model, metrics(), "kind", true);
  expect(kinds.reduce((sum, r) => sum + r.count, 0)).toBe(4);
});
