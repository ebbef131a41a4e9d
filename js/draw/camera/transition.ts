/** Animates boxes to their new positions when something opens or closes. */
import type { Scene } from "../../scene/scene.ts";

/** Pictures with more boxes change at once, as nobody could follow that many. */
const MAX_ITEMS = 4000;
export const DURATION = 200;

export interface Places {
  x: Float64Array;
  y: Float64Array;
  w: Float64Array;
  h: Float64Array;
}

export class Transition {
  private from: Places;
  readonly now: Places;

  private constructor(
    private scene: Scene,
    from: Places,
    private start: number,
  ) {
    this.from = from;
    const { x, y, w, h } = scene.picture;
    this.now = { x: x.slice(), y: y.slice(), w: w.slice(), h: h.slice() };
  }

  /**
   * From the old scene to the new one; (`dx`, `dy`) is how far the camera moved with the anchor.
   * New items emerge from the nearest container that was there before.
   */
  static between(
    before: Scene,
    after: Scene,
    dx: number,
    dy: number,
    start: number,
  ): Transition | null {
    if (before.count > MAX_ITEMS || after.count > MAX_ITEMS) return null;
    const old = before.picture;
    const { x, y, w, h, projection } = after.picture;
    const place = new Map<number, number>();
    for (let k = 0; k < before.count; k++) place.set(old.projection.nodes[k], k);
    const from: Places = { x: x.slice(), y: y.slice(), w: w.slice(), h: h.slice() };
    for (let k = 1; k < after.count; k++) {
      const was = place.get(projection.nodes[k]);
      if (was !== undefined) {
        from.x[k] = old.x[was] + dx;
        from.y[k] = old.y[was] + dy;
        from.w[k] = old.w[was];
        from.h[k] = old.h[was];
        continue;
      }
      const p = projection.parent[k];
      if (p <= 0 || w[p] === 0) continue;
      // Parents come first, so their place is known; the child keeps its relative place in it.
      const sx = from.w[p] / w[p];
      const sy = from.h[p] / h[p];
      from.x[k] = from.x[p] + (x[k] - x[p]) * sx;
      from.y[k] = from.y[p] + (y[k] - y[p]) * sy;
      from.w[k] = w[k] * sx;
      from.h[k] = h[k] * sy;
    }
    return new Transition(after, from, start);
  }

  /** Moves everything to its position at `time`; returns the eased progress, 1 at the end. */
  step(time: number): number {
    const t = Math.min(1, Math.max(0, (time - this.start) / DURATION));
    const e = 1 - (1 - t) ** 3;
    const { x, y, w, h } = this.scene.picture;
    const { from, now } = this;
    for (let k = 0; k < x.length; k++) {
      now.x[k] = from.x[k] + (x[k] - from.x[k]) * e;
      now.y[k] = from.y[k] + (y[k] - from.y[k]) * e;
      now.w[k] = from.w[k] + (w[k] - from.w[k]) * e;
      now.h[k] = from.h[k] + (h[k] - from.h[k]) * e;
    }
    return e;
  }
}
