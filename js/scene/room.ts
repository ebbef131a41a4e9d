/** Where text beside an edge has room: not over a box, a title, a line or other text. */
import { HEADER_HEIGHT } from "../graph/metrics.ts";
import { ItemKind } from "../graph/project/projection.ts";
import type { Rect, Scene } from "./scene.ts";

/** Whether the rectangle is clear of boxes and container titles, and crosses no container's border. */
export function isFree(scene: Scene, { x, y, w, h }: Rect): boolean {
  const { picture } = scene;
  const { kind } = picture.projection;
  return scene.itemsIn({ x, y, w, h }).every((k) => {
    if (kind[k] !== ItemKind.Open) return false;
    if (k === 0) return true;
    const left = picture.x[k];
    const top = picture.y[k];
    if (y < top + HEADER_HEIGHT || y + h > top + picture.h[k]) return false;
    return x >= left && x + w <= left + picture.w[k];
  });
}

/** Step size for following a line, in world units. */
const STEP = 6;

/** Whether a line of the picture runs through the rectangle. */
export function isCrossed(scene: Scene, rect: Rect): boolean {
  const { pointOffsets, pointX, pointY, style } = scene.picture.edges;
  return scene.edgesIn(rect).some((e) => {
    for (let k = pointOffsets[e] + 1; k < pointOffsets[e + 1]; k++) {
      const [x0, y0, x1, y1] = [pointX[k - 1], pointY[k - 1], pointX[k], pointY[k]];
      const bend = style[e] === 0 ? Math.max((y1 - y0) * 0.5, 6) : 0;
      const steps = Math.ceil((Math.abs(x1 - x0) + Math.abs(y1 - y0)) / STEP);
      for (let n = 0; n <= steps; n++) {
        const t = n / Math.max(1, steps);
        const u = 1 - t;
        // The curve that `trace` draws, or a straight line.
        const x = bend ? x0 + (x1 - x0) * t * t * (3 - 2 * t) : x0 + (x1 - x0) * t;
        const y = bend
          ? u * u * u * y0 +
            3 * u * u * t * (y0 + bend) +
            3 * u * t * t * (y1 - bend) +
            t * t * t * y1
          : y0 + (y1 - y0) * t;
        if (x > rect.x && x < rect.x + rect.w && y > rect.y && y < rect.y + rect.h) return true;
      }
    }
    return false;
  });
}

/** Height of the bands that index placed text, of which there may be thousands. */
const BAND = 14;

/** Text that is already placed. */
export class Placed {
  private bands = new Map<number, Rect[]>();

  meets(words: Rect): boolean {
    for (const band of this.bandsOf(words)) {
      for (const other of this.bands.get(band) ?? []) if (meet(words, other)) return true;
    }
    return false;
  }

  add(words: Rect): void {
    for (const band of this.bandsOf(words)) {
      const held = this.bands.get(band);
      if (held) held.push(words);
      else this.bands.set(band, [words]);
    }
  }

  private bandsOf({ y, h }: Rect): number[] {
    const first = Math.floor(y / BAND);
    return Array.from({ length: Math.floor((y + h) / BAND) - first + 1 }, (_, k) => first + k);
  }
}

const meet = (a: Rect, b: Rect): boolean =>
  a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
