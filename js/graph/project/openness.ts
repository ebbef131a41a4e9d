/** Which containers are open and which fold members are shown on their own; what is open at first. */
import { Flag } from "../../view.ts";
import { type Flow, Hidden } from "./flow.ts";
import type { Tree } from "./tree.ts";

export class Openness {
  /** 1 per open container node. */
  readonly open: Uint8Array;
  /** 1 per position of `fold.members` whose group is shown on its own, outside its stack. */
  readonly loose: Uint8Array;
  constructor(readonly tree: Tree) {
    this.open = new Uint8Array(tree.stacks);
    this.loose = new Uint8Array(tree.foldAt.length);
    this.open[tree.root] = 1;
  }
  copy(): Openness {
    const out = new Openness(this.tree);
    out.open.set(this.open);
    out.loose.set(this.loose);
    return out;
  }
  setFold(fold: number, open: boolean): void {
    const { offsets } = this.tree.model.fold.members;
    this.loose.fill(open ? 1 : 0, offsets[fold], offsets[fold + 1]);
  }
  foldOpen(fold: number): boolean {
    const { offsets } = this.tree.model.fold.members;
    for (let p = offsets[fold]; p < offsets[fold + 1]; p++) if (!this.loose[p]) return false;
    return true;
  }
  /** Opens everything that hides the node; returns whether anything changed. */
  uncover(node: number): boolean {
    let changed = false;
    const { tree } = this;
    for (let v = node; v >= 0; v = tree.parent[v]) {
      if (v !== node && !this.open[v]) {
        this.open[v] = 1;
        changed = true;
      }
      const p = tree.isGroup(v) ? tree.memberAt[v - tree.instructions] : -1;
      if (p >= 0 && !this.loose[p]) {
        this.loose[p] = 1;
        changed = true;
      }
    }
    return changed;
  }
}

/** Whether the group adds nothing: the condition of a loop whose label already says "×12". */
function saysNothing(tree: Tree, group: number): boolean {
  const { model } = tree;
  if (model.groupKind(group) !== "condition") return false;
  const owner = model.group.owner[group];
  return owner >= 0 && model.label(owner).includes("×");
}

/**
 * Drawn instructions inside each node, at any depth, including the node itself if it is one.
 * Groups that add nothing count only with `all`.
 */
export function weights(tree: Tree, flow: Flow, all = false): Uint32Array {
  const weight = new Uint32Array(tree.stacks);
  for (let i = 0; i < tree.instructions; i++) weight[i] = flow.hidden[i] === Hidden.No ? 1 : 0;
  for (let at = tree.topDown.length - 1; at >= 0; at--) {
    const v = tree.topDown[at];
    const p = tree.parent[v];
    if (!all && tree.isGroup(v) && saysNothing(tree, v - tree.instructions)) weight[v] = 0;
    if (p >= 0) weight[p] += weight[v];
  }
  return weight;
}

/** Boxes that an open container would show with everything in it closed. */
export function visibleChildren(
  tree: Tree,
  flow: Flow,
  weight: Uint32Array,
  openness: Openness,
  node: number,
): number[] {
  const out: number[] = [];
  const { fold } = tree.model;
  let stackFold = -1;
  const begun = new Set<number>();
  for (let e = tree.childOffsets[node]; e < tree.childOffsets[node + 1]; e++) {
    const v = tree.children[e];
    if (weight[v] === 0) continue;
    if (v < tree.instructions) {
      if (flow.hidden[v] === Hidden.No) out.push(v);
      continue;
    }
    const p = tree.memberAt[v - tree.instructions];
    if (p < 0 || openness.loose[p]) {
      out.push(v);
      continue;
    }
    // Members of one fold need not be adjacent here; their stack is shown where its first one is.
    stackFold = tree.foldAt[p];
    let first = p;
    while (first > fold.members.offsets[stackFold] && !openness.loose[first - 1]) first--;
    const stack = tree.stacks + first;
    if (begun.has(stack)) continue;
    begun.add(stack);
    const alone =
      first === p && (p + 1 === fold.members.offsets[stackFold + 1] || openness.loose[p + 1]);
    out.push(alone ? v : stack);
  }
  return out;
}

/** Groups with a smaller share of the program's work start closed: an optimiser is one box. */
export const WORTH_OPENING = 0.03;

/** The container's share of the program's matmuls, convolutions and kernels, 0 .. 1. */
export function worthOf(tree: Tree, node: number): number {
  const { called, computation, group } = tree.model;
  if (node >= tree.stacks) return 0;
  if (node >= tree.instructions) return group.worth[node - tree.instructions];
  let sum = 0; // for a loop: its body and its condition
  for (let e = called.offsets[node]; e < called.offsets[node + 1]; e++) {
    const g = computation.group[called.values[e]];
    if (g >= 0 && group.owner[g] === node) sum += group.worth[g];
  }
  return sum;
}

/** A group is opened in place of one that does not fit if it has this share of its work. */
const INSTEAD = 0.5;

/** Groups that show how rather than what; closed at first unless the module is tiny. */
const INNER = new Set(["fusion", "reducer", "condition", "unreachable"]);

/**
 * Opens from the outside in, those with the largest share of work first, while the picture stays
 * within `budget` boxes. Containers with a single child cost nothing. Folds stay closed.
 */
export function openDefault(
  tree: Tree,
  flow: Flow,
  weight: Uint32Array,
  budget = 40,
  openness = new Openness(tree),
  inner = false,
): Openness {
  const working = !inner && worthOf(tree, tree.root) > 0;
  const kids = (v: number): number[] => visibleChildren(tree, flow, weight, openness, v);
  let boxes = 0;
  const heap: number[] = [];
  const isInner = (v: number): boolean => {
    const g = tree.groupOf(v);
    if (g < 0) return false;
    return INNER.has(tree.model.groupKind(g));
  };
  const landmark = (v: number): boolean =>
    v < tree.instructions && tree.model.has(v, Flag.Landmark);
  const push = (list: number[]): void => {
    for (const v of list) {
      if (v < tree.stacks && tree.canOpen(v)) heap.push(v);
    }
  };
  let first = kids(tree.root);
  // A lone container is opened whatever it costs: a picture of one box says nothing.
  while (first.length === 1 && first[0] < tree.stacks && tree.canOpen(first[0])) {
    const inside = kids(first[0]);
    if (inside.length === 0) break;
    openness.open[first[0]] = 1;
    first = inside;
  }
  boxes = first.length;
  push(first);
  const skipped: number[] = [];
  let refused = 0;
  while (heap.length > 0) {
    let best = 0;
    for (let k = 1; k < heap.length; k++) {
      const d = worthOf(tree, heap[k]) - worthOf(tree, heap[best]);
      const w = weight[heap[k]] - weight[heap[best]];
      if (d > 0 || (d === 0 && (w > 0 || (w === 0 && heap[k] < heap[best])))) best = k;
    }
    const v = heap[best];
    heap[best] = heap[heap.length - 1];
    heap.pop();
    if (openness.open[v]) continue;
    if (working && worthOf(tree, v) < WORTH_OPENING) continue;
    if (!inner && isInner(v)) {
      skipped.push(v);
      continue;
    }
    const inside = kids(v);
    if (inside.length === 0) continue;
    // A loop's body is worth showing even if it is small; that of other callers is not.
    if (v < tree.instructions && !landmark(v) && weight[v] < 8 && inside.length > 1) continue;
    const cost = inside.length - 1;
    // What is much lighter than what does not fit is not shown instead of it.
    if (working && worthOf(tree, v) < refused * INSTEAD) continue;
    if (boxes + cost > budget) {
      refused = Math.max(refused, worthOf(tree, v));
      continue;
    }
    openness.open[v] = 1;
    boxes += cost;
    push(inside);
  }
  // In modules small enough to show everything, the rest of the budget goes to opening fusions.
  if (!inner && weight[tree.root] <= budget * 1.5) {
    for (const v of skipped.sort((a, b) => weight[a] - weight[b] || a - b)) {
      const g = tree.groupOf(v);
      if (g >= 0 && tree.model.groupKind(g) !== "fusion") continue;
      const inside = kids(v);
      if (inside.length < 2 || boxes + inside.length - 1 > budget) continue;
      openness.open[v] = 1;
      boxes += inside.length - 1;
    }
  }
  return openness;
}
