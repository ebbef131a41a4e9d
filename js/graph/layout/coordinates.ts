/**
 * Positions of nodes across the flow. Each rank in turn moves its nodes as close as possible to
 * the mean of their neighbours without changing their order or overlapping. That is a least-squares
 * problem with an ordering constraint, solved exactly by pooling adjacent violators, in time linear
 * in the size of the rank:
 *
 *     wanted   ·A···B·C·······        B and C want the same place:
 *     placed   ·A··[B][C]·····        they share the mean of what they want
 */
import type { Layers, Neighbours } from "./layers.ts";

/** Centres of all layer nodes; the leftmost edge is at 0. `width` includes no gap. */
export function assignX(
  layers: Layers,
  near: Neighbours,
  width: Float64Array,
  gap: number,
  dummyGap: number,
): Float64Array {
  const { total, ranks, offsets, slots } = layers;
  const real = layers.nodes.length;
  const x = new Float64Array(total);
  // Cumulative minimum distances within a rank; subtracting them turns the constraint into an order.
  const shift = new Float64Array(total);
  for (let r = 0; r < ranks; r++) {
    let at = 0;
    for (let k = offsets[r]; k < offsets[r + 1]; k++) {
      const v = slots[k];
      if (k > offsets[r]) {
        const u = slots[k - 1];
        const between =
          u >= real && v >= real ? dummyGap : u >= real || v >= real ? gap * 0.75 : gap;
        at += (width[u] + width[v]) / 2 + between;
      }
      shift[v] = at;
    }
    const middle = at / 2;
    for (let k = offsets[r]; k < offsets[r + 1]; k++) x[slots[k]] = shift[slots[k]] - middle;
  }
  if (ranks > 1) {
    let widest = 0;
    for (let r = 0; r < ranks; r++) widest = Math.max(widest, offsets[r + 1] - offsets[r]);
    const pool = new Pool(widest);
    const rounds = total > 20_000 ? 3 : 10;
    for (let round = 0; round < rounds; round++) {
      const down = round % 2 === 0;
      // The last rounds look both ways, so that nodes end up in the middle of all their edges.
      const both = round >= rounds - 2;
      for (let k = 0; k < ranks; k++) {
        const r = down ? k : ranks - 1 - k;
        pool.begin();
        for (let s = offsets[r]; s < offsets[r + 1]; s++) {
          const v = slots[s];
          let sum = 0;
          let weight = 0;
          if (down || both) {
            for (let e = near.upOffsets[v]; e < near.upOffsets[v + 1]; e++) {
              const u = near.ups[e];
              const w = v >= real ? (u >= real ? 8 : 2) : 1;
              sum += w * x[u];
              weight += w;
            }
          }
          if (!down || both) {
            for (let e = near.downOffsets[v]; e < near.downOffsets[v + 1]; e++) {
              const u = near.downs[e];
              const w = v >= real ? (u >= real ? 8 : 2) : 1;
              sum += w * x[u];
              weight += w;
            }
          }
          if (weight > 0) pool.add(sum / weight - shift[v], v >= real ? weight : 1);
          else pool.add(x[v] - shift[v], 0.05);
        }
        pool.solve();
        for (let s = offsets[r]; s < offsets[r + 1]; s++) {
          x[slots[s]] = pool.value(s - offsets[r]) + shift[slots[s]];
        }
      }
    }
    straighten(layers, x, width, gap, dummyGap);
  }
  let left = Number.POSITIVE_INFINITY;
  for (let v = 0; v < total; v++) left = Math.min(left, x[v] - width[v] / 2);
  for (let v = 0; v < total; v++) x[v] -= left;
  return x;
}

/** Chains of dummies become one vertical line where there is room. */
function straighten(
  layers: Layers,
  x: Float64Array,
  width: Float64Array,
  gap: number,
  dummyGap: number,
): void {
  const { rank, offsets, slots, chainFirst, chainLength } = layers;
  const real = layers.nodes.length;
  const place = new Int32Array(layers.total);
  for (let k = 0; k < slots.length; k++) place[slots[k]] = k;
  for (let c = 0; c < chainFirst.length; c++) {
    const length = chainLength[c];
    if (length < 2) continue;
    let low = Number.NEGATIVE_INFINITY;
    let high = Number.POSITIVE_INFINITY;
    let sum = 0;
    for (let d = chainFirst[c]; d < chainFirst[c] + length; d++) {
      const k = place[d];
      sum += x[d];
      if (k > offsets[rank[d]]) {
        const u = slots[k - 1];
        low = Math.max(low, x[u] + (width[u] + width[d]) / 2 + (u >= real ? dummyGap : gap * 0.75));
      }
      if (k + 1 < offsets[rank[d] + 1]) {
        const u = slots[k + 1];
        high = Math.min(
          high,
          x[u] - (width[u] + width[d]) / 2 - (u >= real ? dummyGap : gap * 0.75),
        );
      }
    }
    if (low > high) continue;
    const at = Math.min(high, Math.max(low, sum / length));
    for (let d = chainFirst[c]; d < chainFirst[c] + length; d++) x[d] = at;
  }
}

/** Weighted isotonic regression of the values added, in order. */
class Pool {
  private mean: Float64Array;
  private weight: Float64Array;
  private count: Int32Array;
  private out: Float64Array;
  private blocks = 0;
  constructor(size: number) {
    this.mean = new Float64Array(size);
    this.weight = new Float64Array(size);
    this.count = new Int32Array(size);
    this.out = new Float64Array(size);
  }
  begin(): void {
    this.blocks = 0;
  }
  add(value: number, weight: number): void {
    let m = value;
    let w = weight;
    let c = 1;
    while (this.blocks > 0 && this.mean[this.blocks - 1] >= m) {
      const b = --this.blocks;
      m = (this.mean[b] * this.weight[b] + m * w) / (this.weight[b] + w);
      w += this.weight[b];
      c += this.count[b];
    }
    this.mean[this.blocks] = m;
    this.weight[this.blocks] = w;
    this.count[this.blocks++] = c;
  }
  solve(): void {
    let k = 0;
    for (let b = 0; b < this.blocks; b++) {
      for (let c = 0; c < this.count[b]; c++) this.out[k++] = this.mean[b];
    }
  }
  value(k: number): number {
    return this.out[k];
  }
}
