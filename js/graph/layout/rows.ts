/**
 * A chain of small boxes is a row, read from left to right: three steps that only follow one
 * another then take the height of one.
 *
 *     embed                        embed → all-reduce → norm
 *       │                                                │
 *     all-reduce                 ┌───────────────────────────────┐
 *       │               becomes  │ layers                        │
 *     norm                       └───────────────────────────────┘
 *       │
 *     ┌────────────┐
 *     │ layers     │
 */
import { EdgeKind } from "./edges.ts";
import type { LocalLayout } from "./layout.ts";
import type { LocalGraph } from "./local.ts";
import { RouteStyle } from "./routes.ts";

/** Boxes in one row, and its width in world units: a longer one is wider than what is around it. */
const MOST = 4;
const WIDEST = 460;
/** Space for an arrow within a row. */
const GAP = 24;

interface Rows {
  /** The boxes of each row, first to last; a box that is in no row is one by itself. */
  rows: number[][];
  /** Row of each box. */
  of: Int32Array;
  /** The edges between rows. */
  edges: number[];
}

/** A graph whose nodes are rows. */
export interface RowGraph {
  n: number;
  from: Int32Array;
  to: Int32Array;
  weight: Float64Array;
}

/**
 * Places the boxes of a container with its chains as rows. `closed` says which boxes may be in one;
 * `place` makes a layout of the rows, or of the boxes themselves where there is no graph of rows.
 */
export function placeRows(
  graph: LocalGraph,
  closed: ((v: number) => boolean) | null,
  w: Float64Array,
  h: Float64Array,
  place: (rows: RowGraph | null, w: Float64Array, h: Float64Array) => LocalLayout,
): LocalLayout {
  const found = closed && findRows(graph, closed, w);
  if (!found) return place(null, w, h);
  const { rows, of, edges } = found;
  const width = Float64Array.from(rows, (row) => row.reduce((sum, v) => sum + w[v] + GAP, -GAP));
  const height = Float64Array.from(rows, (row) => Math.max(...row.map((v) => h[v])));
  const placed = place(
    {
      n: rows.length,
      from: Int32Array.from(edges, (e) => of[graph.from[e]]),
      to: Int32Array.from(edges, (e) => of[graph.to[e]]),
      weight: new Float64Array(edges.length).fill(1),
    },
    width,
    height,
  );
  return spreadRows(graph, found, placed, height, w, h);
}

/** Rows of a graph; null if no two boxes are in one. */
function findRows(graph: LocalGraph, closed: (v: number) => boolean, w: Float64Array): Rows | null {
  const { n, from, to, kind } = graph;
  const next = new Int32Array(n).fill(-1);
  const before = new Int32Array(n).fill(-1);
  const ins = new Int32Array(n);
  const outs = new Int32Array(n);
  for (let e = 0; e < from.length; e++) {
    if (kind[e] !== EdgeKind.Plain) continue;
    outs[from[e]]++;
    ins[to[e]]++;
    next[from[e]] = to[e];
    before[to[e]] = from[e];
  }
  const follows = (v: number): boolean =>
    ins[v] === 1 && outs[before[v]] === 1 && closed(v) && closed(before[v]);
  const rows: number[][] = [];
  for (let v = 0; v < n; v++) {
    if (follows(v)) continue;
    let row = [v];
    let width = w[v];
    rows.push(row);
    for (let u = next[v]; u >= 0 && follows(u); u = next[u]) {
      width += GAP + w[u];
      if (row.length === MOST || width > WIDEST) {
        row = [];
        width = w[u];
        rows.push(row);
      }
      row.push(u);
    }
  }
  if (rows.length === n) return null;
  rows.sort((a, b) => Math.min(...a) - Math.min(...b)); // in schedule order, as boxes are
  const of = new Int32Array(n);
  for (let r = 0; r < rows.length; r++) for (const v of rows[r]) of[v] = r;
  const edges: number[] = [];
  for (let e = 0; e < from.length; e++) {
    if (kind[e] === EdgeKind.Plain && of[from[e]] !== of[to[e]]) edges.push(e);
  }
  return { rows, of, edges };
}

/** The layout of the boxes, from that of their rows. */
function spreadRows(
  graph: LocalGraph,
  { rows, of, edges }: Rows,
  placed: LocalLayout,
  height: Float64Array,
  w: Float64Array,
  h: Float64Array,
): LocalLayout {
  const { n, from, to, kind } = graph;
  const x = new Float64Array(n);
  const y = new Float64Array(n);
  for (let r = 0; r < rows.length; r++) {
    let at = placed.x[r];
    for (const v of rows[r]) {
      x[v] = at;
      y[v] = placed.y[r] + (height[r] - h[v]) / 2;
      at += w[v] + GAP;
    }
  }
  const m = from.length;
  const number = new Int32Array(m).fill(-1);
  for (let k = 0; k < edges.length; k++) number[edges[k]] = k;
  const offsets = new Uint32Array(m + 1);
  const style = new Uint8Array(m);
  const routeX: number[] = [];
  const routeY: number[] = [];
  for (let e = 0; e < m; e++) {
    const [a, b, k] = [from[e], to[e], number[e]];
    if (k >= 0) {
      const begin = placed.routes.offsets[k];
      const end = placed.routes.offsets[k + 1];
      const px = placed.routes.x.slice(begin, end);
      const py = placed.routes.y.slice(begin, end);
      style[e] = placed.routes.style[k];
      // A route leaves the last box of a row and arrives at the first.
      if (rows[of[a]].length > 1) moveEnd(px, py, x[a], w[a], y[a] + h[a], 1);
      if (rows[of[b]].length > 1) moveEnd(px, py, x[b], w[b], y[b], -1);
      level(py, [y[a], y[b]], [h[a], h[b]]);
      routeX.push(...px);
      routeY.push(...py);
    } else if (kind[e] === EdgeKind.Plain) {
      style[e] = RouteStyle.Square;
      const level = y[a] + h[a] / 2;
      routeX.push(x[a] + w[a], x[b]);
      routeY.push(level, level);
    }
    offsets[e + 1] = routeX.length;
  }
  const routes = { offsets, x: Float64Array.from(routeX), y: Float64Array.from(routeY), style };
  return { x, y, width: placed.width, height: placed.height, routes, cuts: placed.cuts };
}

/** Moves ends of a route at the sides of boxes that are lower than their rows, so that they meet them. */
function level(py: Float64Array, top: readonly number[], height: readonly number[]): void {
  const last = py.length - 1;
  const bottom = top.map((y, k) => y + height[k]);
  const meets = (end: number, k: number): boolean => py[end] > top[k] && py[end] < bottom[k];
  if (last === 1) {
    const [from, to] = [Math.max(...top), Math.min(...bottom)];
    if (py[0] === py[1] && from < to && !(meets(0, 0) && meets(1, 1))) py.fill((from + to) / 2);
    return;
  }
  for (const [end, next, k] of [
    [0, 1, 0],
    [last, last - 1, 1],
  ]) {
    if (last > 1 && py[end] === py[next] && !meets(end, k)) {
      py[end] = py[next] = top[k] + height[k] / 2;
    }
  }
}

/** Moves the first point of a route (`step` 1) or its last (-1), with the one straight below or above. */
function moveEnd(
  px: Float64Array,
  py: Float64Array,
  left: number,
  width: number,
  y: number,
  step: 1 | -1,
): void {
  const last = px.length - 1;
  const end = step > 0 ? 0 : last;
  // Routes at the sides of a row already end at one of its boxes.
  if (last < 1 || py[end] === py[end + step]) return;
  const beside = end + step;
  if (beside !== last - end && px[beside] === px[end]) px[beside] = left + width / 2;
  px[end] = left + width / 2;
  py[end] = y;
}
