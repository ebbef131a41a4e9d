/** Beside another program: what changed and what is only here; all else is quiet. */
import type { Coloring } from "./panel.ts";

export const difference: Coloring = {
  id: "difference",
  label: "Difference",
  available: (model) => model.optional("diff.of") !== null,
  // What is the same is in no category.
  values: (model) => Int16Array.from(model.column<Uint8Array>("diff.of"), (v) => (v ? v : -1)),
  // The first colour is that of most boxes elsewhere, and would read as none here.
  categories: () => ["moved", "changed", "only here"],
  rest: "the same",
  source: "matched by structure",
};
