/** The group tree weighted by modelled time, or by FLOPs when no chip is chosen. */
import type { ViewModel } from "../../base/model.ts";
import type { Selection } from "../../view.ts";
import { childGroups, directMembers, nameOf } from "../members.ts";
import { COLLECTIVE, COPY, type Costs, MEMORY } from "./costs.ts";

/** What may take most of a scope's time. */
export const PARTS = ["compute", "memory", "communication"] as const;

export interface ScopeCost {
  /** What a click selects; null for the small ones that are drawn as one. */
  selection: Selection | null;
  label: string;
  value: number;
  /** Into PARTS; -1 where the weight is FLOPs. */
  part: number;
  /** Groups that are counted together here. */
  groups: readonly number[];
  children: ScopeCost[];
}

/** More tiles than this in one scope are hard to tell apart: the smallest are drawn as one. */
const MOST = 48;
const NEARLY = 0.9;

export function scopeCosts(model: ViewModel, costs: Costs, depth: number): ScopeCost {
  const timed = costs.chip !== null;
  const { count, parent, fold } = model.group;
  const { group, count: instructions } = model.instruction;
  const weight = new Float64Array(instructions);
  const sums = new Float64Array(count * PARTS.length);
  const partOf = (i: number) => {
    const bound = timed ? costs.bound[i] : 0;
    return bound === MEMORY || bound === COPY ? 1 : bound === COLLECTIVE ? 2 : 0;
  };
  for (let i = 0; i < instructions; i++) {
    if (!costs.unit[i] || !(costs.runs[i] > 0)) continue;
    const value = timed ? costs.step[i] : costs.flops[i] * costs.runs[i];
    if (!(value > 0) || value === Number.POSITIVE_INFINITY) continue;
    weight[i] = value;
    sums[group[i] * PARTS.length + partOf(i)] += value;
  }
  // Parents come before their children.
  for (let g = count - 1; g > 0; g--) {
    for (let p = 0; p < PARTS.length; p++) {
      sums[parent[g] * PARTS.length + p] += sums[g * PARTS.length + p];
    }
  }
  const inside = childGroups(model);
  const direct = directMembers(model);

  const node = (groups: number[], selection: Selection, label: string): ScopeCost => {
    const parts = PARTS.map((_, p) =>
      groups.reduce((sum, g) => sum + sums[g * PARTS.length + p], 0),
    );
    const value = parts.reduce((a, b) => a + b, 0);
    const part = timed ? parts.indexOf(Math.max(...parts)) : -1;
    return { selection, label, value, part, groups, children: [] };
  };

  const childrenOf = (groups: readonly number[]): ScopeCost[] => {
    const alone = groups.length === 1;
    const found = new Map<string, { groups: number[]; selection: Selection }>();
    const leaves = new Map<string, ScopeCost>();
    for (const g of groups) {
      for (const c of inside[g]) {
        const selection: Selection =
          fold[c] >= 0 ? { kind: "fold", index: fold[c] } : { kind: "group", index: c };
        // Across the members of a fold, groups with the same name belong together.
        const key = alone ? `${selection.kind} ${selection.index}` : nameOf(model, selection);
        const entry = found.get(key);
        if (entry) entry.groups.push(c);
        else found.set(key, { groups: [c], selection });
      }
      for (const i of direct[g]) {
        if (!(weight[i] > 0)) continue;
        const key = alone ? String(i) : model.opcode(i);
        const leaf = leaves.get(key);
        if (leaf) leaf.value += weight[i];
        else {
          leaves.set(key, {
            selection: { kind: "instruction", index: i },
            label: alone ? model.label(i) || `%${model.name(i)}` : key,
            value: weight[i],
            part: timed ? partOf(i) : -1,
            groups: [],
            children: [],
          });
        }
      }
    }
    const rows = [...leaves.values()];
    for (const entry of found.values()) {
      const row = node(entry.groups, entry.selection, nameOf(model, entry.selection));
      if (row.value > 0) rows.push(row);
    }
    return rows.sort((a, b) => b.value - a.value);
  };

  const open = (at: ScopeCost, levels: number): ScopeCost => {
    if (!at.groups.length || levels <= 0) return at;
    let rows = childrenOf(at.groups);
    // A scope whose work is nearly all in one inner scope, like a loop's in its body, is replaced
    // by the contents of that scope.
    const all = rows.reduce((sum, row) => sum + row.value, 0);
    for (let most = rows[0]; most?.groups.length && most.value >= NEARLY * all; most = rows[0]) {
      const inner = childrenOf(most.groups);
      if (!inner.length) break;
      rows = [...inner, ...rows.slice(1)].sort((a, b) => b.value - a.value);
    }
    const kept = rows.slice(0, MOST).map((row) => open(row, levels - 1));
    const rest = rows.slice(MOST);
    if (rest.length) {
      kept.push({
        selection: null,
        label: `${rest.length} smaller`,
        value: rest.reduce((sum, row) => sum + row.value, 0),
        part: rest[0].part,
        groups: [],
        children: [],
      });
      kept.sort((a, b) => b.value - a.value);
    }
    return { ...at, children: kept };
  };
  return open(
    node([0], { kind: "group", index: 0 }, nameOf(model, { kind: "group", index: 0 })),
    depth,
  );
}
