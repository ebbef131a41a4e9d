/** Which containers are open and which fold members are shown on their own; what is open at first. */
import { type Flow, Hidden } from "./flow.ts";
import type { Tree } from "./tree.ts";

export class Openness {
  /**
   * 1 per open container node. A part of a fold whose first group is open is a frame around what is
   * in that one, for all of them.
   */
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
  /** Opens or closes what is one box; members that stand alone go back into it when it closes. */
  setFold(fold: number, open: boolean): void {
    if (!open) this.setApart(fold, false);
    for (const first of this.parts(fold)) this.open[first] = open ? 1 : 0;
  }
  foldOpen(fold: number): boolean {
    return this.parts(fold).every((first) => this.open[first] === 1);
  }
  /** Shows each member of a fold by itself, or all of them as one closed box. */
  setApart(fold: number, apart: boolean): void {
    const { offsets, values } = this.tree.model.fold.members;
    this.loose.fill(apart ? 1 : 0, offsets[fold], offsets[fold + 1]);
    if (apart) return;
    for (let p = offsets[fold]; p < offsets[fold + 1]; p++)
      this.open[this.tree.node(values[p])] = 0;
  }
  isApart(fold: number): boolean {
    return this.parts(fold).length === 0;
  }
  /** First groups of the parts of a fold that are one box each. */
  private parts(fold: number): number[] {
    const { offsets, values } = this.tree.model.fold.members;
    const out: number[] = [];
    for (let p = offsets[fold]; p < offsets[fold + 1]; p++) {
      if (!this.loose[p] && (p === offsets[fold] || this.loose[p - 1])) {
        out.push(this.tree.node(values[p]));
      }
    }
    return out;
  }
  /** Whether a group is what an open part of a fold shows of its members. */
  private isShown(node: number, position: number): boolean {
    const { offsets } = this.tree.model.fold.members;
    const begins =
      position === offsets[this.tree.foldAt[position]] || this.loose[position - 1] === 1;
    return begins && this.open[node] === 1;
  }
  /** Opens everything that hides the node; returns whether anything changed. */
  uncover(node: number): boolean {
    let changed = false;
    const { tree } = this;
    for (let v = node; v >= 0; v = tree.parent[v]) {
      const p = tree.isGroup(v) ? tree.memberAt[v - tree.instructions] : -1;
      const hidden = p >= 0 && !this.loose[p] && !this.isShown(v, p);
      if (v !== node && !this.open[v]) {
        this.open[v] = 1;
        changed = true;
      }
      if (hidden) {
        this.loose[p] = 1;
        changed = true;
      }
    }
    return changed;
  }
}

/** A condition with no more operations than this, in fusions too, compares a counter or a flag. */
const PLAIN_CONDITION = 12;

/** Whether the group adds nothing: the condition of a loop that is plain or says "×12". */
function saysNothing(tree: Tree, group: number, operations: number): boolean {
  const { model } = tree;
  if (model.groupKind(group) !== "condition") return false;
  const owner = model.group.owner[group];
  return owner >= 0 && (operations <= PLAIN_CONDITION || /×\d/.test(model.label(owner)));
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
    if (!all && tree.isGroup(v) && saysNothing(tree, v - tree.instructions, weight[v]))
      weight[v] = 0;
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

/** The container's share of the program's arithmetic, 0 .. 1. */
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

/** Groups that show how rather than what; closed at first unless the module is tiny. */
export const INNER = new Set(["fusion", "reducer", "condition", "unreachable"]);
