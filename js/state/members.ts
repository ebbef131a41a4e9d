/** The contents of groups, folds and computations. Built once per model, on first use. */

import type { ViewModel } from "../base/model.ts";
import type { Selection } from "../view.ts";

/** A value derived from the model alone, computed on first use and cached with it. */
export function perModel<T>(build: (model: ViewModel) => T): (model: ViewModel) => T {
  const kept = new WeakMap<ViewModel, { value: T; edition: number; figures: number }>();
  return (model) => {
    const { edition, figures } = model;
    let found = kept.get(model);
    // A null result is computed again once the analyses have arrived, all of them for another chip.
    if (
      !found ||
      found.figures !== figures ||
      (found.value === null && found.edition !== edition)
    ) {
      found = { value: build(model), edition, figures };
      kept.set(model, found);
    }
    return found.value;
  };
}

/** Child groups of every group, in schedule order. */
export const childGroups = perModel((model) => {
  const { count, parent, order } = model.group;
  const children: number[][] = Array.from({ length: count }, () => []);
  for (let g = 0; g < count; g++) if (parent[g] >= 0) children[parent[g]].push(g);
  for (const list of children) list.sort((a, b) => order[a] - order[b]);
  return children;
});

/** Instructions directly in every group, ascending. */
export const directMembers = perModel((model) => {
  const direct: number[][] = Array.from({ length: model.group.count }, () => []);
  const { count, group } = model.instruction;
  for (let i = 0; i < count; i++) direct[group[i]]?.push(i);
  return direct;
});

/** All instructions in a group at any depth, ascending. */
export function instructionsInGroup(model: ViewModel, group: number): number[] {
  // The first group is the module.
  if (group === 0) return Array.from({ length: model.instruction.count }, (_, i) => i);
  const children = childGroups(model);
  const direct = directMembers(model);
  const out: number[] = [];
  const queue = [group];
  for (let g = queue.pop(); g !== undefined; g = queue.pop()) {
    for (const i of direct[g] ?? []) out.push(i);
    queue.push(...(children[g] ?? []));
  }
  return Array.from(Uint32Array.from(out).sort());
}

export function foldMembers(model: ViewModel, fold: number): number[] {
  const { offsets, values } = model.fold.members;
  return Array.from(values.subarray(offsets[fold], offsets[fold + 1]));
}

/** The instructions that a selection covers. */
export function instructionsOf(model: ViewModel, selection: Selection): number[] {
  const { kind, index } = selection;
  if (kind === "instruction") return [index];
  if (kind === "group") return instructionsInGroup(model, index);
  if (kind === "fold") {
    return foldMembers(model, index).flatMap((g) => instructionsInGroup(model, g));
  }
  if (kind === "computation") {
    const first = model.computation.first[index];
    return Array.from({ length: model.computation.size[index] }, (_, k) => first + k);
  }
  return [];
}

/** The instructions, and those inside the fusions among them. */
export function withFused(model: ViewModel, instructions: readonly number[]): number[] {
  const { offsets, values } = model.called;
  const { first, size } = model.computation;
  const out = new Set(instructions);
  for (const i of out) {
    if (model.opcode(i) !== "fusion") continue;
    for (let k = offsets[i]; k < offsets[i + 1]; k++) {
      for (let j = 0; j < size[values[k]]; j++) out.add(first[values[k]] + j);
    }
  }
  return [...out];
}

/** The name of a selection: "dot.3", "layer_1", "layer_[1..22]". */
export function nameOf(model: ViewModel, { kind, index }: Selection): string {
  if (kind === "instruction") return model.name(index);
  if (kind === "group") return model.groupLabel(index) || model.groupKind(index);
  if (kind === "fold") return model.strings.get(model.fold.label[index]);
  if (kind === "computation") return model.strings.get(model.computation.name[index]);
  return "";
}

/** Groups around a selection, outermost first, without the root group. */
export function groupPath(model: ViewModel, { kind, index }: Selection): number[] {
  let g = -1;
  if (kind === "instruction") g = model.instruction.group[index];
  else if (kind === "group") g = index;
  else if (kind === "fold") g = model.fold.parent[index];
  else if (kind === "computation") g = model.computation.group[index];
  const path: number[] = [];
  for (; g > 0; g = model.group.parent[g]) path.unshift(g);
  return path;
}

/** Instruction index by name; if a name repeats across computations, the first one wins. */
export const instructionByName = perModel((model) => {
  const byName = new Map<string, number>();
  for (let i = model.instruction.count - 1; i >= 0; i--) byName.set(model.name(i), i);
  return byName;
});

export const computationByName = perModel((model) => {
  const byName = new Map<string, number>();
  for (let c = 0; c < model.computation.count; c++) {
    byName.set(model.strings.get(model.computation.name[c]), c);
  }
  return byName;
});

/** The ENTRY computation: that of the entry group, else the last one. */
export const entryComputation = perModel((model) => {
  for (let g = 0; g < model.group.count; g++) {
    if (model.groupKind(g) === "entry") return model.group.computation[g];
  }
  return model.computation.count - 1;
});

/** 1 for instructions whose value exists in memory, so not inside fusions and reducers. */
export const materialized = perModel((model) => {
  const inside = new Uint8Array(model.computation.count);
  for (let g = 0; g < model.group.count; g++) {
    const kind = model.groupKind(g);
    const c = model.group.computation[g];
    if (c >= 0 && (kind === "fusion" || kind === "reducer")) inside[c] = 1;
  }
  const { count, computation } = model.instruction;
  const out = new Uint8Array(count);
  for (let i = 0; i < count; i++) out[i] = 1 - inside[computation[i]];
  return out;
});
