/**
 * Groups may use each other's values both ways, so their graph can have cycles although the
 * instructions have none. Inside a strongly connected part, what runs against the schedule (nodes
 * are in schedule order) is marked as a back edge; everywhere else nothing is.
 */
import { EdgeKind } from "./local.ts";

export function markBackEdges(n: number, from: Int32Array, to: Int32Array, kind: Uint8Array): void {
  let suspect = false;
  for (let e = 0; e < from.length && !suspect; e++) suspect = from[e] >= to[e];
  if (!suspect) return;
  const part = strongParts(n, from, to);
  for (let e = 0; e < from.length; e++) {
    if (part[from[e]] === part[to[e]] && from[e] >= to[e]) kind[e] = EdgeKind.Back;
  }
}

/** Tarjan's algorithm without recursion: the number of each node's strongly connected part. */
function strongParts(n: number, from: Int32Array, to: Int32Array): Int32Array {
  const offsets = new Uint32Array(n + 1);
  for (const u of from) offsets[u + 1]++;
  for (let v = 0; v < n; v++) offsets[v + 1] += offsets[v];
  const at = offsets.slice();
  const out = new Int32Array(from.length);
  for (let e = 0; e < from.length; e++) out[at[from[e]]++] = to[e];

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
