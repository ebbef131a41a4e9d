/**
 * What can be drawn and hit: the items, chips and routes of a picture with spatial indices, and
 * coarse rows in place of boxes too small to draw. Canvas, SVG and the pointer use this.
 */
import Flatbush from "flatbush";
import { SIGN, STACK_OFFSET } from "../graph/metrics.ts";
import type { Picture } from "../graph/picture.ts";
import type { Chip } from "../graph/project/items.ts";
import { ItemKind } from "../graph/project/projection.ts";
import type { Tree } from "../graph/project/tree.ts";

export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** Adjacent boxes of one row of one container, merged: what is drawn when zoomed out. */
export interface Rows {
  count: number;
  x: Float32Array;
  y: Float32Array;
  w: Float32Array;
  h: Float32Array;
  /** The item of the row that gives it its colour. */
  item: Int32Array;
  index: Flatbush | null;
}

export class Scene {
  readonly count: number;
  private items: Flatbush;
  /** Open containers in an index of their own: zoomed out, no other items are needed. */
  private containers: Flatbush | null = null;
  private containerItems: Int32Array;
  private edges: Flatbush | null = null;
  /** Edge of each entry of the edge index. */
  private drawn: Int32Array;
  private rowsOnce: Rows | null = null;
  private blocksOnce: Rows | null = null;
  /** Edges at each item, drawn or not: CSR. */
  readonly touchOffsets: Uint32Array;
  readonly touch: Uint32Array;

  constructor(
    readonly tree: Tree,
    readonly picture: Picture,
  ) {
    const { x, y, w, h, edges } = picture;
    this.count = picture.projection.nodes.length;
    this.items = new Flatbush(this.count, 16, Float32Array);
    for (let k = 0; k < this.count; k++) this.items.add(x[k], y[k], x[k] + w[k], y[k] + h[k]);
    this.items.finish();
    const { kind } = picture.projection;
    this.containerItems = Int32Array.from(
      range(this.count).filter((k) => kind[k] === ItemKind.Open),
    );
    if (this.containerItems.length > 0) {
      this.containers = new Flatbush(this.containerItems.length, 16, Float32Array);
      for (const k of this.containerItems)
        this.containers.add(x[k], y[k], x[k] + w[k], y[k] + h[k]);
      this.containers.finish();
    }
    let drawn = 0;
    for (let e = 0; e < edges.count; e++) {
      if (edges.pointOffsets[e + 1] > edges.pointOffsets[e]) drawn++;
    }
    this.drawn = new Int32Array(drawn);
    if (drawn > 0) {
      this.edges = new Flatbush(drawn, 16, Float32Array);
      let at = 0;
      for (let e = 0; e < edges.count; e++) {
        const begin = edges.pointOffsets[e];
        const end = edges.pointOffsets[e + 1];
        if (end === begin) continue;
        let x0 = edges.pointX[begin];
        let x1 = x0;
        for (let p = begin + 1; p < end; p++) {
          x0 = Math.min(x0, edges.pointX[p]);
          x1 = Math.max(x1, edges.pointX[p]);
        }
        let y0 = edges.pointY[begin];
        let y1 = y0;
        for (let p = begin + 1; p < end; p++) {
          y0 = Math.min(y0, edges.pointY[p]);
          y1 = Math.max(y1, edges.pointY[p]);
        }
        this.drawn[at++] = e;
        this.edges.add(x0, y0, x1, y1);
      }
      this.edges.finish();
    }
    this.touchOffsets = new Uint32Array(this.count + 1);
    for (let e = 0; e < edges.count; e++) {
      this.touchOffsets[edges.from[e] + 1]++;
      this.touchOffsets[edges.to[e] + 1]++;
    }
    for (let k = 0; k < this.count; k++) this.touchOffsets[k + 1] += this.touchOffsets[k];
    const at = this.touchOffsets.slice();
    this.touch = new Uint32Array(2 * edges.count);
    for (let e = 0; e < edges.count; e++) {
      this.touch[at[edges.from[e]]++] = e;
      this.touch[at[edges.to[e]]++] = e;
    }
  }

  rect(item: number): Rect {
    const { x, y, w, h } = this.picture;
    return { x: x[item], y: y[item], w: w[item], h: h[item] };
  }
  /** Items that intersect the rectangle; containers before their contents. */
  itemsIn(view: Rect): number[] {
    const found = this.items.search(view.x, view.y, view.x + view.w, view.y + view.h);
    return found.sort((a, b) => a - b);
  }
  /** Open containers at least `minWidth` wide that intersect the rectangle, outer ones first. */
  containersIn(view: Rect, minWidth: number): number[] {
    if (!this.containers) return [];
    const found = this.containers.search(
      view.x,
      view.y,
      view.x + view.w,
      view.y + view.h,
      (_, x0, __, x1) => x1 - x0 >= minWidth,
    );
    for (let k = 0; k < found.length; k++) found[k] = this.containerItems[found[k]];
    return found.sort((a, b) => a - b);
  }
  /** Drawn edges that intersect the rectangle and extend at least `minSize` in x or y. */
  edgesIn(view: Rect, minSize = 0): number[] {
    if (!this.edges) return [];
    const found = this.edges.search(
      view.x,
      view.y,
      view.x + view.w,
      view.y + view.h,
      minSize > 0 ? (_, x0, y0, x1, y1) => x1 - x0 >= minSize || y1 - y0 >= minSize : undefined,
    );
    for (let k = 0; k < found.length; k++) found[k] = this.drawn[found[k]];
    return found;
  }
  /** The innermost item at a point, or -1; the root container does not count. */
  itemAt(px: number, py: number): number {
    let best = -1;
    for (const k of this.items.search(px, py, px, py)) if (k > best) best = k;
    return best > 0 ? best : -1;
  }
  /** How far an item's chips are drawn from where its text has them: titles end with theirs. */
  chipShift(item: number): [x: number, y: number] {
    const { w, text, projection } = this.picture;
    const { chips } = text[item];
    const kind = projection.kind[item];
    if (kind === ItemKind.Stack) return [0, 2 * STACK_OFFSET];
    if (kind !== ItemKind.Open || chips.length === 0) return [0, 0];
    const last = chips[chips.length - 1];
    return [w[item] - SIGN - 8 - (last.x + last.w), 0];
  }
  chipAt(item: number, px: number, py: number, chipHeight: number): Chip | null {
    const { x, y } = this.picture;
    const [right, down] = this.chipShift(item);
    for (const chip of this.picture.text[item].chips) {
      const cx = x[item] + right + chip.x;
      const cy = y[item] + down + chip.y;
      if (px >= cx && px <= cx + chip.w && py >= cy && py <= cy + chipHeight) return chip;
    }
    return null;
  }
  isOpen(item: number): boolean {
    return this.picture.projection.kind[item] === ItemKind.Open;
  }
  /** Whether the item can be opened, or is open. */
  opens(item: number): boolean {
    const { kind, nodes } = this.picture.projection;
    return kind[item] !== ItemKind.Box || this.tree.canOpen(nodes[item]);
  }

  get rows(): Rows {
    this.rowsOnce ??= this.makeRows();
    return this.rowsOnce;
  }

  private makeRows(): Rows {
    const { x, y, w, h, projection } = this.picture;
    const { kind, childOffsets, children } = projection;
    const out = new BarList();
    const list: number[] = [];
    for (let c = 0; c < this.count; c++) {
      if (kind[c] !== ItemKind.Open) continue;
      list.length = 0;
      for (let k = childOffsets[c]; k < childOffsets[c + 1]; k++) {
        if (kind[children[k]] !== ItemKind.Open) list.push(children[k]);
      }
      list.sort((a, b) => y[a] - y[b] || x[a] - x[b]);
      for (let k = 0; k < list.length; ) {
        const first = list[k];
        let right = x[first] + w[first];
        let bottom = y[first] + h[first];
        let end = k + 1;
        // Neighbours on the same level with little space between them become one bar.
        while (
          end < list.length &&
          end - k < 8 &&
          y[list[end]] === y[first] &&
          x[list[end]] - right < 60
        ) {
          right = Math.max(right, x[list[end]] + w[list[end]]);
          bottom = Math.max(bottom, y[list[end]] + h[list[end]]);
          end++;
        }
        out.add(x[first], y[first], right, bottom, list[k + ((end - k) >> 1)]);
        k = end;
      }
    }
    return out.rows();
  }

  /** Up to six bars above one another, merged: what is drawn when zoomed out very far. */
  get blocks(): Rows {
    this.blocksOnce ??= this.makeBlocks();
    return this.blocksOnce;
  }
  private makeBlocks(): Rows {
    const { rows } = this;
    const { parent } = this.picture.projection;
    const out = new BarList();
    // Columns of one container are interleaved, so a few blocks are kept open side by side.
    let open: Block[] = [];
    let container = -1;
    const close = (block: Block): void => {
      out.add(block.left, block.top, block.right, block.bottom, block.item);
    };
    for (let k = 0; k < rows.count; k++) {
      const left = rows.x[k];
      const right = left + rows.w[k];
      const top = rows.y[k];
      const bottom = top + rows.h[k];
      const c = parent[rows.item[k]];
      if (c !== container) {
        open.forEach(close);
        open = [];
        container = c;
      }
      const onto = open.find(
        (o) => o.size < 6 && o.left < right && o.right > left && top - o.bottom < 60 && top > o.top,
      );
      if (onto) {
        onto.left = Math.min(onto.left, left);
        onto.right = Math.max(onto.right, right);
        onto.bottom = Math.max(onto.bottom, bottom);
        onto.size++;
        continue;
      }
      if (open.length === 16) close(open.shift() as Block);
      open.push({ left, right, top, bottom, item: rows.item[k], size: 1 });
    }
    open.forEach(close);
    return out.rows();
  }
}

interface Block {
  left: number;
  right: number;
  top: number;
  bottom: number;
  item: number;
  size: number;
}

function range(n: number): number[] {
  return Array.from({ length: n }, (_, k) => k);
}

/** Collects bars, then turns them into typed arrays with an index. */
class BarList {
  private numbers: number[] = [];
  add(left: number, top: number, right: number, bottom: number, item: number): void {
    this.numbers.push(left, top, right - left, bottom - top, item);
  }
  rows(): Rows {
    const count = this.numbers.length / 5;
    const rows: Rows = {
      count,
      x: new Float32Array(count),
      y: new Float32Array(count),
      w: new Float32Array(count),
      h: new Float32Array(count),
      item: new Int32Array(count),
      index: count > 0 ? new Flatbush(count, 16, Float32Array) : null,
    };
    for (let k = 0; k < count; k++) {
      const [x, y, w, h, item] = this.numbers.slice(5 * k, 5 * k + 5);
      rows.x[k] = x;
      rows.y[k] = y;
      rows.w[k] = w;
      rows.h[k] = h;
      rows.item[k] = item;
      rows.index?.add(x, y, x + w, y + h);
    }
    rows.index?.finish();
    return rows;
  }
}
