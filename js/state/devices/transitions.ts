/** Edges along which a value changes its sharding. */
import type { ViewModel } from "../../base/model.ts";
import { perModel } from "../members.ts";

export interface Transition {
  source: number;
  target: number;
  before: string; // "P('data', None)"
  after: string;
}

export interface Transitions {
  rows: Transition[];
  /** Instruction → transitions that start or end at it. */
  byInstruction: Map<number, Transition[]>;
}

export const transitionsOf = perModel((model: ViewModel): Transitions => {
  const source = model.optional<Uint32Array>("transition.source");
  const byInstruction = new Map<number, Transition[]>();
  if (!source) return { rows: [], byInstruction };
  const target = model.column<Uint32Array>("transition.target");
  const before = model.column<Uint32Array>("transition.before");
  const after = model.column<Uint32Array>("transition.after");
  const rows = Array.from(source, (s, k) => ({
    source: s,
    target: target[k],
    before: model.strings.get(before[k]),
    after: model.strings.get(after[k]),
  }));
  for (const row of rows) {
    for (const i of [row.source, row.target]) {
      const found = byInstruction.get(i);
      if (found) found.push(row);
      else byInstruction.set(i, [row]);
    }
  }
  return { rows, byInstruction };
});

export const transitionText = (t: Transition): string => `${t.before} → ${t.after}`;
