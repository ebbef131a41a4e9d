/**
 * Marks on edges: where a value changes on its way, for example its sharding.
 *
 *     drawn edge      just before the consumer
 *     chip            at its left end, a move at the upper left corner: clear of all words
 *     closed group    at its left side for all changes inside, at its lower right corner for all
 *                     moves inside
 */
import { CHIP_HEIGHT, STACK_OFFSET } from "../graph/metrics.ts";
import { ChipKind } from "../graph/project/items.ts";
import { ItemKind } from "../graph/project/projection.ts";
import { isCrossed, isFree, Placed } from "./room.ts";
import type { Scene } from "./scene.ts";

/** A change of sharding, or something moved beside the computation: its time hidden, exposed or unknown. */
export type MarkKind = "reshard" | "hidden" | "exposed" | "moved";

/** What to mark: the edge from one instruction to another. */
export interface EdgeNote {
  source: number;
  target: number;
  text: string;
  /** When absent, a change of sharding. */
  kind?: MarkKind;
  /** Number of the move: one with several readers is marked, and counted, once. */
  move?: number;
  /** Bytes moved; seconds of one execution that nothing covers, NaN unknown. */
  bytes?: number;
  exposed?: number;
}

export interface EdgeMark {
  x: number;
  y: number;
  /** The item that it belongs to: the consumer, or the closed group around both ends. */
  item: number;
  texts: string[];
  kind: MarkKind;
  /** Number of moves that it marks, and their sums. */
  count: number;
  bytes: number;
  exposed: number;
  /** Side with room to write the bytes: 1 right, -1 left, 0 neither. */
  room: -1 | 0 | 1;
}

/** Distance from the consumer's border, in world units: clear of the arrow head. */
const BEFORE = 13;
const BEFORE_MOVES = 10;
/** Distance from the lower border of a closed group to the mark for moves inside. */
const INSIDE = 10;
/** Space that "100 KiB" takes beside a mark. */
const ROOM = { w: 62, h: 14 };
/** Most plumbing looked through to find the drawn source of a value. */
const MAX_PLUMBING = 20;

export function edgeMarks(scene: Scene, notes: readonly EdgeNote[]): EdgeMark[] {
  const { picture, tree } = scene;
  const { projection, edges } = picture;
  const { itemOfInstruction, parent, depth } = projection;
  const marks = new Map<string, EdgeMark>();
  const marked = new Map<EdgeMark, { texts: Set<string>; moves: Set<number> }>();
  for (const note of notes) {
    const { source, target, text, kind = "reshard", move = -1, bytes = 0, exposed = 0 } = note;
    const moved = kind !== "reshard";
    const put = (place: string, x: number, y: number, item: number): void => {
      const key = moved ? `move ${place}` : place;
      const found = marks.get(key);
      if (!found) {
        const made = {
          x,
          y,
          item,
          texts: [text],
          kind,
          count: 1,
          bytes,
          exposed,
          room: 0 as const,
        };
        marks.set(key, made);
        marked.set(made, { texts: new Set([text]), moves: new Set([move]) });
        return;
      }
      const has = marked.get(found);
      if (!has || (moved && has.moves.has(move))) return;
      has.moves.add(move);
      found.count++;
      found.bytes += bytes;
      found.exposed += exposed;
      if (!has.texts.has(text)) found.texts.push(text);
      has.texts.add(text);
      // A move that is waited for matters more than those that are not.
      if (kind === "exposed" || found.kind === "hidden") found.kind = kind;
    };
    let v = itemOfInstruction[target] ?? -1;
    if (v <= 0) continue;
    let u = drawnSource(scene, source);
    if (u <= 0) {
      const { chips } = picture.text[v]; // one that has no room is among those that are counted
      const chip =
        chips.find((c) => c.value === source) ?? chips.find((c) => c.kind === ChipKind.More);
      const [right, down] = chip ? scene.chipShift(v) : [0, 0];
      const y = picture.y[v] + down + (chip ? chip.y + (moved ? 0 : CHIP_HEIGHT / 2) : 0);
      const x = picture.x[v] + right + (chip?.x ?? 0);
      // Inside a closed group neither end is visible.
      if (moved && !chip) putInside(v, put);
      else put(`chip ${v} ${source}`, x, y, v);
      continue;
    }
    if (u !== v) {
      while (depth[u] > depth[v]) u = parent[u];
      while (depth[v] > depth[u]) v = parent[v];
      while (parent[u] !== parent[v]) {
        u = parent[u];
        v = parent[v];
      }
    }
    if (u === v) {
      if (moved) putInside(v, put);
      else put(`in ${v}`, picture.x[v], picture.y[v] + picture.h[v] / 2, v);
      continue;
    }
    const e = edgeBetween(scene, u, v);
    const end = e < 0 ? 0 : edges.pointOffsets[e + 1] - 1;
    if (e < 0 || end <= edges.pointOffsets[e]) {
      if (!moved) put(`box ${v}`, picture.x[v], picture.y[v], v);
      continue;
    }
    const { pointX: px, pointY: py } = edges;
    const curve = edges.style[e] === 0; // ends straight down, wherever it comes from
    const dx = curve ? 0 : px[end] - px[end - 1];
    const dy = curve ? 1 : py[end] - py[end - 1];
    const by = (moved ? BEFORE_MOVES : BEFORE) / Math.max(Math.hypot(dx, dy), 1e-9);
    put(`edge ${e}`, px[end] - dx * by, py[end] - dy * by, v);
  }
  const found = [...marks.values()];
  const said = new Placed();
  for (const m of found) {
    if (!(m.bytes > 0)) continue;
    for (const side of [1, -1] as const) {
      const x = side > 0 ? m.x + 6 : m.x - 6 - ROOM.w;
      const words = { x, y: m.y - ROOM.h / 2, ...ROOM };
      if (said.meets(words) || !isFree(scene, words) || isCrossed(scene, words)) continue;
      m.room = side;
      said.add(words);
      break;
    }
  }
  return found;

  function putInside(v: number, put: (p: string, x: number, y: number, v: number) => void): void {
    if (projection.kind[v] === ItemKind.Open) return;
    const back = projection.kind[v] === ItemKind.Stack ? 2 * STACK_OFFSET : 0;
    put(`in ${v}`, picture.x[v] + picture.w[v] - back, picture.y[v] + picture.h[v] - INSIDE, v);
  }

  function drawnSource(of: Scene, i: number): number {
    const { operands } = tree.model;
    let at = i;
    for (let k = 0; k < MAX_PLUMBING; k++) {
      const item = of.picture.projection.itemOfInstruction[at] ?? -1;
      if (item >= 0) return item;
      if (operands.offsets[at + 1] - operands.offsets[at] !== 1) return -1;
      at = operands.values[operands.offsets[at]];
    }
    return -1;
  }
}

function edgeBetween(scene: Scene, from: number, to: number): number {
  const { edges } = scene.picture;
  for (let k = scene.touchOffsets[to]; k < scene.touchOffsets[to + 1]; k++) {
    const e = scene.touch[k];
    if (edges.from[e] === from && edges.to[e] === to) return e;
  }
  return -1;
}

/** The nearest mark within `reach` world units of a point, or null. */
export function markAt(
  marks: readonly EdgeMark[],
  x: number,
  y: number,
  reach: number,
): EdgeMark | null {
  let best: EdgeMark | null = null;
  let least = reach;
  for (const m of marks) {
    const d = Math.max(Math.abs(m.x - x), Math.abs(m.y - y));
    if (d <= least) {
      best = m;
      least = d;
    }
  }
  return best;
}
