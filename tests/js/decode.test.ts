import { describe, expect, test } from "vitest";
import { BadBlock, decodeBlock } from "../../js/base/decode.ts";
import { decodeAnalyses, decodeText, decodeView } from "../../js/base/model.ts";
import { perModel } from "../../js/state/members.ts";
import { VIEW_VERSION } from "../../js/view.ts";
import { gzip, pack, type Row, Strings, smallView } from "./small-view.ts";

const ROWS: Row[] = [
  { name: "p", opcode: "parameter", shape: "f32[4]", bytes: 16 },
  { name: "añb", opcode: "add", shape: "f32[4]", bytes: 16, operands: [0, 0] },
  { name: "t", opcode: "tanh", shape: "f32[4]", bytes: 16, operands: [1, 0] },
];

describe("the View block", () => {
  test("gives back names, operands and users, each user once", async () => {
    const model = await decodeView(await gzip(smallView(ROWS)));
    expect(model.name(1)).toBe("añb");
    expect([...model.operands.values]).toEqual([0, 0, 1, 0]);
    const { offsets, values } = model.users;
    expect([...values.subarray(offsets[0], offsets[1])]).toEqual([1, 2]);
    expect([...values.subarray(offsets[1], offsets[2])]).toEqual([2]);
    expect(model.groupKind(1)).toBe("entry");
  });
  test("can sit at any offset of its buffer", () => {
    const raw = smallView(ROWS);
    const moved = new Uint8Array(raw.length + 3);
    moved.set(raw, 3);
    const block = decodeBlock(moved.subarray(3), "HLOV", VIEW_VERSION);
    expect([...(block.columns.get("instruction.bytes") ?? [])]).toEqual([16, 16, 16]);
  });
  test.each([
    ["another format", () => new Uint8Array(40), /does not begin with HLOV/],
    ["an older version", () => pack("HLOV", 1, {}, {}), /older hloscope .*run the cell.* again/],
    ["a newer version", () => pack("HLOV", 99, {}, {}), /newer hloscope .*update hloscope/],
    ["a cut header", () => smallView(ROWS).subarray(0, 60), /inside its header/],
    ["a cut column", () => smallView(ROWS).subarray(0, -40), /inside column/],
  ])("says what is wrong with %s", (_, raw, message) => {
    expect(() => decodeBlock(raw(), "HLOV", VIEW_VERSION)).toThrow(BadBlock);
    expect(() => decodeBlock(raw(), "HLOV", VIEW_VERSION)).toThrow(message);
  });
  test("says when it cannot be unpacked", async () => {
    const whole = await gzip(smallView(ROWS));
    await expect(decodeView(whole.subarray(0, whole.length >> 1))).rejects.toThrow(BadBlock);
    await expect(decodeView(smallView(ROWS))).rejects.toThrow(/cannot be unpacked/);
  });
  test("names the column that is missing", async () => {
    const raw = pack("HLOV", VIEW_VERSION, {}, {});
    await expect(decodeView(await gzip(raw))).rejects.toThrow(/no column/);
  });
});

describe("the analyses block", () => {
  const block = async (instructions: number, names: string[]) => {
    const s = new Strings();
    const columns: Parameters<typeof pack>[3] = {
      "own.0": ["f64", [0, 4, 8]],
      "trace_run.device": ["u32", names.map((n) => s.id(n))],
      "trace_run.start": ["f64", names.map(() => 0)],
      "trace_run.seconds": ["f64", names.map(() => 1)],
    };
    const header = {
      instructions,
      summary: { flops: 12 },
      warnings: ["memory failed"],
      extras: { moves: { hardware: null } },
    };
    const raw = pack("HLOA", VIEW_VERSION, header, { ...columns, ...s.columns() }, [
      "trace_run.device",
    ]);
    return decodeAnalyses(await gzip(raw));
  };
  const texts = (model: Awaited<ReturnType<typeof decodeView>>) =>
    Array.from(model.column<Uint32Array>("trace_run.device"), (id) => model.strings.get(id));

  test("adds columns with their own strings, extras, summary and warnings", async () => {
    const model = await decodeView(await gzip(smallView(ROWS)));
    const known = model.strings.length;
    model.extend(await block(3, ["all-reduce", "", "añb", "all-reduce"]));
    expect(texts(model)).toEqual(["all-reduce", "", "añb", "all-reduce"]);
    expect(model.strings.get(known - 1)).not.toBe("");
    expect(model.name(1)).toBe("añb");
    expect([...model.column("own.0")]).toEqual([0, 4, 8]);
    expect(model.header.summary.flops).toBe(12);
    expect(model.header.summary.module).toBe("m");
    expect(model.header.extras.moves).toEqual({ hardware: null });
    expect(model.header.warnings).toEqual(["memory failed"]);
  });
  test("refuses those of another module", async () => {
    const model = await decodeView(await gzip(smallView(ROWS)));
    const other = await block(4, ["x"]);
    expect(() => model.extend(other)).toThrow(/changed/);
    expect(model.optional("own.0")).toBeNull();
  });
  test("what was null is asked again, what was found is kept", async () => {
    const model = await decodeView(await gzip(smallView(ROWS)));
    let asked = 0;
    const own = perModel((m) => {
      asked++;
      return m.optional("own.0");
    });
    expect([own(model), own(model), asked]).toEqual([null, null, 1]);
    model.extend(await block(3, []));
    expect(own(model)).toEqual(own(model));
    expect([own(model)?.length, asked]).toEqual([3, 2]);
  });
});

test("the text block gives lines and attributes by instruction", async () => {
  const text = new TextEncoder().encode("HloModule m\n  a = f32[] x()\n  é = f32[] y(a), k=v\n");
  const s = new Strings();
  const raw = pack(
    "HLOT",
    VIEW_VERSION,
    {},
    {
      "text.bytes": ["u8", text],
      "line.instruction_begin": ["u32", [12, 28, 0xffffffff]],
      "line.instruction_end": ["u32", [27, text.length - 1, 0]],
      "line.computation_begin": ["u32", [0]],
      "line.computation_end": ["u32", [text.length]],
      "attribute.offsets": ["u32", [0, 0, 1, 1]],
      "attribute.key": ["u32", [s.id("k")]],
      "attribute.value": ["u32", [s.id("v")]],
      ...s.columns(),
    },
  );
  const model = await decodeText(await gzip(raw));
  expect(model.instruction(0)).toBe("  a = f32[] x()");
  expect(model.instruction(1)).toBe("  é = f32[] y(a), k=v");
  expect(model.instruction(2)).toBe("");
  expect(model.attributesOf(0)).toEqual([]);
  expect(model.attributesOf(1)).toEqual([["k", "v"]]);
});
