/** Compared with another program: what changed and what is only here; the rest is muted. */
import type { Coloring } from "../panel.ts";

export const difference: Coloring = {
  id: "difference",
  label: "Difference",
  available: (model) => model.optional("diff.of") !== null,
  // What is the same belongs to no category.
  values: (model) => Int16Array.from(model.column<Uint8Array>("diff.of"), (v) => (v ? v : -1)),
  // Category 0 is never used: its colour is that of most boxes elsewhere and would mean nothing here.
  categories: () => ["moved", "changed", "only here"],
  rest: "the same",
  source: "matched by structure",
};
