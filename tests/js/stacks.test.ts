/** What a stack says of its members. */
import { expect, test } from "vitest";
import { Engine } from "../../js/draw/engine.ts";
import { TextMetrics } from "../../js/graph/metrics.ts";
import { ItemKind } from "../../js/graph/project/projection.ts";
import { buildModel, transformer } from "./fixtures.ts";

/** What stacks of three layers say, with the work of each. */
function said(works: number[]): string[] {
  const spec = transformer(3, 8);
  const layers = spec.groups.filter((g) => g.label.startsWith("layer_"));
  layers.forEach((layer, k) => {
    layer.worth = works[k % works.length];
  });
  const engine = new Engine(buildModel(spec), new TextMetrics(), 900, 600);
  engine.set({ kind: "group", index: 2 }, true);
  const { projection, text } = engine.rebuild().picture;
  return [...projection.kind.keys()]
    .filter((item) => projection.kind[item] === ItemKind.Stack)
    .map((item) => text[item].sub);
}

test("members of other sizes are said to be so", () => {
  const [equal] = said([0.1]);
  expect(equal).toMatch(/each$/);
  const [other] = said([0.1, 0.1, 0.3]);
  expect(other).toBe(`${equal}, sizes differ`);
});
