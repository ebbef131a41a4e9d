/** Walks along the data flow: neighbourhoods, paths, and the next item for the keyboard. */
import type { ViewModel } from "../../base/model.ts";
import type { Flow } from "../../graph/project/flow.ts";
import { ItemKind } from "../../graph/project/projection.ts";
import type { Scene } from "../../scene/scene.ts";
import type { Direction } from "../api.ts";

export interface Links {
  offsets: Uint32Array;
  values: Uint32Array;
}

/** Users through plumbing: `flow` reversed. */
export function usersOf(flow: Flow, n: number): Links {
  const offsets = new Uint32Array(n + 1);
  for (let i = 0; i < n; i++) {
    if (flow.hidden[i]) continue;
    for (let e = flow.offsets[i]; e < flow.offsets[i + 1]; e++) offsets[flow.sources[e] + 1]++;
  }
  for (let i = 0; i < n; i++) offsets[i + 1] += offsets[i];
  const at = offsets.slice();
  const values = new Uint32Array(offsets[n]);
  for (let i = 0; i < n; i++) {
    if (flow.hidden[i]) continue;
    for (let e = flow.offsets[i]; e < flow.offsets[i + 1]; e++) values[at[flow.sources[e]]++] = i;
  }
  return { offsets, values };
}

/** Everything within `hops` edges of the module in both directions, including plumbing and chips. */
export function neighbourhood(model: ViewModel, start: number, hops: number): Set<number> {
  const found = new Set([start]);
  let edge = [start];
  for (let hop = 0; hop < hops; hop++) {
    const next: number[] = [];
    for (const i of edge) {
      for (const links of [model.operands, model.users]) {
        for (let e = links.offsets[i]; e < links.offsets[i + 1]; e++) {
          const o = links.values[e];
          if (found.has(o)) continue;
          found.add(o);
          next.push(o);
        }
      }
    }
    edge = next;
  }
  return found;
}

/** Instructions on any path from a to b along the data flow; empty if there is none. */
export function pathBetween(model: ViewModel, a: number, b: number): Set<number> {
  const down = reach(model.users, a, model.instruction.count);
  if (!down[b]) return new Set();
  const up = reach(model.operands, b, model.instruction.count);
  const found = new Set<number>();
  for (let i = 0; i < down.length; i++) if (down[i] && up[i]) found.add(i);
  return found;
}

function reach(links: Links, start: number, n: number): Uint8Array {
  const seen = new Uint8Array(n);
  seen[start] = 1;
  const stack = [start];
  while (stack.length > 0) {
    const i = stack.pop() as number;
    for (let e = links.offsets[i]; e < links.offsets[i + 1]; e++) {
      const o = links.values[e];
      if (seen[o]) continue;
      seen[o] = 1;
      stack.push(o);
    }
  }
  return seen;
}

/** The item that the keyboard goes to from `item`, or -1. */
export function nextItem(scene: Scene, item: number, direction: Direction): number {
  const { projection, edges, x, y, w } = scene.picture;
  const { parent, childOffsets, children, kind } = projection;
  if (item <= 0) return scene.count > 1 ? children[childOffsets[0]] : -1;
  if (direction === "out") return parent[item] > 0 ? parent[item] : -1;
  if (direction === "in") {
    return kind[item] === ItemKind.Open && childOffsets[item + 1] > childOffsets[item]
      ? children[childOffsets[item]]
      : -1;
  }
  if (direction === "operand" || direction === "user") {
    // The nearest neighbour along an edge; without edges here, try those of the container.
    for (let from = item; from > 0; from = parent[from]) {
      let best = -1;
      let bestDistance = Number.POSITIVE_INFINITY;
      const middle = x[from] + w[from] / 2;
      for (let k = scene.touchOffsets[from]; k < scene.touchOffsets[from + 1]; k++) {
        const e = scene.touch[k];
        const other = direction === "user" ? edges.to[e] : edges.from[e];
        if (other === from) continue;
        const along = Math.abs(y[other] - y[from]);
        const distance = Math.abs(x[other] + w[other] / 2 - middle) + along * 0.5;
        if (distance < bestDistance) {
          best = other;
          bestDistance = distance;
        }
      }
      if (best >= 0) return best;
    }
    return -1;
  }
  const c = parent[item];
  const step = direction === "next" ? 1 : -1;
  for (let k = childOffsets[c]; k < childOffsets[c + 1]; k++) {
    if (children[k] !== item) continue;
    const to = k + step;
    return to >= childOffsets[c] && to < childOffsets[c + 1] ? children[to] : -1;
  }
  return -1;
}
