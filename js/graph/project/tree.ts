/**
 * The containment tree of a View, fixed for its lifetime: what contains what, whatever is open.
 *
 * Nodes are numbers: instruction i is i, group g is n + g, and the part of a fold that begins at
 * member position p (see `fold.members`) is n + groups + p. A computation that is the only one
 * called by its caller has no node of its own: opening the caller shows its contents.
 */
import type { ViewModel } from "../../base/model.ts";

export class Tree {
  readonly instructions: number;
  readonly groups: number;
  /** Number of the first node that is a fold part. */
  readonly stacks: number;
  readonly size: number;
  /** Container of each instruction and group node; -1 for the root and for absorbed groups. */
  readonly parent: Int32Array;
  /** Children in schedule order, both instructions and groups, but no folds: CSR. */
  readonly childOffsets: Uint32Array;
  readonly children: Uint32Array;
  /** Nodes with parents before children. */
  readonly topDown: Uint32Array;
  /** Those of them that contain something. */
  readonly containers: Uint32Array;
  /** Position in the schedule: see `group.order`. */
  readonly key: Float64Array;
  /** Position in `fold.members` of each group, or -1. */
  readonly memberAt: Int32Array;
  /** Fold of each position of `fold.members`. */
  readonly foldAt: Uint32Array;
  private nodeOfGroup: Uint32Array;

  constructor(readonly model: ViewModel) {
    const { instruction, group, fold } = model;
    const n = instruction.count;
    this.instructions = n;
    this.groups = group.count;
    this.stacks = n + group.count;
    this.foldAt = new Uint32Array(fold.members.values.length);
    this.size = this.stacks + this.foldAt.length;
    this.memberAt = new Int32Array(group.count).fill(-1);
    for (let f = 0; f < fold.count; f++) {
      for (let p = fold.members.offsets[f]; p < fold.members.offsets[f + 1]; p++) {
        this.foldAt[p] = f;
        this.memberAt[fold.members.values[p]] = p;
      }
    }
    const owned = new Uint16Array(n);
    for (let g = 0; g < group.count; g++) if (group.owner[g] >= 0) owned[group.owner[g]]++;
    this.nodeOfGroup = new Uint32Array(group.count);
    for (let g = 0; g < group.count; g++) {
      const owner = group.owner[g];
      this.nodeOfGroup[g] = owner >= 0 && owned[owner] === 1 ? owner : n + g;
    }
    this.parent = new Int32Array(this.stacks).fill(-1);
    for (let i = 0; i < n; i++) this.parent[i] = this.nodeOfGroup[instruction.group[i]];
    for (let g = 0; g < group.count; g++) {
      if (this.nodeOfGroup[g] !== n + g) continue;
      const owner = group.owner[g];
      if (owner >= 0) this.parent[n + g] = owner;
      else if (group.parent[g] >= 0) this.parent[n + g] = this.nodeOfGroup[group.parent[g]];
    }
    this.topDown = this.sortTopDown();
    this.key = new Float64Array(this.stacks);
    for (let v = 0; v < this.stacks; v++) this.key[v] = v < n ? v : group.order[v - n];
    [this.childOffsets, this.children] = this.listChildren();
    this.containers = this.topDown.filter((v) => v >= n || this.canOpen(v));
  }

  get root(): number {
    return this.nodeOfGroup[0];
  }
  node(group: number): number {
    return this.nodeOfGroup[group];
  }
  /**
   * The nodes of the equal groups in a row of which a node is one, or that a part of a fold belongs
   * to: the node itself, if it is neither.
   */
  alike(node: number): number[] {
    const own = this.isGroup(node) ? this.memberAt[node - this.instructions] : -1;
    const at = node >= this.stacks ? node - this.stacks : own;
    if (at < 0) return [node];
    const { offsets, values } = this.model.fold.members;
    const fold = this.foldAt[at];
    return Array.from(values.subarray(offsets[fold], offsets[fold + 1]), (g) => this.node(g));
  }
  /** The group that a container node shows: its own, or the computation it calls; -1 for leaves. */
  groupOf(node: number): number {
    if (node >= this.instructions) return node - this.instructions;
    const { called, computation } = this.model;
    for (let e = called.offsets[node]; e < called.offsets[node + 1]; e++) {
      const g = computation.group[called.values[e]];
      if (g >= 0 && this.nodeOfGroup[g] === node) return g;
    }
    return -1;
  }
  /** The group that stands for a part of a fold: its first. */
  firstOf(stack: number): number {
    return this.nodeOfGroup[this.model.fold.members.values[stack - this.stacks]];
  }
  canOpen(node: number): boolean {
    return node >= this.stacks || this.childOffsets[node + 1] > this.childOffsets[node];
  }
  isGroup(node: number): boolean {
    return node >= this.instructions && node < this.stacks;
  }

  private sortTopDown(): Uint32Array {
    const depth = new Int32Array(this.stacks).fill(-1);
    const chain: number[] = [];
    let deepest = 0;
    for (let v = 0; v < this.stacks; v++) {
      let u = v;
      while (u >= 0 && depth[u] < 0 && chain.length <= this.stacks) {
        chain.push(u);
        u = this.parent[u];
      }
      let d = u >= 0 ? depth[u] : -1;
      while (chain.length > 0) depth[chain.pop() as number] = ++d;
      if (d > deepest) deepest = d;
    }
    const start = new Uint32Array(deepest + 2);
    for (let v = 0; v < this.stacks; v++) start[depth[v] + 1]++;
    for (let d = 0; d <= deepest; d++) start[d + 1] += start[d];
    const out = new Uint32Array(this.stacks);
    for (let v = 0; v < this.stacks; v++) out[start[depth[v]]++] = v;
    return out;
  }

  private listChildren(): [Uint32Array, Uint32Array] {
    const offsets = new Uint32Array(this.stacks + 1);
    for (let v = 0; v < this.stacks; v++) if (this.parent[v] >= 0) offsets[this.parent[v] + 1]++;
    for (let v = 0; v < this.stacks; v++) offsets[v + 1] += offsets[v];
    const groups = Array.from({ length: this.groups }, (_, g) => this.instructions + g);
    groups.sort((a, b) => this.key[a] - this.key[b] || a - b);
    const at = offsets.slice();
    const children = new Uint32Array(offsets[this.stacks]);
    let g = 0;
    const put = (v: number): void => {
      if (this.parent[v] >= 0) children[at[this.parent[v]]++] = v;
    };
    for (let i = 0; i < this.instructions; i++) {
      while (g < groups.length && this.key[groups[g]] <= i) put(groups[g++]);
      put(i);
    }
    while (g < groups.length) put(groups[g++]);
    return [offsets, children];
  }
}
