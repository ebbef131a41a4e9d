/**
 * Shapes beside edges, where there is room: for edges that carry a single value, once per value,
 * just below the box that it comes from.
 *
 *     ┌────────┐
 *     │ block  │
 *     └───┬────┘
 *         │ bf16[4,2048,2048]
 *
 * Positions are found when an edge first comes into view, so that large pictures cost nothing extra.
 */
import type { TextMetrics } from "../graph/metrics.ts";
import { ItemKind } from "../graph/project/projection.ts";
import type { EdgeMark } from "./marks.ts";
import { isCrossed, isFree, Placed } from "./room.ts";
import type { Rect, Scene } from "./scene.ts";

export interface EdgeShape {
  text: string;
  /** Left end and middle height, in world units. */
  x: number;
  y: number;
  /** Item that the value comes from. */
  item: number;
  /** Whether the item is one instruction, whose box also shows the shape when it is large. */
  inBox: boolean;
}

export const EDGE_SHAPE_SIZE = 9;
const HEIGHT = 11;
/** Distance from the line, and from the box above. */
const BESIDE = 4;
const BELOW = 8;
/** Longer shapes cannot be read at a glance and are left out. */
const MAX_WIDTH = 150;
/** Space that a mark takes, and with the bytes beside it. */
const MARK = { w: 8, words: 64, h: 14 };

export class EdgeShapes {
  private known = new Map<number, EdgeShape | null>();
  /** Source item and value of each shape that is shown. */
  private said = new Set<string>();
  private placed = new Placed();

  constructor(
    private scene: Scene,
    private metrics: TextMetrics,
    marks: readonly EdgeMark[],
  ) {
    for (const m of marks) {
      const left = m.room < 0 ? MARK.words : MARK.w;
      const right = m.room > 0 ? MARK.words : MARK.w;
      this.placed.add({ x: m.x - left, y: m.y - MARK.h / 2, w: left + right, h: MARK.h });
    }
  }

  /** The shapes of edges in view. */
  in(view: Rect): EdgeShape[] {
    const found: EdgeShape[] = [];
    const edges = this.scene.edgesIn(view).sort((a, b) => a - b);
    for (const e of edges) {
      let shape = this.known.get(e);
      if (shape === undefined) {
        shape = this.place(e);
        this.known.set(e, shape);
      }
      if (shape) found.push(shape);
    }
    return found;
  }

  private place(e: number): EdgeShape | null {
    const { picture, tree } = this.scene;
    const { edges, projection } = picture;
    if (!edges.single[e]) return null;
    const begin = edges.pointOffsets[e];
    const item = edges.from[e];
    const value = edges.value[e];
    const key = `${item}:${value}`;
    const text = tree.model.denseShape(value);
    // A matmul's box has its shape in its label.
    if (this.said.has(key) || picture.text[item].label.includes(text)) return null;
    const w = this.metrics.width(text, EDGE_SHAPE_SIZE);
    if (!text.includes("[") || text.startsWith("(") || w > MAX_WIDTH) return null;
    const line = { x: edges.pointX[begin], y: edges.pointY[begin] };
    if (this.isShared(e, line.x)) return null;
    for (const side of [1, -1]) {
      const x = side > 0 ? line.x + BESIDE : line.x - BESIDE - w;
      const words = { x, y: line.y + BELOW - HEIGHT / 2, w, h: HEIGHT };
      if (this.placed.meets(words)) continue;
      const clear = { x: x - 2, y: words.y, w: w + 4, h: HEIGHT };
      if (!isFree(this.scene, clear) || isCrossed(this.scene, clear)) continue;
      this.placed.add(words);
      this.said.add(key);
      const inBox = projection.kind[item] === ItemKind.Box;
      return { text, x, y: line.y + BELOW, item, inBox };
    }
    return null;
  }

  /** Whether another value leaves the box at the same point: text there could belong to either. */
  private isShared(e: number, x: number): boolean {
    const { picture, touch, touchOffsets } = this.scene;
    const { edges } = picture;
    const item = edges.from[e];
    for (let k = touchOffsets[item]; k < touchOffsets[item + 1]; k++) {
      const other = touch[k];
      const begin = edges.pointOffsets[other];
      if (edges.from[other] !== item || edges.pointOffsets[other + 1] === begin) continue;
      if (Math.abs(edges.pointX[begin] - x) > 2) continue;
      if (!edges.single[other] || edges.value[other] !== edges.value[e]) return true;
    }
    return false;
  }
}
