/**
 * Groups may use each other's values in both directions, so their graph can have cycles although
 * the instructions have none. Inside a strongly connected part the nodes are reordered, starting
 * from the schedule, so that little work runs against the flow (see `Projection.inSteps`); edges
 * that still run backwards are marked. Edges elsewhere never are, but those of negative weight,
 * which run against an order that is known.
 *
 * What runs along the schedule counts half as much again: where about as much runs each way (a rematerialised
 * forward pass shares work with the first one), what begins first stays first.
 */
import { EdgeKind } from "./edges.ts";

/** Larger parts keep the schedule order. */
const MAX_PART = 300;
const ALONG_SCHEDULE = 1.5;

export function markBackEdges(
  n: number,
  from: Int32Array,
  to: Int32Array,
  weight: ArrayLike<number>,
  kind: Uint8Array,
): void {
  let suspect = false;
  for (let e = 0; e < from.length; e++) {
    if (weight[e] < 0) kind[e] = EdgeKind.Back;
    else if (from[e] >= to[e]) suspect = true;
  }
  if (!suspect) return;
  const part = strongParts(n, from, to, kind);
  const members = new Map<number, number[]>();
  for (let v = 0; v < n; v++) {
    const list = members.get(part[v]);
    if (list) list.push(v);
    else members.set(part[v], [v]);
  }
  const place = new Int32Array(n);
  for (const list of members.values()) {
    if (list.length > 1 && list.length <= MAX_PART) improve(list, part, from, to, weight, kind);
    for (let k = 0; k < list.length; k++) place[list[k]] = k;
  }
  for (let e = 0; e < from.length; e++) {
    const same = part[from[e]] === part[to[e]];
    if (same && place[from[e]] >= place[to[e]]) kind[e] = EdgeKind.Back;
  }
}

/** Moves one node at a time to where the least weight runs backwards, while that helps. */
function improve(
  list: number[],
  part: Int32Array,
  from: Int32Array,
  to: Int32Array,
  weight: ArrayLike<number>,
  kind: Uint8Array,
): void {
  const size = list.length;
  const local = new Map<number, number>();
  list.forEach((v, k) => {
    local.set(v, k);
  });
  // flow[a * size + b] = weight of a → b
  const flow = new Float64Array(size * size);
  const id = part[list[0]];
  for (let e = 0; e < from.length; e++) {
    if (part[from[e]] !== id || part[to[e]] !== id || kind[e] === EdgeKind.Back) continue;
    const a = local.get(from[e]) as number;
    const b = local.get(to[e]) as number;
    flow[a * size + b] += a < b ? ALONG_SCHEDULE * weight[e] : weight[e];
  }
  const order = list.map((_, k) => k);
  for (let round = 0; round < 8; round++) {
    let moved = false;
    for (let at = 0; at < size; at++) {
      const v = order[at];
      // Gain of every place relative to staying, accumulated step by step to the left and right.
      let best = at;
      let bestGain = 0;
      let gain = 0;
      for (let k = at - 1; k >= 0; k--) {
        const u = order[k];
        gain += flow[v * size + u] - flow[u * size + v];
        if (gain > bestGain) {
          bestGain = gain;
          best = k;
        }
      }
      gain = 0;
      for (let k = at + 1; k < size; k++) {
        const u = order[k];
        gain += flow[u * size + v] - flow[v * size + u];
        if (gain > bestGain) {
          bestGain = gain;
          best = k;
        }
      }
      if (best === at) continue;
      order.splice(at, 1);
      order.splice(best, 0, v);
      moved = true;
    }
    if (!moved) break;
  }
  const old = list.slice();
  for (let k = 0; k < size; k++) list[k] = old[order[k]];
}
/** Tarjan's algorithm without recursion: the number of each node's strongly connected part. */
function strongParts(n: number, from: Int32Array, to: Int32Array, kind: Uint8Array): Int32Array {
  const offsets = new Uint32Array(n + 1);
  const counts = (e: number): boolean => kind[e] !== EdgeKind.Back;
  for (let e = 0; e < from.length; e++) if (counts(e)) offsets[from[e] + 1]++;
  for (let v = 0; v < n; v++) offsets[v + 1] += offsets[v];
  const at = offsets.slice();
  const out = new Int32Array(offsets[n]);
  for (let e = 0; e < from.length; e++) if (counts(e)) out[at[from[e]]++] = to[e];

  const index = new Int32Array(n).fill(-1);
  const low = new Int32Array(n);
  const part = new Int32Array(n).fill(-1);
  const next = offsets.slice(0, n);
  const path: number[] = [];
  const open: number[] = [];
  let counter = 0;
  let parts = 0;
  for (let start = 0; start < n; start++) {
    if (index[start] >= 0) continue;
    path.push(start);
    while (path.length > 0) {
      const v = path[path.length - 1];
      if (index[v] < 0) {
        index[v] = low[v] = counter++;
        open.push(v);
      }
      let descended = false;
      while (next[v] < offsets[v + 1]) {
        const w = out[next[v]++];
        if (index[w] < 0) {
          path.push(w);
          descended = true;
          break;
        }
        if (part[w] < 0) low[v] = Math.min(low[v], index[w]);
      }
      if (descended) continue;
      path.pop();
      if (path.length > 0) {
        const u = path[path.length - 1];
        low[u] = Math.min(low[u], low[v]);
      }
      if (low[v] === index[v]) {
        for (;;) {
          const w = open.pop() as number;
          part[w] = parts;
          if (w === v) break;
        }
        parts++;
      }
    }
  }
  return part;
}
