/**
 * Ranks (rows) of a container: longest path with at most `width` nodes per row, then tightening:
 * a node with more users than operands moves down towards its users.
 */
import { EdgeKind } from "./edges.ts";
import { topological } from "./reduce.ts";

export function fillRanks(
  n: number,
  from: Int32Array,
  to: Int32Array,
  kind: Uint8Array,
  rank: Int32Array,
  width: number,
  stubsCount: boolean,
  component: Int32Array | null = null,
): void {
  const counts = (e: number): boolean =>
    kind[e] === EdgeKind.Plain || (stubsCount && kind[e] === EdgeKind.Stub);
  const order = topological(n, from, to, kind);
  if (!order) {
    rank.fill(0);
    return;
  }
  const inOffsets = new Uint32Array(n + 1);
  const outOffsets = new Uint32Array(n + 1);
  for (let e = 0; e < from.length; e++) {
    if (!counts(e)) continue;
    inOffsets[to[e] + 1]++;
    outOffsets[from[e] + 1]++;
  }
  for (let v = 0; v < n; v++) {
    inOffsets[v + 1] += inOffsets[v];
    outOffsets[v + 1] += outOffsets[v];
  }
  const inAt = inOffsets.slice();
  const outAt = outOffsets.slice();
  const ins = new Int32Array(inOffsets[n]);
  const outs = new Int32Array(outOffsets[n]);
  for (let e = 0; e < from.length; e++) {
    if (!counts(e)) continue;
    ins[inAt[to[e]]++] = from[e];
    outs[outAt[from[e]]++] = to[e];
  }
  // Rows fill up; `firstFree` skips full ones with path compression, which keeps this linear.
  // Components are placed separately, so each has its own rows, starting at `base`.
  const base = rowBases(n, component);
  const filled = new Uint32Array(2 * n + 2);
  const skip = new Int32Array(2 * n + 3);
  for (let r = 0; r < skip.length; r++) skip[r] = r;
  const firstFree = (r: number): number => {
    let k = r;
    while (skip[k] !== k) {
      skip[k] = skip[skip[k]];
      k = skip[k];
    }
    return k;
  };
  for (const v of order) {
    let r = 0;
    for (let k = inOffsets[v]; k < inOffsets[v + 1]; k++) r = Math.max(r, rank[ins[k]] + 1);
    // Nodes without edges do not take space from the others: they are packed on their own.
    if (inOffsets[v + 1] > inOffsets[v] || outOffsets[v + 1] > outOffsets[v]) {
      const row = firstFree(base[v] + r);
      if (++filled[row] >= width) skip[row] = row + 1;
      r = row - base[v];
    }
    rank[v] = r;
  }
  for (let k = n - 1; k >= 0; k--) {
    const v = order[k];
    const outDegree = outOffsets[v + 1] - outOffsets[v];
    if (outDegree <= inOffsets[v + 1] - inOffsets[v]) continue;
    let r = 0x7fffffff;
    for (let e = outOffsets[v]; e < outOffsets[v + 1]; e++) r = Math.min(r, rank[outs[e]] - 1);
    // The lowest row above its users that has room, but never above where it was.
    while (r > rank[v] && filled[base[v] + r] >= width) r--;
    if (r > rank[v]) {
      filled[base[v] + rank[v]]--;
      filled[base[v] + r]++;
      rank[v] = r;
    }
  }
}

/** First row of each node's component: a component of k nodes has at most k rows. */
function rowBases(n: number, component: Int32Array | null): Int32Array {
  const base = new Int32Array(n);
  if (!component) return base;
  const begin = new Int32Array(n + 1);
  for (let v = 0; v < n; v++) begin[component[v] + 1]++;
  // One spare row between components, so that a full last row never spills into the next first one.
  for (let c = 0; c < n; c++) begin[c + 1] += begin[c] + (begin[c + 1] > 0 ? 1 : 0);
  for (let v = 0; v < n; v++) base[v] = begin[component[v]];
  return base;
}
