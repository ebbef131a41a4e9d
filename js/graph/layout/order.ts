/**
 * Order within ranks: sweeps that sort each rank by the mean position of its neighbours, then swaps
 * of adjacent nodes that save crossings. Sizes are never considered, so opening something inside a
 * node does not change the order of the nodes around it.
 */
import type { Layers, Neighbours } from "./layers.ts";

/** Above these sizes there are fewer sweeps and no swaps, which keeps the time linear. */
const FULL_SIZE = 4_000;
const SWAP_SIZE = 1_500;

export function orderLayers(layers: Layers, near: Neighbours): void {
  const { total, ranks, offsets, slots } = layers;
  if (ranks < 2) return;
  let widest = 0;
  for (let r = 0; r < ranks; r++) widest = Math.max(widest, offsets[r + 1] - offsets[r]);
  if (widest < 2) return;
  const place = new Float64Array(total);
  const settle = (r: number): void => {
    for (let k = offsets[r]; k < offsets[r + 1]; k++) place[slots[k]] = k - offsets[r];
  };
  for (let r = 0; r < ranks; r++) settle(r);
  const mean = new Float64Array(total);
  const sortRank = (r: number, at: Int32Array, list: Int32Array): void => {
    const begin = offsets[r];
    const end = offsets[r + 1];
    if (end - begin < 2) return;
    let sorted = true;
    let last = -1;
    for (let k = begin; k < end; k++) {
      const v = slots[k];
      const degree = at[v + 1] - at[v];
      let sum = 0;
      for (let e = at[v]; e < at[v + 1]; e++) sum += place[list[e]];
      mean[v] = degree > 0 ? sum / degree : place[v];
      if (mean[v] < last) sorted = false;
      last = mean[v];
    }
    if (sorted) return;
    slots.subarray(begin, end).sort((a, b) => mean[a] - mean[b] || place[a] - place[b]);
    settle(r);
  };
  const small = total <= FULL_SIZE;
  const rounds = small ? 8 : 2;
  let best = small ? crossings(layers, near, place) : 0;
  let kept = small ? slots.slice() : null;
  for (let round = 0; round < rounds; round++) {
    if (round % 2 === 0) {
      for (let r = 1; r < ranks; r++) sortRank(r, near.upOffsets, near.ups);
    } else {
      for (let r = ranks - 2; r >= 0; r--) sortRank(r, near.downOffsets, near.downs);
    }
    if (kept) {
      const now = crossings(layers, near, place);
      if (now < best) {
        best = now;
        kept = slots.slice();
      }
      if (best === 0) break;
    }
  }
  if (kept) {
    slots.set(kept);
    for (let r = 0; r < ranks; r++) settle(r);
    if (best > 0 && total <= SWAP_SIZE) swapNeighbours(layers, near, place);
  }
}

/** Number of crossings between all adjacent ranks, by counting inversions. */
export function crossings(layers: Layers, near: Neighbours, place: Float64Array): number {
  const { ranks, offsets, slots } = layers;
  let count = 0;
  let tree = new Int32Array(64);
  const ends: number[] = [];
  for (let r = 0; r + 1 < ranks; r++) {
    const width = offsets[r + 2] - offsets[r + 1];
    if (width < 2 || offsets[r + 1] - offsets[r] < 2) continue;
    if (tree.length < width + 1) tree = new Int32Array(width * 2 + 1);
    tree.fill(0, 0, width + 1);
    let seen = 0;
    for (let k = offsets[r]; k < offsets[r + 1]; k++) {
      const v = slots[k];
      ends.length = 0;
      for (let e = near.downOffsets[v]; e < near.downOffsets[v + 1]; e++) {
        ends.push(place[near.downs[e]]);
      }
      for (const p of ends) {
        let before = 0;
        for (let t = p + 1; t > 0; t -= t & -t) before += tree[t];
        count += seen - before;
      }
      for (const p of ends) {
        for (let t = p + 1; t <= width; t += t & -t) tree[t]++;
      }
      seen += ends.length;
    }
  }
  return count;
}

function swapNeighbours(layers: Layers, near: Neighbours, place: Float64Array): void {
  const { ranks, offsets, slots } = layers;
  const cross = (a: number, b: number, at: Int32Array, list: Int32Array): number => {
    let count = 0;
    for (let e = at[a]; e < at[a + 1]; e++) {
      for (let f = at[b]; f < at[b + 1]; f++) if (place[list[e]] > place[list[f]]) count++;
    }
    return count;
  };
  for (let round = 0; round < 6; round++) {
    let changed = false;
    for (let r = 0; r < ranks; r++) {
      for (let k = offsets[r]; k + 1 < offsets[r + 1]; k++) {
        const a = slots[k];
        const b = slots[k + 1];
        const degree =
          near.upOffsets[a + 1] -
          near.upOffsets[a] +
          (near.downOffsets[a + 1] - near.downOffsets[a]);
        if (degree > 64) continue;
        const now =
          cross(a, b, near.upOffsets, near.ups) + cross(a, b, near.downOffsets, near.downs);
        if (now === 0) continue;
        const then =
          cross(b, a, near.upOffsets, near.ups) + cross(b, a, near.downOffsets, near.downs);
        if (then < now) {
          slots[k] = b;
          slots[k + 1] = a;
          place[b]--;
          place[a]++;
          changed = true;
        }
      }
    }
    if (!changed) break;
  }
}
