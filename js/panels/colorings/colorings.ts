/** The ways to colour boxes, in menu order. Analyses add theirs at the end. */

import type { ViewModel } from "../../base/model.ts";
import { childGroups, perModel } from "../../state/members.ts";
import { COLLECTIVE_COLORINGS } from "../collectives/colorings.ts";
import { COST_COLORINGS } from "../cost/colorings.ts";
import type { Coloring } from "../panel.ts";
import { difference } from "./difference.ts";

const family: Coloring = {
  id: "family",
  label: "Opcode family",
  available: () => true,
  values: (model) => model.instruction.family,
  categories: (model) => model.header.families.map((f) => f.label),
  source: "counts of instructions, from opcodes",
};

/** A group, or a run of equal groups as one. */
interface Part {
  path: string[];
  groups: number[];
  size: number;
}

const MOST_PARTS = 9;

/**
 * Scope: the parts that a user would name, at most nine. Starts from the module and repeatedly
 * divides the largest part while its named parts still fit:
 *
 *     main ─▶ forward backward adam ─▶ forward/embed forward/layer_[0..23] … backward/loss … adam
 */
const scopeParts = perModel((model) => {
  const { count, parent, size, fold } = model.group;
  const children = childGroups(model);
  const named = (g: number) => ["entry", "scope", "body", "call"].includes(model.groupKind(g));
  const divide = ({ path, groups }: Part): Part[] => {
    if (groups.length > 1) return []; // a run of equal groups stays one part
    const parts = new Map<string, Part>();
    for (const g of children[groups[0]].filter(named)) {
      const own = fold[g] < 0 ? model.groupLabel(g) : model.strings.get(model.fold.label[fold[g]]);
      const key = fold[g] < 0 ? `g${g}` : `f${fold[g]}`;
      const part = parts.get(key) ?? {
        path: [...path, own || "(unnamed)"],
        groups: [],
        size: 0,
      };
      part.groups.push(g);
      part.size += size[g];
      parts.set(key, part);
    }
    return [...parts.values()];
  };
  // Module and ENTRY are not named by the user.
  let parts: Part[] = [{ path: [], groups: [0], size: size[0] }];
  const final = new Set<Part>();
  for (;;) {
    const biggest = parts
      .filter((p) => !final.has(p))
      .reduce<Part | null>((a, b) => (a && a.size >= b.size ? a : b), null);
    if (!biggest) break;
    let inside = divide(biggest);
    const only = parts.length === 1;
    // A part that contains everything distinguishes nothing: jit(step)/forward is just forward.
    if (only && inside.length === 1) inside[0].path = [];
    if (only && inside.length > MOST_PARTS) {
      const least = inside.map((p) => p.size).sort((a, b) => b - a)[MOST_PARTS - 1];
      inside = inside.filter((p) => p.size >= least).slice(0, MOST_PARTS);
    }
    if (!inside.length || parts.length - 1 + inside.length > MOST_PARTS) final.add(biggest);
    else parts = parts.flatMap((p) => (p === biggest ? inside : [p]));
  }
  const of = new Int16Array(count).fill(-1);
  parts.forEach((part, k) => {
    for (const g of part.groups) of[g] = k;
  });
  for (let g = 0; g < count; g++) if (of[g] < 0 && parent[g] >= 0) of[g] = of[parent[g]];
  // Long paths keep only their two ends, if those are enough to distinguish them.
  const short = parts.map(({ path }) => {
    // A group's own label can contain slashes: "forward/Model" above, "layer/[0..5]" at the end.
    const above = path.slice(0, -1).join("/").split("/");
    return above.length > 1 ? `${above[0]}/…/${path[path.length - 1]}` : path.join("/");
  });
  const labels = parts.map((p, k) =>
    short.indexOf(short[k]) === short.lastIndexOf(short[k]) ? short[k] : p.path.join("/"),
  );
  return { labels, of };
});

const scope: Coloring = {
  id: "scope",
  label: "Scope",
  available: (model) => scopeParts(model).labels.length > 1,
  values: (model) => {
    const { labels, of } = scopeParts(model);
    return Float64Array.from(model.instruction.group, (g) => (of[g] < 0 ? labels.length : of[g]));
  },
  categories: (model) => [...scopeParts(model).labels, "everything else"],
  source: "from op_name",
};

const bytes: Coloring = {
  id: "bytes",
  label: "Output bytes",
  available: () => true,
  values: (model: ViewModel) => model.instruction.bytes,
  unit: "B",
  scale: "log",
  source: (model) =>
    model.header.summary.shapes === "global"
      ? "from global shapes, before partitioning"
      : "from shapes, per device",
};

export const COLORINGS: readonly Coloring[] = [
  family,
  scope,
  bytes,
  ...COST_COLORINGS,
  ...COLLECTIVE_COLORINGS,
  difference,
];
