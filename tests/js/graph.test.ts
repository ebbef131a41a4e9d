import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { markBackEdges } from "../../js/graph/layout/cycles.ts";
import { EdgeKind } from "../../js/graph/layout/edges.ts";
import { prepareLocal } from "../../js/graph/layout/local.ts";
import { buildFlow, Hidden } from "../../js/graph/project/flow.ts";
import { Openness, weights } from "../../js/graph/project/openness.ts";
import { ItemKind, type Projection, project } from "../../js/graph/project/projection.ts";
import { Tree } from "../../js/graph/project/tree.ts";
import {
  FamilyCounts,
  itemLabel,
  joinNames,
  stackLabel,
  summary,
} from "../../js/graph/project/words.ts";
import { instructionsOf } from "../../js/state/members.ts";
import {
  buildModel,
  generator,
  loop,
  type ModuleSpec,
  randomModule,
  transformer,
} from "./fixtures.ts";

function setup(spec: ModuleSpec, plumbing = false) {
  const model = buildModel(spec);
  const tree = new Tree(model);
  const flow = buildFlow(model, plumbing);
  const weight = weights(tree, flow);
  return { model, tree, flow, weight };
}

function names(s: ReturnType<typeof setup>, p: Projection, item: number): string[] {
  const out: string[] = [];
  for (let k = p.childOffsets[item]; k < p.childOffsets[item + 1]; k++) {
    const node = p.nodes[p.children[k]];
    if (node < s.tree.instructions) out.push(s.model.name(node));
    else if (node < s.tree.stacks) out.push(s.model.groupLabel(node - s.tree.instructions));
    else out.push(stackLabel(s.tree, node - s.tree.stacks, p.stackEnd[p.children[k]]));
  }
  return out;
}

describe("flow", () => {
  test("parameters are chips, plumbing is looked through, the root tuple marks outputs", () => {
    const s = setup({
      groups: [
        { parent: -1, kind: "module", label: "m" },
        { parent: 0, kind: "entry", label: "e" },
      ],
      instructions: [
        { name: "p", opcode: "parameter", group: 1, flags: 4 },
        { name: "gte", opcode: "get-tuple-element", group: 1, operands: [0], flags: 8 },
        { name: "add", opcode: "add", group: 1, operands: [1] },
        { name: "cast", opcode: "bitcast", group: 1, operands: [2], flags: 8 },
        { name: "mul", opcode: "multiply", group: 1, operands: [3, 2] },
        { name: "root", opcode: "tuple", group: 1, operands: [4, 3], flags: 9 },
      ],
      computations: [{ name: "main", root: 5, group: 1 }],
    });
    const sources = (i: number) => [
      ...s.flow.sources.subarray(s.flow.offsets[i], s.flow.offsets[i + 1]),
    ];
    expect(sources(4)).toEqual([2]);
    // The chip names the element, not the tuple it comes from.
    expect([...s.flow.chips.subarray(s.flow.chipOffsets[2], s.flow.chipOffsets[3])]).toEqual([1]);
    expect([...s.flow.output]).toEqual([0, 0, 1, 1, 1, 0]);
    expect(buildFlow(s.model, true).hidden[3]).toBe(Hidden.No);
  });

  test("a tuple used all over is not multiplied out", () => {
    const instructions = [];
    for (let k = 0; k < 20; k++) instructions.push({ name: `a${k}`, opcode: "add", group: 1 });
    const all = instructions.map((_, k) => k);
    instructions.push({ name: "t", opcode: "tuple", group: 1, operands: all, flags: 8 });
    for (let k = 0; k < 20; k++) {
      instructions.push({ name: `u${k}`, opcode: "add", group: 1, operands: [20] });
    }
    const s = setup({
      groups: [
        { parent: -1, kind: "module", label: "m" },
        { parent: 0, kind: "entry", label: "e" },
      ],
      instructions,
    });
    expect(s.flow.hidden[20]).toBe(Hidden.No);
    expect(s.flow.sources.length).toBe(40);
  });
});

test("an element of a tuple is what was put there", () => {
  const s = setup({
    groups: [
      { parent: -1, kind: "module", label: "m" },
      { parent: 0, kind: "entry", label: "e" },
    ],
    instructions: [
      { name: "a", opcode: "add", group: 1 },
      { name: "b", opcode: "add", group: 1 },
      { name: "t", opcode: "tuple", group: 1, operands: [0, 1], flags: 8 },
      {
        name: "g",
        opcode: "get-tuple-element",
        label: "element 1",
        element: 1,
        group: 1,
        operands: [2],
        flags: 8,
      },
      { name: "u", opcode: "negate", group: 1, operands: [3] },
    ],
  });
  expect([...s.flow.sources.subarray(s.flow.offsets[4], s.flow.offsets[5])]).toEqual([1]);
});

describe("projection", () => {
  test("a closed fold is one box, and a member can stand alone", () => {
    const s = setup(transformer(8, 10));
    const open = new Openness(s.tree);
    open.open[s.tree.node(1)] = 1;
    open.open[s.tree.node(2)] = 1;
    let p = project(s.tree, s.flow, s.weight, open);
    const forward = p.itemOfGroup[2];
    expect(names(s, p, forward)).toEqual(["x", "layer_[0..7]"]);
    const member = s.model.fold.members.values[3];
    open.uncover(s.tree.node(member));
    p = project(s.tree, s.flow, s.weight, open);
    expect(names(s, p, p.itemOfGroup[2])).toEqual(["x", "layer_[0..2]", "layer_3", "layer_[4..7]"]);
    open.setApart(0, true);
    p = project(s.tree, s.flow, s.weight, open);
    expect(names(s, p, p.itemOfGroup[2])).toHaveLength(9);
  });

  test("an open fold shows what is in its first member, for all of them", () => {
    const s = setup(transformer(8, 10));
    const open = new Openness(s.tree);
    for (const g of [1, 2]) open.open[s.tree.node(g)] = 1;
    open.setFold(0, true);
    const p = project(s.tree, s.flow, s.weight, open);
    expect(names(s, p, p.itemOfGroup[2])).toEqual(["x", "layer_[0..7]"]);
    const members = [...s.model.fold.members.values.subarray(0, 8)];
    const frame = p.itemOfGroup[members[0]];
    expect(p.kind[frame]).toBe(ItemKind.Open);
    expect(itemLabel(s.tree, p, frame)).toBe("layer_[0..7] ×8");
    expect(members.map((g) => p.itemOfGroup[g])).toEqual(Array(8).fill(frame));
    const inside = instructionsOf(s.model, { kind: "group", index: members[0] });
    expect(names(s, p, frame)).toEqual(inside.map((i) => s.model.name(i)));
    // Values of the others come from the frame and go to it.
    const other = instructionsOf(s.model, { kind: "group", index: members[5] });
    expect(other.map((i) => p.itemOfInstruction[i])).toEqual(other.map(() => frame));
    expect([...p.inFrom.subarray(p.inOffsets[frame], p.inOffsets[frame + 1])]).toEqual([
      p.children[p.childOffsets[p.itemOfGroup[2]]],
    ]);
    // What is in the first one is revealed where it is; another one is taken out.
    expect(open.uncover(inside[0])).toBe(false);
    expect(open.uncover(other[0])).toBe(true);
    const q = project(s.tree, s.flow, s.weight, open);
    expect(names(s, q, q.itemOfGroup[2])).toEqual(["x", "layer_[0..4]", "layer_5", "layer_[6..7]"]);
    open.setFold(0, false);
    const closed = project(s.tree, s.flow, s.weight, open);
    expect(names(s, closed, closed.itemOfGroup[2])).toEqual(["x", "layer_[0..7]"]);
    expect(closed.kind[closed.itemOfGroup[members[0]]]).toBe(ItemKind.Stack);
  });

  test("a loop opens into its body, without a plain condition, a fusion into what it holds", () => {
    const s = setup(loop());
    const open = new Openness(s.tree);
    for (const g of [1, 2]) open.open[s.tree.node(g)] = 1;
    open.open[1] = 1;
    open.open[4] = 1;
    const p = project(s.tree, s.flow, s.weight, open);
    const at = p.itemOfInstruction[1];
    expect(p.kind[at]).toBe(ItemKind.Open);
    expect(names(s, p, at)).toEqual(["fusion", "dot"]);
    expect(names(s, p, p.itemOfInstruction[4])).toEqual(["exp", "tanh"]);
    // The dot uses the fusion's value: one edge between siblings in the body.
    const dot = p.itemOfInstruction[5];
    expect([...p.inFrom.subarray(p.inOffsets[dot], p.inOffsets[dot + 1])]).toEqual([
      p.itemOfInstruction[4],
    ]);
  });

  test("every value that flows between boxes has its edge, at the innermost common container", () => {
    fc.assert(
      fc.property(fc.nat(100000), fc.integer({ min: 2, max: 120 }), fc.nat(12), (seed, n, g) => {
        const next = generator(seed);
        const s = setup(randomModule(n, g, next));
        const open = new Openness(s.tree);
        for (let v = 0; v < s.tree.stacks; v++) if (next() < 0.5) open.open[v] = 1;
        open.open[s.tree.root] = 1;
        const p = project(s.tree, s.flow, s.weight, open);
        const wanted = new Map<string, number>();
        const chain = (item: number): number[] => {
          const out = [];
          for (let k = item; k >= 0; k = p.parent[k]) out.push(k);
          return out.reverse();
        };
        for (let i = 0; i < n; i++) {
          const b = p.itemOfInstruction[i];
          if (b < 0 || s.flow.hidden[i] !== Hidden.No) continue;
          for (let e = s.flow.offsets[i]; e < s.flow.offsets[i + 1]; e++) {
            const a = p.itemOfInstruction[s.flow.sources[e]];
            if (a < 0 || a === b) continue;
            const ca = chain(a);
            const cb = chain(b);
            let k = 0;
            while (k < ca.length && k < cb.length && ca[k] === cb[k]) k++;
            if (k === ca.length || k === cb.length) continue;
            const key = `${ca[k]}>${cb[k]}`;
            wanted.set(key, (wanted.get(key) ?? 0) + 1);
          }
        }
        const found = new Map<string, number>();
        for (let v = 0; v < p.nodes.length; v++) {
          for (let e = p.inOffsets[v]; e < p.inOffsets[v + 1]; e++) {
            expect(p.parent[p.inFrom[e]]).toBe(p.parent[v]);
            found.set(`${p.inFrom[e]}>${v}`, p.inCount[e]);
          }
        }
        expect(found).toEqual(wanted);
      }),
      { numRuns: 150 },
    );
  });
});

describe("local graphs", () => {
  const edges = (list: [number, number][]) => ({
    from: Int32Array.from(list, (e) => e[0]),
    to: Int32Array.from(list, (e) => e[1]),
    weight: list.map(() => 1),
  });
  const reachable = (n: number, from: Int32Array, to: Int32Array, keep: (e: number) => boolean) => {
    const reach = Array.from({ length: n }, () => new Set<number>());
    for (let changed = true; changed; ) {
      changed = false;
      for (let e = 0; e < from.length; e++) {
        if (!keep(e)) continue;
        for (const v of [to[e], ...reach[to[e]]]) {
          if (!reach[from[e]].has(v)) {
            reach[from[e]].add(v);
            changed = true;
          }
        }
      }
    }
    return reach;
  };

  test("what reduction leaves out is implied by what it keeps", () => {
    fc.assert(
      fc.property(fc.nat(100000), fc.integer({ min: 4, max: 24 }), (seed, n) => {
        const next = generator(seed);
        const list: [number, number][] = [];
        for (let a = 0; a < n; a++)
          for (let b = a + 1; b < n; b++) if (next() < 0.35) list.push([a, b]);
        const { from, to, weight } = edges(list);
        const g = prepareLocal(n, from, to, weight, { maxUsers: 99, maxSpan: 99, maxWidth: 99 });
        const all = reachable(n, from, to, () => true);
        const kept = reachable(n, from, to, (e) => g.kind[e] === EdgeKind.Plain);
        expect(kept).toEqual(all);
        for (let v = 0; v < n; v++) {
          let left = 0;
          for (let e = 0; e < to.length; e++)
            if (to[e] === v && g.kind[e] === EdgeKind.Implied) left++;
          expect(g.implied[v]).toBe(left);
        }
      }),
      { numRuns: 100 },
    );
  });

  test("few edges keep their shortcuts", () => {
    const { from, to, weight } = edges([
      [0, 1],
      [1, 2],
      [0, 2],
      [2, 3],
    ]);
    expect([...prepareLocal(4, from, to, weight).kind]).toEqual([0, 0, 0, 0]);
  });

  test("cycles are broken where the least flows", () => {
    const { from, to } = edges([
      [0, 1],
      [1, 2],
      [2, 0],
    ]);
    const kind = new Uint8Array(3);
    markBackEdges(3, from, to, [1, 100, 100], kind);
    expect([...kind]).toEqual([EdgeKind.Back, 0, 0]);
  });

  /** Which of a student and a teacher are marked to run against the flow of the other. */
  function backBetween(
    turns: [number, number],
    steps: [name: string, group: number, operands: number[]][],
  ): string[] {
    const s = setup({
      groups: [
        { parent: -1, kind: "module", label: "m" },
        { parent: 0, kind: "entry", label: "e" },
        { parent: 1, kind: "scope", label: "student", turn: turns[0] },
        { parent: 1, kind: "scope", label: "teacher", turn: turns[1] },
      ],
      instructions: [
        { name: "images", opcode: "parameter", group: 1, flags: 4 },
        ...steps.map(([name, group, operands]) => ({ name, opcode: "add", group, operands })),
      ],
      computations: [{ name: "main", root: steps.length, group: 1 }],
    });
    const openness = new Openness(s.tree);
    openness.open[s.tree.node(1)] = 1;
    const p = project(s.tree, s.flow, s.weight, openness);
    const items = [...p.children.subarray(p.childOffsets[0], p.childOffsets[1])];
    const order = names(s, p, 0);
    const from: number[] = [];
    const to: number[] = [];
    const worth: number[] = [];
    items.forEach((v, k) => {
      for (let e = p.inOffsets[v]; e < p.inOffsets[v + 1]; e++) {
        from.push(items.indexOf(p.inFrom[e]));
        to.push(k);
        worth.push(p.inSteps[e]);
      }
    });
    const kind = new Uint8Array(from.length);
    markBackEdges(items.length, Int32Array.from(from), Int32Array.from(to), worth, kind);
    return from.flatMap((u, e) =>
      kind[e] === EdgeKind.Back ? [`${order[u]} → ${order[to[e]]}`] : [],
    );
  }

  test("what a call only passes on does not put it before a call whose result it needs", () => {
    expect(
      backBetween(
        [0, 0],
        [
          ["cast", 2, [0]], // once for both
          ["student_0", 2, [1]],
          ["student_1", 2, [2]],
          ["teacher_0", 3, [1]],
          ["teacher_1", 3, [4]],
          ["teacher_2", 3, [5]],
          ["difference", 2, [3, 6]],
          ["loss", 2, [7]],
        ],
      ),
    ).toEqual(["student → teacher"]);
  });

  test("where the program says which call is first, no value puts it below the other", () => {
    const shared: [string, number, number[]][] = [
      ["fused_for_both", 3, [0]],
      ["student_0", 2, [1]],
      ["teacher_0", 3, [1]],
    ];
    expect(backBetween([1, 2], shared)).toEqual(["teacher → student"]);
    expect(backBetween([2, 1], shared)).toEqual([]);
    expect(backBetween([0, 0], shared)).toEqual([]);
  });

  test("where about as much runs both ways the schedule decides", () => {
    const { from, to } = edges([
      [1, 0],
      [0, 1],
    ]);
    const kind = new Uint8Array(2);
    markBackEdges(2, from, to, [110, 100], kind);
    expect([...kind]).toEqual([EdgeKind.Back, 0]);
    markBackEdges(2, from, to, [300, 100], kind.fill(0));
    expect([...kind]).toEqual([0, EdgeKind.Back]);
  });

  test("without back edges what is left has no cycle, and outside of cycles none is marked", () => {
    fc.assert(
      fc.property(fc.nat(100000), fc.integer({ min: 2, max: 20 }), (seed, n) => {
        const next = generator(seed);
        const list: [number, number][] = [];
        for (let a = 0; a < n; a++)
          for (let b = 0; b < n; b++) if (a !== b && next() < 0.12) list.push([a, b]);
        const { from, to, weight } = edges(list);
        const kind = new Uint8Array(list.length);
        markBackEdges(n, from, to, weight, kind);
        const reach = reachable(n, from, to, (e) => kind[e] !== EdgeKind.Back);
        reach.forEach((set, v) => {
          expect(set.has(v)).toBe(false);
        });
        const all = reachable(n, from, to, () => true);
        list.forEach(([a, b], e) => {
          if (kind[e] === EdgeKind.Back) expect(all[b].has(a)).toBe(true);
        });
      }),
      { numRuns: 100 },
    );
  });

  test("values with many users and long edges become stubs", () => {
    const fan = edges(Array.from({ length: 20 }, (_, k): [number, number] => [0, k + 1]));
    expect([...prepareLocal(21, fan.from, fan.to, fan.weight).kind]).toEqual(
      new Array(20).fill(EdgeKind.Stub),
    );
    const chain: [number, number][] = Array.from({ length: 30 }, (_, k) => [k, k + 1]);
    const long = edges([...chain, [0, 30]]);
    const g = prepareLocal(31, long.from, long.to, long.weight);
    expect(g.kind[30]).toBe(EdgeKind.Stub);
    expect([...g.kind.subarray(0, 30)]).toEqual(new Array(30).fill(EdgeKind.Plain));
  });
});

describe("words", () => {
  test("names of runs", () => {
    expect(joinNames("layer_4", "layer_9")).toBe("layer_[4..9]");
    expect(joinNames("h/3/mlp", "h/11/mlp")).toBe("h/[3..11]/mlp");
    expect(joinNames("a", "b")).toBe("a … b");
    expect(joinNames("a", "a")).toBe("a");
  });
  test("groups tell their landmarks", () => {
    const s = setup(transformer(2, 8));
    const counts = new FamilyCounts(s.tree, s.flow);
    expect(summary(s.tree, counts, s.tree.node(2))).toBe("17 ops · 4 matmul · 2 collective");
  });
});
