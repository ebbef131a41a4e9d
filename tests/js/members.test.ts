/** Members of groups. */
import { expect, test } from "vitest";
import { instructionsInGroup, materialized } from "../../js/state/members.ts";
import { buildModel, transformer } from "./fixtures.ts";

test("a group holds what is in it and in the groups in it, ascending", () => {
  const model = buildModel(transformer(3, 12));
  const { group, instruction } = model;
  const within = (g: number, i: number): boolean => {
    for (let at = instruction.group[i]; at >= 0; at = group.parent[at]) if (at === g) return true;
    return false;
  };
  const all = Array.from({ length: instruction.count }, (_, i) => i);
  for (let g = 0; g < group.count; g++) {
    expect(instructionsInGroup(model, g)).toEqual(all.filter((i) => within(g, i)));
  }
  expect(instructionsInGroup(model, 0)).toEqual(all);
  expect(materialized(model)).toHaveLength(instruction.count);
});
