/** Compiler messages about partitioning, by the instructions that pay for them. */

import type { ViewModel } from "../../base/model.ts";
import type { CompilerMessage } from "../../view-extras.ts";
import { perModel } from "../members.ts";

const byInstruction = perModel((model: ViewModel): Map<number, CompilerMessage[]> => {
  const out = new Map<number, CompilerMessage[]>();
  const rows = model.header.extras.compiler ?? [];
  for (const row of rows) {
    for (const i of row.instructions) out.set(i, [...(out.get(i) ?? []), row]);
  }
  return out;
});

/** Messages attached to any of the instructions, each once. */
export function compilerMessages(
  model: ViewModel,
  instructions: Iterable<number>,
): CompilerMessage[] {
  const found = byInstruction(model);
  const out = new Set<CompilerMessage>();
  for (const i of instructions) for (const m of found.get(i) ?? []) out.add(m);
  return [...out];
}
