/**
 * A connected component as layers: real nodes, and for each edge that spans several ranks a chain
 * of dummy nodes, so that every segment joins adjacent layers.
 */

import { EdgeKind } from "./edges.ts";
import type { LocalGraph } from "./local.ts";

export interface Layers {
  /** Real nodes come first; `nodes[k]` is the local node of real node k. */
  nodes: Int32Array;
  total: number;
  rank: Int32Array;
  ranks: number;
  /** Order within each rank: layer r is slots[offsets[r] .. offsets[r + 1]]. */
  offsets: Int32Array;
  slots: Int32Array;
  /** Segments: upper and lower end. */
  upper: Int32Array;
  lower: Int32Array;
  /** Drawn edges and their chains: edge id, first dummy, number of dummies. */
  edges: Int32Array;
  chainFirst: Int32Array;
  chainLength: Int32Array;
}

/** Nodes and edges of each component, in their own order: CSR over components. */
export interface Split {
  nodeOffsets: Int32Array;
  nodes: Int32Array;
  edgeOffsets: Int32Array;
  edges: Int32Array;
}

export function split(graph: LocalGraph): Split {
  const { n, component, components, kind, from } = graph;
  const nodeOffsets = new Int32Array(components + 1);
  const edgeOffsets = new Int32Array(components + 1);
  for (let v = 0; v < n; v++) nodeOffsets[component[v] + 1]++;
  let m = 0;
  for (let e = 0; e < from.length; e++) {
    if (kind[e] !== EdgeKind.Plain) continue;
    edgeOffsets[component[from[e]] + 1]++;
    m++;
  }
  for (let c = 0; c < components; c++) {
    nodeOffsets[c + 1] += nodeOffsets[c];
    edgeOffsets[c + 1] += edgeOffsets[c];
  }
  const nodeAt = nodeOffsets.slice();
  const edgeAt = edgeOffsets.slice();
  const nodes = new Int32Array(n);
  const edges = new Int32Array(m);
  for (let v = 0; v < n; v++) nodes[nodeAt[component[v]]++] = v;
  for (let e = 0; e < from.length; e++) {
    if (kind[e] === EdgeKind.Plain) edges[edgeAt[component[from[e]]]++] = e;
  }
  return { nodeOffsets, nodes, edgeOffsets, edges };
}

/** `place` receives each local node's number in the component; only entries of `nodes` are written. */
export function buildLayers(
  graph: LocalGraph,
  nodes: Int32Array,
  edges: Int32Array,
  place: Int32Array,
): Layers {
  const real = nodes.length;
  for (let k = 0; k < real; k++) place[nodes[k]] = k;
  let dummies = 0;
  for (const e of edges) dummies += graph.rank[graph.to[e]] - graph.rank[graph.from[e]] - 1;
  const total = real + dummies;
  const rank = new Int32Array(total);
  // Position in the schedule; dummies are interpolated between the two ends of their edge.
  const key = new Float64Array(total);
  let ranks = 0;
  for (let k = 0; k < real; k++) {
    rank[k] = graph.rank[nodes[k]];
    key[k] = k;
    if (rank[k] >= ranks) ranks = rank[k] + 1;
  }
  const upper = new Int32Array(edges.length + dummies);
  const lower = new Int32Array(edges.length + dummies);
  const chainFirst = new Int32Array(edges.length);
  const chainLength = new Int32Array(edges.length);
  let next = real;
  let s = 0;
  for (let c = 0; c < edges.length; c++) {
    const a = place[graph.from[edges[c]]];
    const b = place[graph.to[edges[c]]];
    const length = rank[b] - rank[a] - 1;
    chainFirst[c] = next;
    chainLength[c] = length;
    let last = a;
    for (let k = 1; k <= length; k++) {
      rank[next] = rank[a] + k;
      key[next] = key[a] + ((key[b] - key[a]) * k) / (length + 1);
      upper[s] = last;
      lower[s++] = next;
      last = next++;
    }
    upper[s] = last;
    lower[s++] = b;
  }
  const offsets = new Int32Array(ranks + 1);
  for (let v = 0; v < total; v++) offsets[rank[v] + 1]++;
  for (let r = 0; r < ranks; r++) offsets[r + 1] += offsets[r];
  const at = offsets.slice();
  const slots = new Int32Array(total);
  for (let v = 0; v < total; v++) slots[at[rank[v]]++] = v;
  for (let r = 0; r < ranks; r++) {
    slots.subarray(offsets[r], offsets[r + 1]).sort((a, b) => key[a] - key[b] || a - b);
  }
  return {
    nodes,
    total,
    rank,
    ranks,
    offsets,
    slots,
    upper,
    lower,
    edges,
    chainFirst,
    chainLength,
  };
}

/** Neighbours across segments in both directions, as CSR over layer nodes. */
export interface Neighbours {
  upOffsets: Int32Array;
  ups: Int32Array;
  downOffsets: Int32Array;
  downs: Int32Array;
}

export function neighbours(layers: Layers): Neighbours {
  const { total, upper, lower } = layers;
  const upOffsets = new Int32Array(total + 1);
  const downOffsets = new Int32Array(total + 1);
  for (let s = 0; s < upper.length; s++) {
    downOffsets[upper[s] + 1]++;
    upOffsets[lower[s] + 1]++;
  }
  for (let v = 0; v < total; v++) {
    upOffsets[v + 1] += upOffsets[v];
    downOffsets[v + 1] += downOffsets[v];
  }
  const upAt = upOffsets.slice();
  const downAt = downOffsets.slice();
  const ups = new Int32Array(upper.length);
  const downs = new Int32Array(upper.length);
  for (let s = 0; s < upper.length; s++) {
    downs[downAt[upper[s]]++] = lower[s];
    ups[upAt[lower[s]]++] = upper[s];
  }
  return { upOffsets, ups, downOffsets, downs };
}
