import { describe, expect, test } from "vitest";
import * as format from "../../js/base/format.ts";
import { decodeText, decodeView } from "../../js/base/model.ts";
import { COLORINGS } from "../../js/panels/colorings/colorings.ts";
import { splitOpName } from "../../js/panels/details/instruction.ts";
import { explainShape } from "../../js/panels/details/shape-words.ts";
import { stackOf } from "../../js/panels/parts/source.ts";
import { TextLines } from "../../js/panels/parts/text/lines.ts";
import { tokens } from "../../js/panels/parts/text/tokens.ts";
import { groupPath, instructionsOf, nameOf } from "../../js/state/members.ts";
import { Store } from "../../js/state/store.ts";
import { VIEW_VERSION } from "../../js/view.ts";
import { gzip, pack, type Row, Strings, smallView } from "./small-view.ts";

const view = async (...given: Parameters<typeof smallView>) =>
  decodeView(await gzip(smallView(...given)));
const op = (name: string, bytes: number, group?: number, stack?: string[]): Row => ({
  name,
  opcode: name.split(".")[0],
  shape: "f32[4]",
  bytes,
  group,
  stack,
});

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1 KiB"],
  [194_152_460, "185 MiB"],
  [1024 * 1024 - 1, "1 MiB"],
  [Number.NaN, "unknown"],
])("%d bytes are %s", (value, text) => {
  expect(format.bytes(value)).toBe(text);
});
test.each([
  [1.27e9, "FLOP", "1.27 GFLOP"],
  [12, "FLOP", "12 FLOP"],
  [0.00042, "s", "420 µs"],
  [2048, "B", "2 KiB"],
  [12345, "", "12,345"],
])("%d in %s is %s", (value, unit, text) => {
  expect(format.quantity(value, unit)).toBe(text);
});

describe("shapes in words", () => {
  test("a TPU layout", () => {
    expect(explainShape("bf16[8,128]{0,1:T(8,128)(2,1)S(1)}")).toEqual([
      ["Element type", "bf16"],
      ["Dimensions", "8 × 128"],
      ["Layout", "dimension 0 varies fastest, then 1"],
      ["Tiles", "8 × 128, then 2 × 1"],
      ["Memory space", "S(1), on-chip (VMEM on TPU)"],
    ]);
  });
  test("a scalar, a row-major array, a tuple, nonsense", () => {
    expect(explainShape("f32[]")).toEqual([
      ["Element type", "f32"],
      ["Dimensions", "scalar"],
    ]);
    expect(explainShape("f32[2,3]{1,0}")).toContainEqual(["Layout", "row-major"]);
    expect(explainShape("(f32[2], s32[])")).toEqual([["Kind", "tuple"]]);
    expect(explainShape("<b>")).toEqual([]);
  });
});

test("op_name is cut at slashes outside brackets", () => {
  expect(splitOpName("jit(f)/transpose(jvp(a/b))/dot[x/y]")).toEqual([
    "jit(f)",
    "transpose(jvp(a/b))",
    "dot[x/y]",
  ]);
});

test("stacks come innermost first", async () => {
  const model = await view([op("a", 4, 1, ["outer.py:1", "inner.py:2"])]);
  expect(stackOf(model, 0).map((f) => `${f.file}:${f.line}`)).toEqual(["inner.py:2", "outer.py:1"]);
});

test("tokens cover the line exactly and mark what they are", () => {
  const line =
    '  ROOT %dot.3 = f32[8,4]{1,0} dot(%a, %b), lhs={1}, metadata={op_name="x/%y" source_line=3}';
  const found = tokens(line);
  expect(found.map(([, text]) => text).join("")).toBe(line);
  const of = (kind: string) => found.filter(([k]) => k === kind).map(([, text]) => text);
  expect(of("name")).toEqual(["%dot.3", "%a", "%b"]);
  expect(of("opcode")).toEqual(["dot"]);
  expect(of("shape")).toEqual(["f32[8,4]{1,0}"]);
  expect(of("string")).toEqual(['"x/%y"']);
  expect(of("word")).toEqual(["ROOT"]);
});

test("text lines are found by byte, linked to instructions and searched", async () => {
  const source = "HloModule é\n\nENTRY m {\n  %a = f32[] x()\n  ROOT %b = f32[] y(%a)\n}\n";
  const bytes = new TextEncoder().encode(source);
  const at = (needle: string) => new TextEncoder().encode(source.split(needle)[0]).length;
  const s = new Strings();
  const text = await decodeText(
    await gzip(
      pack(
        "HLOT",
        VIEW_VERSION,
        {},
        {
          "text.bytes": ["u8", bytes],
          "line.instruction_begin": ["u32", [at("  %a ="), at("  ROOT")]],
          "line.instruction_end": ["u32", [at("\n  ROOT"), at("\n}")]],
          "line.computation_begin": ["u32", [at("ENTRY")]],
          "line.computation_end": ["u32", [bytes.length]],
          "attribute.offsets": ["u32", [0, 0, 0]],
          "attribute.key": ["u32", []],
          "attribute.value": ["u32", []],
          ...s.columns(),
        },
      ),
    ),
  );
  const lines = new TextLines(text);
  expect(lines.count).toBe(6);
  expect(Array.from({ length: 6 }, (_, k) => lines.line(k))).toEqual(
    source.split("\n").slice(0, 6),
  );
  expect(lines.lineOfInstruction(1)).toBe(4);
  expect([2, 3, 4, 5].map((k) => lines.instruction(k))).toEqual([-1, 0, 1, -1]);
  const never = new AbortController().signal;
  expect(await lines.find("%A", 10, never)).toEqual([3, 4]);
  expect(await lines.find("%a", 1, never)).toEqual([3]);
  expect(await lines.find("", 10, never)).toEqual([]);
});

describe("colourings", () => {
  test("scopes go down to where the program divides", async () => {
    const model = await view(
      [op("a", 4, 3), op("b", 4, 3), op("c", 4, 4), op("d", 4, 4), op("e", 4, 2)],
      [
        { label: "jit(step)", kind: "scope", parent: 1 },
        { label: "forward", kind: "scope", parent: 2 },
        { label: "backward", kind: "scope", parent: 2 },
      ],
    );
    const scope = COLORINGS.find((c) => c.id === "scope");
    expect(scope?.categories?.(model)).toEqual(["forward", "backward", "everything else"]);
    expect(Array.from(scope?.values(model) ?? [])).toEqual([0, 0, 1, 1, 2]);
  });
});

test("members and paths of groups and folds", async () => {
  const model = await view(
    [op("a", 4, 2), op("b", 4, 3), op("c", 4)],
    [
      { label: "l0", kind: "scope", parent: 1, fold: 0 },
      { label: "l1", kind: "scope", parent: 1, fold: 0 },
    ],
    [[2, 3]],
  );
  expect(instructionsOf(model, { kind: "fold", index: 0 })).toEqual([0, 1]);
  expect(instructionsOf(model, { kind: "group", index: 1 })).toEqual([0, 1, 2]);
  expect(instructionsOf(model, { kind: "computation", index: 0 })).toEqual([0, 1, 2]);
  expect(groupPath(model, { kind: "instruction", index: 1 })).toEqual([1, 3]);
  expect(nameOf(model, { kind: "fold", index: 0 })).toBe("fold_0");
});

test("the store walks back and forward, and reports each change once", async () => {
  const store = new Store(await view([op("a", 4), op("b", 4)]));
  let told = 0;
  store.on("selection", () => told++);
  store.selectInstruction(0);
  store.selectInstruction(0);
  store.selectInstruction(1);
  expect(told).toBe(2);
  expect(store.previousInstruction).toBe(0);
  expect([store.back(), store.get("selection").index, store.canForward]).toEqual([true, 0, true]);
  expect([store.forward(), store.get("selection").index]).toEqual([true, 1]);
  store.back();
  store.selectInstruction(1);
  expect(store.canForward).toBe(false);
});

test("a listener that another one has ended is told no more", async () => {
  const store = new Store(await view([op("a", 4)]));
  const told: string[] = [];
  const panel = new AbortController();
  store.on("analyses", () => panel.abort());
  store.on("analyses", () => told.push("closed panel"), panel.signal);
  store.on("analyses", () => told.push("open panel"));
  store.extended();
  expect(told).toEqual(["open panel"]);
});
