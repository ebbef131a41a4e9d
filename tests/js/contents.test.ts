import { describe, expect, test } from "vitest";
import { contentLines } from "../../js/graph/project/contents.ts";
import { buildFlow } from "../../js/graph/project/flow.ts";
import { Tree } from "../../js/graph/project/tree.ts";
import { buildModel, loop, type ModuleSpec, transformer } from "./fixtures.ts";

/** Lines of no more than `letters` letters on what the group of a program holds. */
function lines(spec: ModuleSpec, group: number, letters = 99, most = 1): string[] {
  const model = buildModel(spec);
  const tree = new Tree(model);
  const fits = (line: string): boolean => line.length <= letters;
  return contentLines(tree, buildFlow(model, false), tree.node(group), most, fits);
}

/** A model of calls, each with a product in it, with their shares of the work. */
function calls(given: [name: string, worth: number][]): ModuleSpec {
  const groups = given.map(([label, worth]) => ({
    parent: 2,
    kind: "scope" as const,
    label,
    worth,
  }));
  return {
    groups: [
      { parent: -1, kind: "module", label: "m", worth: 1 },
      { parent: 0, kind: "entry", label: "e", worth: 1 },
      { parent: 1, kind: "scope", label: "model", worth: 1 },
      ...groups,
    ],
    instructions: given.map(([name], k) => ({
      name,
      opcode: "dot",
      group: 3 + k,
      family: "matmul",
    })),
    computations: [{ name: "main", root: given.length - 1, group: 1 }],
  };
}

describe("what a closed box holds", () => {
  test("its calls in their order; operations have no name", () => {
    expect(
      lines(
        calls([
          ["embed", 0.1],
          ["decode, line 7", 0.9],
        ]),
        2,
      ),
    ).toEqual(["embed, decode"]);
    expect(lines(calls([["sqrt·divide", 1]]), 2)).toEqual([]);
  });
  test("a statement has its text as its name, and no parts", () => {
    const spec = calls([["x @ w", 1]]);
    spec.groups[2].kind = "component";
    expect(lines(spec, 2)).toEqual([]);
  });
  test("calls of one name are counted", () => {
    const spec = calls([
      ["block, line 4", 0.3],
      ["block, line 5", 0.3],
      ["head", 0.4],
    ]);
    expect(lines(spec, 2)).toEqual(["block ×2, head"]);
    const onOneLine = calls([
      ["conv2, line 4:8", 0.5],
      ["conv2, line 4:20", 0.5],
    ]);
    expect(lines(onOneLine, 2)).toEqual(["conv2 ×2"]);
    expect(lines(transformer(3, 8), 2)).toEqual(["layer ×3"]);
  });
  test("calls that the code tells apart are calls of one function", () => {
    const spec = calls([
      ["norm before attend", 0.2],
      ["norm · n2", 0.2],
      ["head", 0.6],
    ]);
    for (const call of spec.groups.slice(3, 5)) call.function = "norm";
    expect(lines(spec, 2)).toEqual(["norm ×2, head"]);
  });
  test("what has most of the work says what is in it", () => {
    const spec = calls([
      ["embed", 0.1],
      ["block", 0.9],
    ]);
    spec.groups.push({ parent: 4, kind: "scope", label: "attention", worth: 0.9 });
    spec.instructions[1].group = 5;
    expect(lines(spec, 2)).toEqual(["embed, block (attention)"]);
  });
  test("how often something runs is said before where it is", () => {
    const spec = calls([["solve", 0.9]]);
    spec.groups.push({ parent: 3, kind: "scope", label: "iteration ×300", worth: 0.9 });
    spec.instructions[0].group = 4;
    expect(lines(spec, 2)).toEqual(["solve (iteration ×300)"]);
    expect(lines(spec, 2, 16)).toEqual(["iteration ×300 …"]);
  });
  test("a loop says how often it runs", () => {
    const spec = loop();
    spec.groups[1].worth = spec.groups[2].worth = 1;
    spec.instructions[1].label = "step ×7";
    expect(lines(spec, 1)).toEqual(["step ×7"]);
    spec.instructions[1].label = "while ×7"; // a library's
    expect(lines(spec, 1)).toEqual(["loop ×7"]);
  });
  test("of the branches of a conditional one runs: calls of one name are not added up", () => {
    const spec = calls([
      ["step", 0.5],
      ["step", 0.4],
    ]);
    const [, , , first, second] = spec.groups;
    [first.label, second.label] = ["solve, line 3", "solve, line 5"];
    const branch = (owner: number): number =>
      spec.groups.push({ parent: -1, kind: "branch", label: "", worth: 0.5, owner }) - 1;
    spec.instructions.push({ name: "which", opcode: "conditional", group: 2 });
    first.parent = branch(2);
    second.parent = branch(2);
    expect(lines(spec, 2)).toEqual(["solve"]);
    second.parent = first.parent; // both in one branch
    expect(lines(spec, 2)).toEqual(["solve ×2"]);
  });
  test("a piece that stands outside of its loop is no part", () => {
    expect(lines(calls([["a, outside its loop", 1]]), 2)).toEqual([]);
  });
  test("a piece of a call that is not known to be of one is no call", () => {
    const spec = calls([
      ["layer 0", 0.4],
      ["layer 1", 0.4],
      ["layer/attention", 0.2],
    ]);
    expect(lines(spec, 2)).toEqual(["layer ×2"]);
  });
  test("where there is no room the parts with least work are left out, and that is said", () => {
    const spec = calls([
      ["embedding", 0.1],
      ["encoder", 0.5],
      ["decoder", 0.4],
    ]);
    expect(lines(spec, 2, 20)).toEqual(["encoder, decoder …"]);
    expect(lines(spec, 2, 12)).toEqual(["encoder …"]);
    expect(lines(spec, 2, 12, 3)).toEqual(["embedding,", "encoder,", "decoder"]);
    expect(lines(spec, 2, 5)).toEqual([]);
  });
  test("a statement is called after the variable that it sets, if that says something", () => {
    const of = (label: string): string[] => lines(calls([[label, 1]]), 2);
    expect(of("scores = q @ k")).toEqual(["scores"]);
    expect(of("x = gelu(x)")).toEqual(["gelu(x)"]);
    expect(of("x = gelu(dense(x, weights[0], bias[0]))")).toEqual([]);
  });
});
