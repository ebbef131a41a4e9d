/** The ways to colour boxes, in the order of the menu. An analysis adds its own at the end. */

import type { ViewModel } from "../base/model.ts";
import { perModel } from "../state/members.ts";
import type { Coloring } from "./panel.ts";

const family: Coloring = {
  id: "family",
  label: "Opcode family",
  available: () => true,
  values: (model) => model.instruction.family,
  categories: (model) => model.header.families.map((f) => f.label),
  source: "from opcodes",
};

/**
 * Scope: the shallowest named groups that still tell parts apart. Goes one level down while one
 * group holds nearly everything, so `jit(step)` alone does not paint the whole picture.
 */
const topScopes = perModel((model) => {
  const { count, parent, size, kind, order } = model.group;
  const children: number[][] = Array.from({ length: count }, () => []);
  for (let g = 1; g < count; g++) if (parent[g] >= 0) children[parent[g]].push(g);
  const named = (g: number) => {
    const k = model.header.groupKinds[kind[g]];
    return k === "scope" || k === "entry" || k === "body" || k === "call" || k === "component";
  };
  const tops: number[] = [];
  let front = children[0] ?? [];
  const total = size[0] || 1;
  for (let depth = 0; depth < 12 && tops.length < 10; depth++) {
    const entry = front.filter(named);
    const big = entry.find((g) => size[g] > 0.5 * total || entry.length < 4);
    if (big === undefined || !children[big].some(named)) break;
    front = front.flatMap((g) => (g === big ? children[g] : [g]));
  }
  tops.push(...front.filter(named));
  // Biggest first for the palette, then in program order for the legend.
  tops.sort((a, b) => size[b] - size[a]);
  const kept = tops.slice(0, 9).sort((a, b) => order[a] - order[b]);
  const of = new Int16Array(count).fill(-1);
  kept.forEach((g, k) => {
    of[g] = k;
  });
  for (let g = 0; g < count; g++) if (of[g] < 0 && parent[g] >= 0) of[g] = of[parent[g]];
  return { kept, of };
});

const scope: Coloring = {
  id: "scope",
  label: "Scope",
  available: (model) => topScopes(model).kept.length > 1,
  values: (model) => {
    const { kept, of } = topScopes(model);
    return Float64Array.from(model.instruction.group, (g) => (of[g] < 0 ? kept.length : of[g]));
  },
  categories: (model) => [
    ...topScopes(model).kept.map((g) => model.groupLabel(g) || "(unnamed)"),
    "everything else",
  ],
  source: "from op_name",
};

const bytes: Coloring = {
  id: "bytes",
  label: "Output bytes",
  available: () => true,
  values: (model: ViewModel) => model.instruction.bytes,
  unit: "B",
  scale: "log",
  source: "from shapes, on one device",
};

export const COLORINGS: readonly Coloring[] = [family, scope, bytes];
