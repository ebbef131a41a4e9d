/**
 * Which parts of a picture exist at one pass. The picture has a place for every instruction of all
 * passes; this determines which boxes and arrows to draw, so that nothing that stays ever moves.
 */
import type { Csr, ViewModel } from "../base/model.ts";
import { buildFlow, type Flow, Hidden } from "../graph/project/flow.ts";
import { ItemKind, type Projection } from "../graph/project/projection.ts";
import type { Scene } from "../scene/scene.ts";
import { Life } from "../state/passes/passes.ts";

/** The module at one pass, in terms of the instructions of all passes. */
export interface LifeStep {
  /** `Life` of every instruction. */
  state: Uint8Array;
  /** Operands after the pass, and before it. */
  operands: Csr;
  before: Csr;
  /** Called with the number of arrows that are too many to draw. */
  onUndrawn?: (arrows: number) => void;
}

/** The same in terms of a scene. */
export interface SceneLife {
  /** `Life` of every item; a container is absent if nothing in it exists. */
  items: Uint8Array;
  /** `Life` of every edge of the picture. */
  edges: Uint8Array;
  /** Arrows for which the layout has no route: from, to, `Life`. */
  direct: [from: number, to: number, life: Life][];
  /** How many of those are not drawn. */
  undrawn: number;
  /** Text of a group instead of its counts, which are for all passes together. */
  words(item: number): string;
  /** Whether a value is shown on an item as a chip at this pass. */
  chips(item: number, value: number): boolean;
}

const MOST_DIRECT = 4000;

/** Palette indices of the four kinds that exist; what is absent is not drawn. */
export function colorOfLife(state: Uint8Array): Uint16Array {
  const out = new Uint16Array(state.length);
  for (let i = 0; i < out.length; i++) if (state[i]) out[i] = state[i] - 1;
  return out;
}

/** Whether the picture draws plumbing and moves. */
export interface Shown {
  plumbing: boolean;
  moves: boolean;
}

/** The latest flows: the next step needs one of them again. */
export class Flows {
  private known: { operands: Csr; shown: Shown; flow: Flow }[] = [];
  constructor(private model: ViewModel) {}
  of(operands: Csr, shown: Shown): Flow {
    const { plumbing, moves } = shown;
    const found = this.known.find(
      (k) => k.operands === operands && k.shown.plumbing === plumbing && k.shown.moves === moves,
    );
    if (found) return found.flow;
    const model = Object.create(this.model, { operands: { value: operands } }) as ViewModel;
    const flow = buildFlow(model, plumbing, moves);
    this.known = [{ operands, shown: { plumbing, moves }, flow }, ...this.known.slice(0, 2)];
    return flow;
  }
}

export function lifeOf(scene: Scene, step: LifeStep, flows: Flows, shown: Shown): SceneLife {
  const { projection, edges } = scene.picture;
  const { itemOfInstruction, parent, kind, nodes } = projection;
  const { state } = step;
  const now = flows.of(step.operands, shown);
  const before = flows.of(step.before, shown);

  // 1. Items.
  const counts = [0, 1, 2, 3, 4].map(() => new Uint32Array(scene.count));
  for (let i = 0; i < state.length; i++) {
    if (state[i] && itemOfInstruction[i] > 0) counts[state[i]][itemOfInstruction[i]]++;
  }
  for (let item = scene.count - 1; item > 0; item--) {
    for (const c of counts) c[parent[item]] += c[item];
  }
  const items = new Uint8Array(scene.count);
  const [, kept, added, removed, changed] = counts;
  for (let item = 0; item < scene.count; item++) {
    const here = kept[item] + added[item] + changed[item];
    const own = nodes[item] < state.length ? state[nodes[item]] : -1;
    if (own >= 0 && (kind[item] === ItemKind.Box || own !== Life.Absent)) items[item] = own;
    else if (here + removed[item] > 0) {
      const alone = kept[item] + changed[item] === 0;
      items[item] = !alone
        ? Life.Kept
        : removed[item] === 0
          ? Life.Added
          : here === 0
            ? Life.Removed
            : Life.Kept;
    }
  }
  items[0] = Life.Kept;

  // 2. Arrows.
  const pairs = new Map<number, Life>();
  const old = new Set<number>();
  eachPair(projection, before, (u, v, i, source) => {
    const gone = state[i] === Life.Removed || state[source] === Life.Removed;
    const was = (s: number) => s !== Life.Absent && s !== Life.Added;
    if (!was(state[i]) || !was(state[source])) return;
    old.add(u * scene.count + v);
    if (gone && !pairs.has(u * scene.count + v)) pairs.set(u * scene.count + v, Life.Removed);
  });
  eachPair(projection, now, (u, v, i, source) => {
    const is = (s: number) => s !== Life.Absent && s !== Life.Removed;
    if (!is(state[i]) || !is(state[source])) return;
    const key = u * scene.count + v;
    pairs.set(key, old.has(key) ? Life.Kept : Life.Added);
  });
  const drawn = new Uint8Array(edges.count);
  const direct: SceneLife["direct"] = [];
  const routed = new Set<number>();
  for (let e = 0; e < edges.count; e++) {
    const key = edges.from[e] * scene.count + edges.to[e];
    if (edges.pointOffsets[e + 1] === edges.pointOffsets[e]) continue;
    drawn[e] = pairs.get(key) ?? Life.Absent;
    routed.add(key);
  }
  // What two other arrows imply needs no arrow of its own.
  const out: number[][] = [];
  const into: number[][] = [];
  for (const [key, life] of pairs) {
    if (life === Life.Removed) continue;
    const u = Math.floor(key / scene.count);
    const v = key % scene.count;
    if (out[u]) out[u].push(v);
    else out[u] = [v];
    if (into[v]) into[v].push(u);
    else into[v] = [u];
  }
  const isNow = (key: number): boolean => (pairs.get(key) ?? Life.Removed) !== Life.Removed;
  // Search from the side with fewer edges: one value may have thousands of users.
  const implied = (u: number, v: number): boolean =>
    out[u].length < into[v].length
      ? out[u].some((w) => isNow(w * scene.count + v))
      : into[v].some((w) => isNow(u * scene.count + w));
  let undrawn = 0;
  for (const [key, life] of pairs) {
    if (routed.has(key)) continue;
    const u = Math.floor(key / scene.count);
    const v = key % scene.count;
    if (life === Life.Kept && implied(u, v)) continue;
    if (direct.length < MOST_DIRECT) direct.push([u, v, life]);
    else undrawn++;
  }

  return {
    items,
    edges: drawn,
    direct,
    undrawn,
    // Made when drawn: of thousands of open boxes few are in view, and formatting numbers is slow.
    words: (item) =>
      saying(kept[item] + added[item] + changed[item], added[item], removed[item], changed[item]),
    chips(item, value) {
      const node = nodes[item];
      if (node >= state.length || !(state[value] > 0)) return false;
      const flow = state[node] === Life.Removed ? before : now;
      for (let e = flow.chipOffsets[node]; e < flow.chipOffsets[node + 1]; e++) {
        if (flow.chips[e] === value) return true;
      }
      return false;
    },
  };
}

// A formatter that is reused is thirty times as fast as toLocaleString.
const NUMBER = new Intl.NumberFormat("en-US");

function saying(here: number, added: number, removed: number, changed: number): string {
  const parts = [`${NUMBER.format(here)} instr.`];
  if (added) parts.push(`+${NUMBER.format(added)}`);
  if (removed) parts.push(`−${NUMBER.format(removed)}`);
  if (changed) parts.push(`~${NUMBER.format(changed)}`);
  return parts.join("  ");
}

/** Visits arrows between items, lifted to where both ends are in the same container. */
function eachPair(
  p: Projection,
  flow: Flow,
  visit: (u: number, v: number, user: number, source: number) => void,
): void {
  const { parent, depth, itemOfInstruction: item } = p;
  for (let i = 0; i < item.length; i++) {
    if (item[i] < 0 || flow.hidden[i] !== Hidden.No) continue;
    for (let e = flow.offsets[i]; e < flow.offsets[i + 1]; e++) {
      let u = item[flow.sources[e]];
      let v = item[i];
      if (u < 0 || u === v) continue;
      while (depth[u] > depth[v]) u = parent[u];
      while (depth[v] > depth[u]) v = parent[v];
      if (u === v) continue;
      while (parent[u] !== parent[v]) {
        u = parent[u];
        v = parent[v];
      }
      visit(u, v, i, flow.sources[e]);
    }
  }
}
