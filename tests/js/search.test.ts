import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { decodeView, type ViewModel } from "../../js/base/model.ts";
import { parseQuery, Search } from "../../js/state/search/search.ts";
import { gzip, type Row, smallView } from "./small-view.ts";

const ROWS: Row[] = [
  { name: "p.1", opcode: "parameter", shape: "f32[8,4]", bytes: 128 },
  {
    name: "dot.3",
    opcode: "dot",
    shape: "f32[8,16]",
    bytes: 512,
    opName: "jit(step)/layer_0/MLP/dot_general",
    stack: ["train.py:31", "model.py:7"],
  },
  {
    name: "dot.30",
    opcode: "dot",
    shape: "bf16[8,16]",
    bytes: 256,
    opName: "jit(step)/layer_1/attention/dot_general",
    stack: ["train.py:31", "model.py:12"],
  },
  { name: "all-reduce.2", opcode: "all-reduce", shape: "f32[8,16]", bytes: 512, stack: ["é.py:3"] },
];

let model: ViewModel;
beforeAll(async () => {
  model = await decodeView(await gzip(smallView(ROWS)));
});
const names = (query: string) => [...new Search(model).find(query)].map((i) => model.name(i));

test.each([
  ["dot shape:f32[8", [null, "shape"], ["dot", "f32[8"]],
  ['scope:"a b" %dot.3', ["scope", null], ["a b", "dot.3"]],
  ["train.py:31", [null], ["train.py:31"]],
  ["op:dot source:x.py", ["opcode", "file"], ["dot", "x.py"]],
  ["  ", [], []],
])("parses %s", (query, fields, texts) => {
  const terms = parseQuery(query);
  expect(terms.map((t) => t.field)).toEqual(fields);
  expect(terms.map((t) => t.text)).toEqual(texts);
});

describe("finds", () => {
  test.each([
    ["dot.3", ["dot.3", "dot.30"]], // the exact name first
    ["%dot.30", ["dot.30"]],
    ["opcode:all", ["all-reduce.2"]],
    ["scope:mlp", ["dot.3"]],
    ["shape:f32[8,16]", ["dot.3", "all-reduce.2"]],
    ["shape:f16[8,16]", ["dot.30"]], // part of bf16
    ["shape:bf16", ["dot.30"]],
    ["file:train.py", ["dot.3", "dot.30"]],
    ["file:train.py:31", ["dot.3", "dot.30"]], // the outer frame counts
    ["model.py:12", ["dot.30"]],
    ["file:model.py:1", []], // a line, not the beginning of one
    ["file:é.py:3", ["all-reduce.2"]],
    ["opcode:dot scope:layer_1", ["dot.30"]],
    ["opcode:all-reduce", ["all-reduce.2"]],
    ["opcode:do", ["dot.3", "dot.30"]], // no opcode of that name: part of one
    ["line:31", ["dot.3", "dot.30"]],
    ["line:3", ["all-reduce.2"]],
    ["bytes>256", ["dot.3", "all-reduce.2"]],
    ["bytes<=0.25KiB", ["p.1", "dot.30"]],
    ["time>1ns", []], // nobody knows the time here
    ["opcode:dot -scope:mlp", ["dot.30"]],
    ["!dot", ["p.1", "all-reduce.2"]],
    ["!bytes>256", ["p.1", "dot.30"]],
    ["-reduce", ["all-reduce.2"]], // a word, not a negation
    ["/^dot\\.3$/", ["dot.3"]],
    ["name:/\\d\\d$/", ["dot.30"]],
    ["scope:/LAYER_[01]/ !/mlp/", ["dot.30"]],
    ["/(/", []], // no regular expression
    ["nothing-like-it", []],
    ["", []],
  ])("%s", (query, expected) => {
    expect(names(query)).toEqual(expected);
  });
  test("only inside one string, never across two", () => {
    // Strings are joined for speed: "…general" is followed by the next string's text.
    const joined = names("generaldot");
    expect(joined).toEqual([]);
  });
});

test("agrees with a slow twin on random words", () => {
  const { family, group } = model.instruction;
  const boxes = (i: number): string[] => {
    const out: string[] = [];
    for (let g = group[i]; g > 0; g = model.group.parent[g]) out.push(model.groupLabel(g));
    return out;
  };
  const functions = (i: number): string[] => {
    const out: string[] = [];
    const { frame, strings } = model;
    for (let f = model.instruction.frame[i]; f >= 0; f = frame.parent[f]) {
      out.push(strings.get(frame.function[f]));
    }
    return out;
  };
  const slow = (word: string) =>
    ROWS.map((r, i) => [r, i] as const)
      .filter(([r, i]) =>
        [
          r.name,
          r.opcode,
          r.shape,
          r.opName ?? "",
          ...(r.stack ?? []).map((f) => f.split(":")[0]),
          model.header.families[family[i]].label,
          ...boxes(i),
          ...functions(i),
        ]
          .join("\n")
          .toLowerCase()
          .includes(word),
      )
      .map(([, i]) => i);
  fc.assert(
    fc.property(fc.stringMatching(/^[a-z0-9.[\]_-]{1,4}$/), (word) => {
      const found = [...new Search(model).find(word)].sort((a, b) => a - b);
      expect(found).toEqual(slow(word));
    }),
  );
});

test("steps round the results in both directions", () => {
  const search = new Search(model);
  search.set("opcode:dot");
  expect([search.step(1), search.step(1), search.step(1)]).toEqual([1, 2, 1]);
  expect(search.step(-1)).toBe(2);
  search.set("zzz");
  expect(search.step(1)).toBe(-1);
});
