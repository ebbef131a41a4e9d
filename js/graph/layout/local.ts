/**
 * One open container as a graph of its own, without sizes: which edges are drawn, which become
 * labelled stubs, which run against the flow, and the rank of every node. Nodes are 0..n-1 in
 * schedule order.
 */
import { markBackEdges } from "./cycles.ts";
import { EdgeKind } from "./edges.ts";
import { fillRanks } from "./rank.ts";
import { reduceTransitively } from "./reduce.ts";

export interface LocalGraph {
  n: number;
  from: Int32Array;
  to: Int32Array;
  kind: Uint8Array;
  /** Number of edges into each node that are left out because others imply them. */
  implied: Uint16Array;
  /** Connected components over drawn edges, numbered in order of their first node. */
  component: Int32Array;
  components: number;
  /** Within the component; every Plain edge goes to a larger rank. */
  rank: Int32Array;
}

export interface LocalOptions {
  /** Values with more users than this become stubs. */
  maxUsers: number;
  /** Edges that span more ranks than this become stubs. */
  maxSpan: number;
  /** Nodes that are always allowed side by side; large graphs may be wider. */
  maxWidth: number;
}

export const LOCAL_OPTIONS: LocalOptions = { maxUsers: 12, maxSpan: 20, maxWidth: 5 };

export function prepareLocal(
  n: number,
  from: Int32Array,
  to: Int32Array,
  weight: ArrayLike<number>,
  options: LocalOptions = LOCAL_OPTIONS,
): LocalGraph {
  const m = from.length;
  const kind = new Uint8Array(m);
  const implied = new Uint16Array(n);
  markBackEdges(n, from, to, weight, kind);
  reduceTransitively(n, from, to, kind, implied);
  cutHubs(n, from, to, kind, options.maxUsers);
  const width = Math.max(options.maxWidth, Math.ceil(0.9 * Math.sqrt(n)));
  const rank = new Int32Array(n);
  // Rank everything first: only then is it known which edges are too long to draw.
  fillRanks(n, from, to, kind, rank, width, true);
  let cut = false;
  for (let e = 0; e < m; e++) {
    if (kind[e] === EdgeKind.Plain && rank[to[e]] - rank[from[e]] > options.maxSpan) {
      kind[e] = EdgeKind.Stub;
      cut = true;
    }
  }
  const { component, components } = connect(n, from, to, kind);
  if (cut || components > 1) {
    fillRanks(n, from, to, kind, rank, width, false, component);
    const first = new Int32Array(components).fill(0x7fffffff);
    for (let v = 0; v < n; v++) first[component[v]] = Math.min(first[component[v]], rank[v]);
    for (let v = 0; v < n; v++) rank[v] -= first[component[v]];
  }
  return { n, from, to, kind, implied, component, components, rank };
}

/** A value used all over the container would be a fan of lines; it becomes labelled chips. */
function cutHubs(
  n: number,
  from: Int32Array,
  to: Int32Array,
  kind: Uint8Array,
  maxUsers: number,
): void {
  const users = new Uint32Array(n);
  for (let e = 0; e < from.length; e++) if (kind[e] === EdgeKind.Plain) users[from[e]]++;
  for (let e = 0; e < to.length; e++) {
    if (kind[e] === EdgeKind.Plain && users[from[e]] > maxUsers) kind[e] = EdgeKind.Stub;
  }
}

function connect(
  n: number,
  from: Int32Array,
  to: Int32Array,
  kind: Uint8Array,
): { component: Int32Array; components: number } {
  const root = new Int32Array(n);
  for (let v = 0; v < n; v++) root[v] = v;
  const find = (v: number): number => {
    let u = v;
    while (root[u] !== u) {
      root[u] = root[root[u]];
      u = root[u];
    }
    return u;
  };
  for (let e = 0; e < from.length; e++) {
    if (kind[e] === EdgeKind.Stub || kind[e] === EdgeKind.Implied) continue;
    const a = find(from[e]);
    const b = find(to[e]);
    if (a < b) root[b] = a;
    else root[a] = b;
  }
  const component = new Int32Array(n);
  let components = 0;
  for (let v = 0; v < n; v++) {
    const r = find(v);
    component[v] = r === v ? components++ : component[r];
  }
  return { component, components };
}
