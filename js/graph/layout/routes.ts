/**
 * Edge routes. A route is a list of points joined by curves that leave and arrive vertically, so
 * that points directly above one another are joined by a straight line.
 *
 *     box        box ──→ box     From one column to the next a route leaves and arrives at the
 *      │                         sides of its boxes, if nothing stands there.
 *     box        box ─╮  ╭─╮
 *                  ╰──╯ │        Otherwise it leaves through the gap below its box, climbs in the
 *                      box       gutter and comes down on its user.
 */

export const enum RouteStyle {
  Curve = 0,
  /** Right angles with rounded corners. */
  Square = 1,
}

export interface Routes {
  /** Points of edge e: offsets[e] .. offsets[e + 1]; none when the edge is not drawn. */
  offsets: Uint32Array;
  x: Float64Array;
  y: Float64Array;
  style: Uint8Array;
}

/** Between routes that leave sideways, and from the corner of a box to the first, in world units. */
const APART = 4;
const CORNER = 14;

interface Part {
  top: Float64Array;
  heights: Float64Array;
  gaps: Float64Array;
  columnOf: Int32Array;
  columnRight: number[];
  /** Where the boxes of each rank begin and end. */
  left: Float64Array;
  right: Float64Array;
  gutter: number;
  lane: number;
}

export class RouteWriter {
  private points: (number[] | undefined)[];
  private style: Uint8Array;
  private part: Part | null = null;
  private turn = 0;
  constructor(private edges: number) {
    this.points = new Array(edges);
    this.style = new Uint8Array(edges);
  }
  beginPart(part: Part): void {
    this.part = part;
    this.turn = 0;
  }
  put(e: number, style: RouteStyle, points: number[]): void {
    this.points[e] = points;
    this.style[e] = style;
  }
  curve(
    e: number,
    a: number,
    b: number,
    rankA: number,
    center: Float64Array,
    first: number,
    length: number,
    x: Float64Array,
    y: Float64Array,
    w: Float64Array,
    h: Float64Array,
  ): void {
    const { top, heights } = this.part as Part;
    const middleA = x[a] + w[a] / 2;
    const middleB = x[b] + w[b] / 2;
    const nextX = length > 0 ? center[first] : middleB;
    const lastX = length > 0 ? center[first + length - 1] : middleA;
    // Lines meet wide boxes on the side they come from, so that they stay upright.
    const startX = toward(middleA, nextX, w[a]);
    const endX = toward(middleB, length > 0 ? lastX : startX, w[b]);
    const points = [startX, y[a] + h[a]];
    const floor = top[rankA] + heights[rankA];
    if (y[a] + h[a] < floor - 1) points.push(startX, floor);
    for (let k = 0; k < length; k++) {
      const r = rankA + 1 + k;
      points.push(center[first + k], top[r], center[first + k], top[r] + heights[r]);
    }
    points.push(endX, y[b]);
    this.put(e, RouteStyle.Curve, points);
  }
  wrap(
    e: number,
    a: number,
    b: number,
    rankA: number,
    rankB: number,
    x: Float64Array,
    y: Float64Array,
    w: Float64Array,
    h: Float64Array,
  ): void {
    const { top, heights, columnOf, columnRight, left, right, gutter, gaps } = this.part as Part;
    const turn = this.turn++ % 5;
    const from = columnOf[rankA];
    const to = columnOf[rankB];
    const side = gutter * (0.3 + 0.1 * turn);
    const below = top[rankA] + heights[rankA] + Math.min(gaps[rankA] * 0.5, 9) + turn * 0.8;
    const above = top[rankB] - 13 - turn * 0.8;
    const startX = x[a] + w[a] / 2;
    const endX = x[b] + w[b] / 2;
    const out = columnRight[from] + side;
    const last = x[a] + w[a] >= right[rankA] - 1;
    const first = x[b] <= left[rankB] + 1;
    if (to === from + 1 && last && first) {
      const [leaves, enters] = levels(y[a], h[a], y[b], h[b], turn * APART);
      const bend = leaves === enters ? [] : [out, leaves, out, enters];
      this.put(e, RouteStyle.Square, [x[a] + w[a], leaves, ...bend, x[b], enters]);
      return;
    }
    const points = [startX, y[a] + h[a], startX, below, out, below];
    if (to === from + 1) {
      points.push(out, above);
    } else {
      const over = 1 + turn * 1.5;
      const back = columnRight[to - 1] + side;
      points.push(out, over, back, over, back, above);
    }
    points.push(endX, above, endX, y[b]);
    this.put(e, RouteStyle.Square, points);
  }
  /** Moves every route written so far by the offset that `by` returns for its edge. */
  shift(by: (e: number) => [number, number]): void {
    for (let e = 0; e < this.edges; e++) {
      const points = this.points[e];
      if (!points) continue;
      const [dx, dy] = by(e);
      for (let k = 0; k < points.length; k += 2) {
        points[k] += dx;
        points[k + 1] += dy;
      }
    }
  }
  finish(): Routes {
    const offsets = new Uint32Array(this.edges + 1);
    for (let e = 0; e < this.edges; e++) {
      offsets[e + 1] = offsets[e] + (this.points[e]?.length ?? 0) / 2;
    }
    const x = new Float64Array(offsets[this.edges]);
    const y = new Float64Array(offsets[this.edges]);
    let k = 0;
    for (let e = 0; e < this.edges; e++) {
      const points = this.points[e];
      if (!points) continue;
      for (let p = 0; p < points.length; p += 2) {
        x[k] = points[p];
        y[k++] = points[p + 1];
      }
    }
    return { offsets, x, y, style: this.style };
  }
}

/** Heights at which a route leaves one box sideways and enters another: the same where it can. */
function levels(
  topA: number,
  heightA: number,
  topB: number,
  heightB: number,
  shift: number,
): [number, number] {
  const edge = (height: number): number => Math.min(height / 2, CORNER);
  const [firstA, lastA] = [topA + edge(heightA), topA + heightA - edge(heightA)];
  const [firstB, lastB] = [topB + edge(heightB), topB + heightB - edge(heightB)];
  const [low, high] = [Math.max(firstA, firstB), Math.min(lastA, lastB)];
  if (low <= high) {
    const level = Math.min(high, (low + high) / 2 + shift);
    return [level, level];
  }
  return firstA > lastB ? [firstA, lastB] : [lastA, firstB];
}

function toward(middle: number, wanted: number, width: number): number {
  const room = Math.max(0, Math.min(width * 0.36, width / 2 - 12));
  return Math.min(middle + room, Math.max(middle - room, wanted));
}
