/**
 * The whole picture of one projection: sizes from the inside out, then positions from the outside
 * in. Layouts are cached by structure: of 96 equal layers only one is laid out.
 */

import { EdgeKind } from "./layout/edges.ts";
import {
  LAYOUT_OPTIONS,
  type LocalLayout,
  layoutLocal,
  type Ordered,
  orderGraph,
} from "./layout/layout.ts";
import { LOCAL_OPTIONS, type LocalGraph, prepareLocal } from "./layout/local.ts";
import { placeRows } from "./layout/rows.ts";
import * as M from "./metrics.ts";
import type { ItemText, ItemWriter, Stubs } from "./project/items.ts";
import { ItemKind, type Projection } from "./project/projection.ts";

export interface Picture {
  projection: Projection;
  /** Positions and sizes of items in world units. */
  x: Float64Array;
  y: Float64Array;
  w: Float64Array;
  h: Float64Array;
  text: ItemText[];
  /** Number of edges into each item that are left out because others imply them. */
  implied: Uint16Array;
  edges: PictureEdges;
  width: number;
  height: number;
  /** Ways that were chosen, to make pictures that follow alike. */
  ways: ReadonlyMap<number, number>;
}

/** Edges between siblings. Those that are not drawn (stubs, implied) have no points. */
export interface PictureEdges {
  count: number;
  from: Int32Array;
  to: Int32Array;
  kind: Uint8Array;
  /** Number of instruction edges behind it, and the value of one of them. */
  weight: Uint32Array;
  value: Uint32Array;
  /** 1 if all of them carry that value. */
  single: Uint8Array;
  style: Uint8Array;
  pointOffsets: Uint32Array;
  pointX: Float64Array;
  pointY: Float64Array;
}

interface Prepared {
  graph: LocalGraph;
  ordered: Ordered;
  key: string;
}

/** A cache of layouts; one per explorer. */
export class LayoutCache {
  private graphs = new Map<string, Prepared>();
  private layouts = new Map<string, LocalLayout>();
  hits = 0;
  misses = 0;
  /** Nodes and edges processed by layouts that were not cached; the tests of linearity count it. */
  work = 0;
  prepare(
    n: number,
    from: Int32Array,
    to: Int32Array,
    weight: Float64Array,
    maxWidth = LOCAL_OPTIONS.maxWidth,
  ): Prepared {
    const key = `${n}:${maxWidth}:${from.length}:${hash(from, 0x811c9dc5)}:${hash(to, 0x01234567)}:${hash(weight, 99)}`;
    let found = this.graphs.get(key);
    if (!found) {
      const graph = prepareLocal(n, from, to, weight, { ...LOCAL_OPTIONS, maxWidth });
      found = { graph, ordered: orderGraph(graph), key };
      if (this.graphs.size > 5000) this.graphs.clear();
      this.graphs.set(key, found);
    }
    return found;
  }
  layout(
    p: Prepared,
    w: Float64Array,
    h: Float64Array,
    aspect: number,
    wrapHeight: number,
    spread: number,
  ): LocalLayout {
    const key = `${p.key}:${hash(w, 7)}:${hash(h, 13)}:${aspect}:${wrapHeight}:${spread}`;
    let found = this.layouts.get(key);
    if (found) {
      this.hits++;
      return found;
    }
    this.misses++;
    const gapX = LAYOUT_OPTIONS.gapX * spread;
    const gapY = LAYOUT_OPTIONS.gapY * spread;
    const options = { ...LAYOUT_OPTIONS, gapX, gapY, aspect, wrapHeight: wrapHeight * spread };
    found = layoutLocal(p.graph, p.ordered, w, h, options);
    this.work += p.graph.n + p.graph.from.length;
    for (const part of p.ordered.parts) if (part) this.work += part.total - part.nodes.length;
    if (this.layouts.size > 5000) this.layouts.clear();
    this.layouts.set(key, found);
    return found;
  }
}

function hash(array: ArrayLike<number>, seed: number): string {
  let a = seed | 0;
  let b = ~seed | 0;
  for (let k = 0; k < array.length; k++) {
    const v = Math.round(array[k] * 16) | 0;
    a = Math.imul(a ^ v, 0x01000193) + (a >>> 15);
    b = Math.imul(b + v, 0x85ebca6b) ^ (b >>> 13);
  }
  return `${(a >>> 0).toString(36)}.${(b >>> 0).toString(36)}`;
}

/** How a picture is laid out. */
export interface PictureShape {
  /** Ratio of width to height to aim for. */
  aspect: number;
  /** Factor on the usual gaps. */
  spread?: number;
  /** Boxes that may always stand side by side. */
  most?: number;
  /** Way (`WAYS`) of each container that does not have the usual one, by tree node. */
  ways?: ReadonlyMap<number, number>;
  /**
   * Room for the picture, in world units: each container takes the way in which the whole fits, with
   * as few columns as possible, or is largest where it does not.
   */
  room?: { width: number; height: number };
}

/** A size that an item may have, with the layout of what is in it. */
interface Choice {
  width: number;
  height: number;
  /** Columns begun in it, beside the first of each container. */
  cuts: number;
  local: LocalLayout | null;
  /** Index in `WAYS`. */
  way: number;
  /** Which choice of each child. */
  picks: readonly number[];
}

/** A way to place what is in a container. */
interface Way {
  /** Chains of closed items are rows, read from left to right. */
  rows: boolean;
  /** Ratio of width to height to aim for. */
  aspect: number;
  /** Parts shorter than this, in world units, are not cut into columns. */
  wrap: number;
}
/** Nested containers are cut into columns later: cutting the outermost gives the better picture. */
const AS_USUAL: Way = { rows: false, aspect: 1.2, wrap: 760 };
/** The usual way comes first. The others use the width that a tall picture leaves free. */
export const WAYS: readonly Way[] = [
  AS_USUAL,
  { ...AS_USUAL, rows: true },
  { rows: false, aspect: 2.4, wrap: 200 },
];
/** The outermost container has the aspect of the pane, and is cut into columns from this height. */
const ROOT_WRAP = 420;
/** Choices that are kept of an item. */
const MOST_CHOICES = 8;

/** The choices of children that are tried together: all narrow, …, all wide. */
function picksOf(children: Uint32Array, choices: Choice[][]): number[][] {
  const out = new Map<string, number[]>();
  for (const share of [0, 0.33, 0.67, 1]) {
    const picks = Array.from(children, (v) => Math.round(share * (choices[v].length - 1)));
    out.set(picks.join(), picks);
  }
  return [...out.values()];
}

/** Those of which none is both narrower and lower, from the narrowest to the widest. */
function narrowToWide(choices: Choice[]): Choice[] {
  const sorted = [...choices].sort((a, b) => a.width - b.width || a.height - b.height);
  const out: Choice[] = [];
  for (const c of sorted) {
    const last = out.at(-1);
    if (!last || c.height < last.height * 0.97) out.push(c);
  }
  while (out.length > MOST_CHOICES) out.splice(out.length >> 1, 1);
  return out;
}

/** The one with fewest columns of those that fit, the largest of them; else the largest of all. */
function bestIn(room: { width: number; height: number }, choices: Choice[]): Choice {
  const size = (c: Choice): number => Math.min(room.width / c.width, room.height / c.height);
  const order = (a: Choice, b: Choice): number =>
    (size(a) >= 1 && size(b) >= 1 ? a.cuts - b.cuts : 0) || size(b) - size(a);
  return [...choices].sort((a, b) => Number(size(b) >= 1) - Number(size(a) >= 1) || order(a, b))[0];
}

/**
 * Sizes from the inside out: each container has a few, from narrow to wide, and the outermost takes
 * those with which the picture fits (the shape functions of floorplans, Stockmeyer 1983).
 */
export function layoutPicture(
  projection: Projection,
  writer: ItemWriter,
  cache: LayoutCache,
  { aspect, spread = 1, most, ways: given, room }: PictureShape,
): Picture {
  const { kind, childOffsets, children, inOffsets, inFrom } = projection;
  const count = projection.nodes.length;
  const m = inFrom.length;
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  const w = new Float64Array(count);
  const h = new Float64Array(count);
  const text = new Array<ItemText>(count);
  const implied = new Uint16Array(count);
  const to = new Int32Array(m);
  for (let v = 0; v < count; v++) for (let e = inOffsets[v]; e < inOffsets[v + 1]; e++) to[e] = v;
  const edgeKind = new Uint8Array(m);
  const style = new Uint8Array(m);

  // 1. Containers as local graphs: stubs must be known before sizes.
  const prepared = new Map<number, Prepared>();
  const edgesOf = new Map<number, Int32Array>();
  const stubs = new Map<number, Stubs>();
  const place = new Int32Array(count);
  for (let item = 0; item < count; item++) {
    if (kind[item] !== ItemKind.Open) continue;
    const begin = childOffsets[item];
    const n = childOffsets[item + 1] - begin;
    let edges = 0;
    for (let k = 0; k < n; k++) {
      place[children[begin + k]] = k;
      edges += inOffsets[children[begin + k] + 1] - inOffsets[children[begin + k]];
    }
    const ids = new Int32Array(edges);
    const from = new Int32Array(edges);
    const into = new Int32Array(edges);
    const weight = new Float64Array(edges);
    let at = 0;
    for (let k = 0; k < n; k++) {
      const v = children[begin + k];
      for (let e = inOffsets[v]; e < inOffsets[v + 1]; e++) {
        ids[at] = e;
        from[at] = place[inFrom[e]];
        weight[at] = projection.inSteps[e];
        into[at++] = k;
      }
    }
    const p = cache.prepare(n, from, into, weight, most);
    prepared.set(item, p);
    edgesOf.set(item, ids);
    for (let e = 0; e < edges; e++) {
      edgeKind[ids[e]] = p.graph.kind[e];
      const back = p.graph.kind[e] === EdgeKind.Back;
      if (back || p.graph.kind[e] === EdgeKind.Stub) addStub(ids[e], back);
    }
    for (let k = 0; k < n; k++) implied[children[begin + k]] = p.graph.implied[k];
  }
  function addStub(e: number, back: boolean): void {
    const value = projection.inValue[e];
    const at = (item: number): Stubs => {
      const found = stubs.get(item) ?? { from: [], uses: 0, backUses: 0, value };
      stubs.set(item, found);
      return found;
    };
    const source = at(inFrom[e]);
    if (back) source.backUses++;
    else source.uses++;
    source.value = value;
    at(to[e]).from.push({ value, item: inFrom[e], back });
  }

  // 2. Sizes, children first: items list parents before children, so go backwards.
  const choices = new Array<Choice[]>(count);
  for (let item = count - 1; item >= 0; item--) {
    const words = writer.write(projection, item, stubs.get(item));
    text[item] = words;
    if (kind[item] !== ItemKind.Open) {
      const [width, height] = [Math.ceil(words.width), Math.ceil(words.height)];
      choices[item] = [{ width, height, cuts: 0, local: null, way: 0, picks: [] }];
      continue;
    }
    const mine = children.subarray(childOffsets[item], childOffsets[item + 1]);
    const p = prepared.get(item) as Prepared;
    const closed = (k: number): boolean => kind[mine[k]] !== ItemKind.Open;
    const pad = item === 0 ? M.ROOT_PAD : M.PAD;
    const header = item === 0 ? 0 : M.HEADER_HEIGHT;
    const found: Choice[] = [];
    const tried = room ? WAYS.keys() : [given?.get(projection.nodes[item]) ?? 0];
    for (const way of tried) {
      const { rows, wrap, aspect: inner } = WAYS[way];
      const [ratio, from] = item === 0 ? [aspect, Math.min(ROOT_WRAP, wrap)] : [inner, wrap];
      for (const picks of picksOf(mine, choices)) {
        const cw = Float64Array.from(mine, (v, k) => choices[v][picks[k]].width);
        const ch = Float64Array.from(mine, (v, k) => choices[v][picks[k]].height);
        const inside = mine.reduce((sum, v, k) => sum + choices[v][picks[k]].cuts, 0);
        const local = placeRows(p.graph, rows ? closed : null, cw, ch, (graph, width, height) => {
          const q = graph ? cache.prepare(graph.n, graph.from, graph.to, graph.weight, most) : p;
          return cache.layout(q, width, height, ratio, from, spread);
        });
        const width = Math.ceil(Math.max(local.width + 2 * pad, item === 0 ? 0 : words.width));
        const height = Math.ceil(local.height + 2 * pad + header);
        found.push({ width, height, cuts: inside + local.cuts, local, way, picks });
      }
    }
    choices[item] = item === 0 ? [room ? bestIn(room, found) : found[0]] : narrowToWide(found);
  }
  const layouts = new Map<number, LocalLayout>();
  const ways = new Map<number, number>();
  const chosen = new Uint8Array(count);
  for (let item = 0; item < count; item++) {
    const { width, height, local, way, picks } = choices[item][chosen[item]];
    if (way > 0) ways.set(projection.nodes[item], way);
    w[item] = width;
    h[item] = height;
    if (!local) continue;
    layouts.set(item, local);
    for (let k = 0; k < picks.length; k++) chosen[children[childOffsets[item] + k]] = picks[k];
    writer.fitTitle(text[item], width);
  }

  // 3. Positions, parents first.
  const pointOffsets = new Uint32Array(m + 1);
  for (let item = 0; item < count; item++) {
    const local = layouts.get(item);
    if (!local) continue;
    const pad = item === 0 ? M.ROOT_PAD : M.PAD;
    // Narrow contents are centred under a wide title.
    const left = x[item] + Math.max(pad, (w[item] - local.width) / 2);
    const top = y[item] + pad + (item === 0 ? 0 : M.HEADER_HEIGHT);
    const begin = childOffsets[item];
    for (let k = 0; k < childOffsets[item + 1] - begin; k++) {
      x[children[begin + k]] = left + local.x[k];
      y[children[begin + k]] = top + local.y[k];
    }
    const ids = edgesOf.get(item) as Int32Array;
    for (let e = 0; e < ids.length; e++) {
      const points = local.routes.offsets[e + 1] - local.routes.offsets[e];
      pointOffsets[ids[e] + 1] = points;
      if (points === 0 && edgeKind[ids[e]] === EdgeKind.Plain) {
        edgeKind[ids[e]] = EdgeKind.Implied; // by others between the same rows of boxes
        implied[to[ids[e]]]++;
      }
      style[ids[e]] = local.routes.style[e];
    }
  }
  for (let e = 0; e < m; e++) pointOffsets[e + 1] += pointOffsets[e];
  const pointX = new Float64Array(pointOffsets[m]);
  const pointY = new Float64Array(pointOffsets[m]);
  for (const [item, local] of layouts) {
    const pad = item === 0 ? M.ROOT_PAD : M.PAD;
    const left = x[item] + Math.max(pad, (w[item] - local.width) / 2);
    const top = y[item] + pad + (item === 0 ? 0 : M.HEADER_HEIGHT);
    const ids = edgesOf.get(item) as Int32Array;
    for (let e = 0; e < ids.length; e++) {
      let at = pointOffsets[ids[e]];
      for (let k = local.routes.offsets[e]; k < local.routes.offsets[e + 1]; k++) {
        pointX[at] = left + local.routes.x[k];
        pointY[at++] = top + local.routes.y[k];
      }
    }
  }
  return {
    projection,
    x,
    y,
    w,
    h,
    text,
    implied,
    edges: {
      count: m,
      from: Int32Array.from(inFrom),
      to,
      kind: edgeKind,
      weight: projection.inCount,
      value: projection.inValue,
      single: projection.inSingle,
      style,
      pointOffsets,
      pointX,
      pointY,
    },
    width: w[0],
    height: h[0],
    ways,
  };
}
