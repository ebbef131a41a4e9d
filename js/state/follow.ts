/** Where a value goes, and where it comes from, through the whole program. */
import type { ViewModel } from "../base/model.ts";
import { perModel } from "./members.ts";

/** The instructions that call each computation. */
const callersOf = perModel((model) => {
  const { offsets, values } = model.called;
  const out = new Map<number, number[]>();
  for (let i = 0; i < model.instruction.count; i++) {
    for (let e = offsets[i]; e < offsets[i + 1]; e++) {
      const list = out.get(values[e]);
      if (list) list.push(i);
      else out.set(values[e], [i]);
    }
  }
  return out;
});

/**
 * Everything that depends on the values ("down"), or that they depend on ("up"), themselves
 * included. From the root of a computation it goes on behind its callers; what is called counts as
 * one operation, of which every operand is used.
 */
export function followed(
  model: ViewModel,
  from: readonly number[],
  direction: "down" | "up",
): Set<number> {
  const links = direction === "down" ? model.users : model.operands;
  const callers = callersOf(model);
  const { computation } = model.instruction;
  const found = new Set(from);
  // A Set yields what is added to it meanwhile.
  for (const i of found) {
    for (let e = links.offsets[i]; e < links.offsets[i + 1]; e++) found.add(links.values[e]);
    const c = computation[i];
    const leaves =
      direction === "down" ? model.computation.root[c] === i : model.opcode(i) === "parameter";
    for (const caller of leaves ? (callers.get(c) ?? []) : []) {
      if (direction === "down") found.add(caller);
      else {
        const { offsets, values } = model.operands;
        for (let e = offsets[caller]; e < offsets[caller + 1]; e++) found.add(values[e]);
      }
    }
  }
  return found;
}
