/**
 * Transitive reduction of one container: an edge implied by a longer path is left out and counted
 * at its target. Compilers re-add a residual chain inside every consumer: without this a 24-layer
 * training step draws 37,882 edges, with it 7,244.
 */
import { EdgeKind } from "./edges.ts";

/** Limit on the work, in bitset words; larger graphs are not reduced. */
const MAX_WORK = 60_000_000;

export function reduceTransitively(
  n: number,
  from: Int32Array,
  to: Int32Array,
  kind: Uint8Array,
  implied: Uint16Array,
): void {
  const m = from.length;
  let plain = 0;
  for (let e = 0; e < m; e++) if (kind[e] === EdgeKind.Plain) plain++;
  // A small picture with few edges keeps its shortcuts: residual connections mean something.
  if (n < 4 || plain <= (n < 24 ? n * 1.2 + 2 : n)) return;
  const words = (n + 31) >>> 5;
  if (words * (plain + n) > MAX_WORK) return;
  const order = topological(n, from, to, kind);
  if (!order) return;
  const place = new Int32Array(n);
  for (let k = 0; k < n; k++) place[order[k]] = k;
  const offsets = new Uint32Array(n + 1);
  for (let e = 0; e < m; e++) if (kind[e] === EdgeKind.Plain) offsets[to[e] + 1]++;
  for (let v = 0; v < n; v++) offsets[v + 1] += offsets[v];
  const at = offsets.slice();
  const into = new Int32Array(plain);
  for (let e = 0; e < m; e++) if (kind[e] === EdgeKind.Plain) into[at[to[e]]++] = e;
  // reach[v] = everything that comes before v. The nearest predecessors go first: edges from
  // anything in their reach are implied.
  const reach = new Uint32Array(words * n);
  for (const v of order) {
    const mine = into.subarray(offsets[v], offsets[v + 1]);
    mine.sort((a, b) => place[from[b]] - place[from[a]] || a - b);
    const base = v * words;
    for (const e of mine) {
      const u = from[e];
      if ((reach[base + (u >>> 5)] >>> (u & 31)) & 1) {
        kind[e] = EdgeKind.Implied;
        if (implied[v] < 0xffff) implied[v]++;
        continue;
      }
      const other = u * words;
      for (let w = 0; w < words; w++) reach[base + w] |= reach[other + w];
      reach[base + (u >>> 5)] |= 1 << (u & 31);
    }
  }
}

/** Nodes in an order that all edges but back edges follow; null if there is none. */
export function topological(
  n: number,
  from: Int32Array,
  to: Int32Array,
  kind: Uint8Array,
): Int32Array | null {
  let sorted = true;
  for (let e = 0; e < from.length && sorted; e++) {
    sorted = kind[e] === EdgeKind.Back || from[e] < to[e];
  }
  const order = new Int32Array(n);
  if (sorted) {
    for (let v = 0; v < n; v++) order[v] = v;
    return order;
  }
  const degree = new Int32Array(n);
  const offsets = new Uint32Array(n + 1);
  for (let e = 0; e < from.length; e++) {
    if (kind[e] === EdgeKind.Back) continue;
    degree[to[e]]++;
    offsets[from[e] + 1]++;
  }
  for (let v = 0; v < n; v++) offsets[v + 1] += offsets[v];
  const at = offsets.slice();
  const out = new Int32Array(offsets[n]);
  for (let e = 0; e < from.length; e++) {
    if (kind[e] !== EdgeKind.Back) out[at[from[e]]++] = to[e];
  }
  let head = 0;
  let tail = 0;
  for (let v = 0; v < n; v++) if (degree[v] === 0) order[tail++] = v;
  while (head < tail) {
    const v = order[head++];
    for (let k = offsets[v]; k < offsets[v + 1]; k++) {
      if (--degree[out[k]] === 0) order[tail++] = out[k];
    }
  }
  return tail === n ? order : null;
}
