/** Linked highlighting: which places light up when one is pointed at. */
import { expect, test } from "vitest";
import { decodeStages } from "../../js/base/stages.ts";
import { parsed } from "../../js/panels/code/choice.ts";
import { Links } from "../../js/state/source/links.ts";
import { VIEW_VERSION } from "../../js/view.ts";
import { gzip, pack, Strings } from "./small-view.ts";

const STAGE = { notes: [], files: [], begin: 0, end: 0 };
/**
 *   source 0: a = f(x)      strand 0, a call       own %p        strand 2
 *   source 1: x @ w         strand 1               own %dot.1    strand 1, near 0
 *   stablehlo 0: call       strand 0               own %dot.2    strand 1, near 3
 *   stablehlo 1: dot        strand 1               own %fusion   strands 1, 2, near 0
 *   stablehlo 2: call       strand 3
 */
const PLACES: [line: number, strands: number[], near: number[]][] = [
  [0, [0], []],
  [1, [1], []],
  [0, [0], []],
  [1, [1], []],
  [2, [3], []],
  [0, [2], []],
  [1, [1], [0]],
  [2, [1], [3]],
  [4, [1, 2], [0]],
];

function block(change: (header: Record<string, unknown>) => void = () => undefined) {
  const strings = new Strings();
  const csr = (rows: number[][]) => {
    const offsets = [0];
    for (const row of rows) offsets.push(offsets[offsets.length - 1] + row.length);
    return [offsets, rows.flat()] as const;
  };
  const [so, sv] = csr(PLACES.map(([, s]) => s));
  const [no, nv] = csr(PLACES.map(([, , n]) => n));
  const text = "f(x)\nx @ w\ncall\ndot\ncall";
  const told = PLACES.map((_, k) => strings.id(k === 1 ? "`x @ w` became %dot." : ""));
  const header: Record<string, unknown> = {
    instructions: 5,
    exact: true,
    how: "exact",
    stages: [
      { ...STAGE, id: "source", title: "Source", own: false, first: 0, count: 2, end: 10 },
      {
        ...STAGE,
        id: "stablehlo",
        title: "StableHLO",
        own: false,
        first: 2,
        count: 3,
        begin: 11,
        end: text.length,
      },
      {
        ...STAGE,
        id: "optimized",
        title: "Optimised HLO",
        own: true,
        first: 5,
        count: 4,
        begin: text.length,
        end: text.length,
      },
    ],
  };
  change(header);
  return gzip(
    pack("HLOC", VIEW_VERSION, header, {
      "stage_text.bytes": ["u8", new TextEncoder().encode(text)],
      "source_row.number": ["u32", [1, 2]],
      "place.line": ["u32", PLACES.map(([line]) => line)],
      "place.told": ["u32", told],
      "place_strand.offsets": ["u32", so],
      "place_strand.values": ["u32", sv],
      "place_near.offsets": ["u32", no],
      "place_near.values": ["u32", nv],
      "strand.color": ["i32", [0, 1, -1, 0]],
      ...strings.columns(),
    }),
  );
}
const links = async () => new Links(await decodeStages(await block(), 5));
const sorted = (set: ReadonlySet<number>) => [...set].sort((a, b) => a - b);

test("a source line lights its operation in every stage, and no sibling of its own", async () => {
  const { lit, near } = (await links()).light([1]);
  expect(sorted(lit)).toEqual([1, 3, 6, 7, 8]);
  expect(sorted(near)).toEqual([]);
});

test("one instruction lights its line and operation; the call that led there is near", async () => {
  const { lit, near } = (await links()).light([6]);
  expect(sorted(lit)).toEqual([1, 3, 6]);
  expect(sorted(near)).toEqual([0, 2]);
});

test("a call lights itself; what it led to is near", async () => {
  const { lit, near } = (await links()).light([0]);
  expect(sorted(lit)).toEqual([0, 2]);
  expect(sorted(near)).toEqual([6, 8]);
});

test("several to several: a fusion lights the lines of all its parts", async () => {
  const { lit } = (await links()).light([8]);
  expect(sorted(lit)).toEqual([1, 3, 8]);
  const all = (await links()).light([5, 8]);
  expect(sorted(all.lit)).toEqual([1, 3, 5, 8]);
});

test("lines of a stage: near ones only where none is lit", async () => {
  const l = await links();
  const own = l.model.stages[2];
  expect(l.linesIn(own, l.light([1]))).toEqual([1, 2, 4]);
  expect(l.linesIn(own, l.light([0]))).toEqual([1, 4]);
});

test("colours of a place: each once, none for strands without one", async () => {
  const l = await links();
  expect(l.colors(8)).toEqual([1]);
  expect(l.colors(5)).toEqual([]);
});

test("texts and places of the block", async () => {
  const { model } = await links();
  expect(model.linesOf(model.stages[0])).toEqual(["f(x)", "x @ w"]);
  expect(model.placeAt(model.stages[2], 4)).toBe(8);
  expect(model.placeAt(model.stages[2], 3)).toBe(-1);
  expect(model.toldOf(1)).toBe("`x @ w` became %dot.");
});

test.each([
  ["another module", 6, () => undefined],
  [
    "a stage outside its text",
    5,
    (h: Record<string, unknown>) => {
      (h.stages as { end: number }[])[1].end = 999;
    },
  ],
  [
    "more places than there are",
    5,
    (h: Record<string, unknown>) => {
      (h.stages as { count: number }[])[2].count = 9;
    },
  ],
  [
    "no stages",
    5,
    (h: Record<string, unknown>) => {
      h.stages = 3;
    },
  ],
])("damaged data is refused: %s", async (_, instructions, change) => {
  await expect(decodeStages(await block(change as never), instructions as number)).rejects.toThrow(
    /damaged/,
  );
});

test("what Options.panes asks for, as far as it is there", async () => {
  const { stages } = (await links()).model;
  expect(parsed("", stages)).toBeNull();
  expect(parsed("jaxpr", stages)).toBeNull();
  expect(parsed("optimized, source,graph", stages)).toEqual({
    texts: ["source", "optimized"],
    graph: true,
  });
});
