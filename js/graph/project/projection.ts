/**
 * What the picture shows: the boxes and containers that are visible for an openness, and the data
 * edges lifted to them. An edge between instructions becomes an edge between the two siblings that
 * contain them, in the innermost container that contains both.
 */
import { type Flow, Hidden } from "./flow.ts";
import { type Openness, visibleChildren } from "./openness.ts";
import type { Tree } from "./tree.ts";

export const enum ItemKind {
  /** An instruction. */
  Box = 0,
  /** A closed group or a closed caller. */
  Closed = 1,
  /** A closed part of a fold. */
  Stack = 2,
  /** An open container, or an open part of a fold, which shows the first of its members. */
  Open = 3,
}

export interface Projection {
  /** Tree node of each item; item 0 is the root container. Parents come before children. */
  nodes: Int32Array;
  kind: Uint8Array;
  /** Containing item, -1 for item 0. */
  parent: Int32Array;
  depth: Uint8Array;
  childOffsets: Uint32Array;
  children: Uint32Array;
  /** For stacks: the position after the last member (the node gives the first). */
  stackEnd: Int32Array;
  /**
   * Containers merged into the item, outermost first: the one that an open part of a fold shows, and
   * only children.
   */
  absorbed: Map<number, number[]>;
  /** Item of each instruction, or of what hides it; -1 if it is not drawn at all. */
  itemOfInstruction: Int32Array;
  /** Item of each group, or of what hides it. */
  itemOfGroup: Int32Array;
  /** Lifted edges into each item, ordered by source item: CSR. */
  inOffsets: Uint32Array;
  inFrom: Uint32Array;
  /**
   * What the arrow is worth where an order must be chosen; see `countSteps`. -1 for one that runs
   * against the order in which the program makes the two calls.
   */
  inSteps: Float64Array;
  /** Number of instruction edges behind each lifted edge, and the value of one of them. */
  inCount: Uint32Array;
  inValue: Uint32Array;
  /** 1 if all of them carry that value. */
  inSingle: Uint8Array;
}

export function project(
  tree: Tree,
  flow: Flow,
  weight: Uint32Array,
  openness: Openness,
): Projection {
  const nodes: number[] = [tree.root];
  const kind: number[] = [ItemKind.Open];
  const parent: number[] = [-1];
  const depth: number[] = [0];
  const stackEnd: number[] = [-1];
  const absorbed = new Map<number, number[]>();
  const childOffsets: number[] = [0];
  const children: number[] = [];
  const itemOfNode = new Int32Array(tree.size).fill(-1);
  itemOfNode[tree.root] = 0;
  // Breadth first, so that the children of an item are next to each other.
  for (let item = 0; item < nodes.length; item++) {
    if (kind[item] === ItemKind.Open) {
      let inside = nodes[item];
      if (inside >= tree.stacks) {
        inside = tree.firstOf(inside);
        itemOfNode[inside] = item;
        absorbed.set(item, [inside]);
      }
      let kids = visibleChildren(tree, flow, weight, openness, inside);
      while (kids.length === 1 && kids[0] < tree.stacks && openness.open[kids[0]]) {
        const only = kids[0];
        const held = visibleChildren(tree, flow, weight, openness, only);
        if (held.length === 0 || (item === 0 && isFrame(tree, only))) break;
        itemOfNode[only] = item;
        const list = absorbed.get(item) ?? [];
        list.push(only);
        absorbed.set(item, list);
        kids = held;
      }
      for (const v of kids) {
        const index = nodes.length;
        itemOfNode[v] = index;
        nodes.push(v);
        parent.push(item);
        depth.push(depth[item] + 1);
        children.push(index);
        stackEnd.push(v >= tree.stacks ? stackEndOf(tree, openness, v - tree.stacks) : -1);
        kind.push(kindOf(tree, weight, openness, v));
      }
    }
    childOffsets.push(children.length);
  }
  const { itemOfInstruction, itemOfGroup } = coverAll(tree, flow, openness, itemOfNode);
  const projection: Projection = {
    nodes: Int32Array.from(nodes),
    kind: Uint8Array.from(kind),
    parent: Int32Array.from(parent),
    depth: Uint8Array.from(depth),
    childOffsets: Uint32Array.from(childOffsets),
    children: Uint32Array.from(children),
    stackEnd: Int32Array.from(stackEnd),
    absorbed,
    itemOfInstruction,
    itemOfGroup,
    inOffsets: new Uint32Array(0),
    inFrom: new Uint32Array(0),
    inSteps: new Float64Array(0),
    inCount: new Uint32Array(0),
    inValue: new Uint32Array(0),
    inSingle: new Uint8Array(0),
  };
  liftEdges(projection, flow, weight);
  markAgainst(projection, tree);
  return projection;
}

/** Whether a container says something that the whole picture, which has no title, does not. */
function isFrame(tree: Tree, node: number): boolean {
  if (node < tree.instructions) return tree.model.opcode(node) === "while";
  return tree.isGroup(node) && tree.model.groupKind(tree.groupOf(node)) === "scope";
}

function kindOf(tree: Tree, weight: Uint32Array, openness: Openness, v: number): ItemKind {
  if (v >= tree.stacks) {
    const first = tree.firstOf(v);
    return openness.open[first] && weight[first] > 0 ? ItemKind.Open : ItemKind.Stack;
  }
  const opens = tree.canOpen(v);
  if (opens && openness.open[v] && weight[v] > (v < tree.instructions ? 1 : 0)) {
    return ItemKind.Open;
  }
  return v < tree.instructions ? ItemKind.Box : ItemKind.Closed;
}

function stackEndOf(tree: Tree, openness: Openness, first: number): number {
  const end = tree.model.fold.members.offsets[tree.foldAt[first] + 1];
  let p = first + 1;
  while (p < end && !openness.loose[p]) p++;
  return p;
}

/** The item that shows or hides each instruction and group, found in one pass downwards. */
function coverAll(
  tree: Tree,
  flow: Flow,
  openness: Openness,
  itemOfNode: Int32Array,
): { itemOfInstruction: Int32Array; itemOfGroup: Int32Array } {
  const n = tree.instructions;
  const { parent } = tree;
  const { offsets } = tree.model.fold.members;
  const cover = new Int32Array(tree.stacks).fill(-1);
  for (const v of tree.containers) {
    if (itemOfNode[v] >= 0) {
      cover[v] = itemOfNode[v];
      continue;
    }
    const p = v >= n ? tree.memberAt[v - n] : -1;
    if (p >= 0 && !openness.loose[p]) {
      let first = p;
      const begin = offsets[tree.foldAt[p]];
      while (first > begin && !openness.loose[first - 1]) first--;
      const stack = itemOfNode[tree.stacks + first];
      if (stack >= 0) {
        cover[v] = stack;
        continue;
      }
    }
    if (parent[v] >= 0) cover[v] = cover[parent[v]];
  }
  const itemOfInstruction = new Int32Array(n);
  const { hidden } = flow;
  for (let i = 0; i < n; i++) {
    if (itemOfNode[i] >= 0) {
      itemOfInstruction[i] = itemOfNode[i];
      continue;
    }
    const p = parent[i];
    const item = cover[p];
    // Hidden instructions (chips, plumbing) are not drawn even where their container is open.
    const drawn = hidden[i] === Hidden.No || itemOfNode[p] !== item || !openness.open[p];
    itemOfInstruction[i] = drawn ? item : -1;
  }
  const itemOfGroup = new Int32Array(tree.groups);
  for (let g = 0; g < tree.groups; g++) itemOfGroup[g] = cover[tree.node(g)];
  return { itemOfInstruction, itemOfGroup };
}

function liftEdges(p: Projection, flow: Flow, weight: Uint32Array): void {
  const { parent, depth, itemOfInstruction: item } = p;
  const count = p.nodes.length;
  let from = new Uint32Array(1024);
  let to = new Uint32Array(1024);
  let link = new Uint32Array(1024);
  let user = new Uint32Array(1024);
  let m = 0;
  for (let i = 0; i < item.length; i++) {
    const target = item[i];
    if (target < 0 || flow.hidden[i] !== Hidden.No) continue;
    for (let e = flow.offsets[i]; e < flow.offsets[i + 1]; e++) {
      let u = item[flow.sources[e]];
      let v = target;
      if (u < 0 || u === v) continue;
      while (depth[u] > depth[v]) u = parent[u];
      while (depth[v] > depth[u]) v = parent[v];
      if (u === v) continue;
      while (parent[u] !== parent[v]) {
        u = parent[u];
        v = parent[v];
      }
      if (m === from.length) {
        from = grow(from);
        to = grow(to);
        link = grow(link);
        user = grow(user);
      }
      from[m] = u;
      to[m] = v;
      user[m] = i;
      link[m++] = e;
    }
  }
  const byFrom = countingSort(from, null, m, count);
  const order = countingSort(to, byFrom, m, count);
  const inOffsets = new Uint32Array(count + 1);
  const inFrom = new Uint32Array(m);
  const inCount = new Uint32Array(m);
  const inSteps = new Float64Array(m).fill(1);
  const inValue = new Uint32Array(m);
  const inSingle = new Uint8Array(m);
  let k = 0;
  for (let at = 0; at < m; at++) {
    const e = order[at];
    if (at > 0 && from[order[at - 1]] === from[e] && to[order[at - 1]] === to[e]) {
      inCount[k - 1]++;
      if (inValue[k - 1] !== flow.sources[link[e]]) inSingle[k - 1] = 0;
      continue;
    }
    inFrom[k] = from[e];
    inCount[k] = 1;
    inValue[k] = flow.sources[link[e]];
    inSingle[k] = 1;
    inOffsets[to[e] + 1]++;
    k++;
  }
  for (let v = 0; v < count; v++) inOffsets[v + 1] += inOffsets[v];
  countSteps(p, flow, weight, { from, to, link, user, order, m }, inSteps);
  p.inOffsets = inOffsets;
  p.inFrom = inFrom.subarray(0, k);
  p.inCount = inCount.subarray(0, k);
  p.inSteps = inSteps.subarray(0, k);
  p.inValue = inValue.subarray(0, k);
  p.inSingle = inSingle.subarray(0, k);
}

interface Lifted {
  from: Uint32Array;
  to: Uint32Array;
  link: Uint32Array;
  user: Uint32Array;
  order: Uint32Array;
  m: number;
}

/**
 * What an arrow is worth: the most instructions in a row that its item has behind the value, times
 * those that the other item has before it from there on. A mask that XLA computed once for two calls
 * stands in one of them and has few steps there; a norm that an optimizer gives to a sum of
 * gradients has few steps to go, and the sums have most of the optimizer before them. Counted only
 * in containers whose items need one another, where an order must be chosen.
 */
function countSteps(
  p: Projection,
  flow: Flow,
  weight: Uint32Array,
  lifted: Lifted,
  inSteps: Float64Array,
): void {
  const { parent, depth, itemOfInstruction: item } = p;
  const { from, to, link, user, order, m } = lifted;
  const levels = new Set<number>();
  for (let e = 0; e < m; e++) if (from[e] >= to[e]) levels.add(depth[from[e]]);
  const steps = new Map<number, { before: Float64Array; after: Float64Array }>();
  for (const level of levels) {
    const at = new Int32Array(p.nodes.length); // the item of this level that holds each item
    for (let v = 0; v < at.length; v++) {
      at[v] = depth[v] < level ? -1 : depth[v] === level ? v : at[parent[v]];
    }
    const before = new Float64Array(item.length);
    const after = new Float64Array(item.length);
    const mine = (i: number): number =>
      item[i] < 0 || flow.hidden[i] !== Hidden.No ? -1 : at[item[i]];
    for (let i = 0; i < item.length; i++) {
      if (mine(i) < 0) continue;
      for (let e = flow.offsets[i]; e < flow.offsets[i + 1]; e++) {
        const source = flow.sources[e];
        if (mine(source) === mine(i)) before[i] = Math.max(before[i], before[source]);
      }
      before[i] += weight[i];
    }
    for (let i = item.length - 1; i >= 0; i--) {
      if (mine(i) < 0) continue;
      after[i] += weight[i];
      for (let e = flow.offsets[i]; e < flow.offsets[i + 1]; e++) {
        const source = flow.sources[e];
        if (mine(source) === mine(i)) after[source] = Math.max(after[source], after[i]);
      }
    }
    steps.set(level, { before, after });
  }
  let k = -1;
  for (let n = 0; n < m; n++) {
    const e = order[n];
    const same = n > 0 && from[order[n - 1]] === from[e] && to[order[n - 1]] === to[e];
    if (!same) k++;
    const found = steps.get(depth[from[e]]);
    if (!found) continue;
    const worth = found.before[flow.sources[link[e]]] * found.after[user[e]];
    inSteps[k] = Math.max(inSteps[k], worth);
  }
}

/** The compiler keeps in one call what two share, or writes in one fusion what both want. */
function markAgainst(p: Projection, tree: Tree): void {
  const { turn } = tree.model.group;
  if (!turn) return;
  for (let v = 0; v < p.nodes.length; v++) {
    const mine = tree.isGroup(p.nodes[v]) ? turn[tree.groupOf(p.nodes[v])] : 0;
    if (mine === 0) continue;
    for (let e = p.inOffsets[v]; e < p.inOffsets[v + 1]; e++) {
      const u = p.nodes[p.inFrom[e]];
      if (tree.isGroup(u) && tree.parent[u] === tree.parent[p.nodes[v]]) {
        if (turn[tree.groupOf(u)] > mine) p.inSteps[e] = -1;
      }
    }
  }
}

/** Stable order by key of 0..m, or of `order` if it is given. */
function countingSort(
  key: Uint32Array,
  order: Uint32Array | null,
  m: number,
  keys: number,
): Uint32Array {
  const at = new Uint32Array(keys + 1);
  for (let e = 0; e < m; e++) at[key[e] + 1]++;
  for (let v = 0; v < keys; v++) at[v + 1] += at[v];
  const out = new Uint32Array(m);
  for (let k = 0; k < m; k++) {
    const e = order ? order[k] : k;
    out[at[key[e]]++] = e;
  }
  return out;
}

function grow(array: Uint32Array): Uint32Array<ArrayBuffer> {
  const out = new Uint32Array(array.length * 2);
  out.set(array);
  return out;
}
