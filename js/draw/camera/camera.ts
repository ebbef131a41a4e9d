/** The part of the world that is on screen. World units are CSS pixels at scale 1. */
import type { Rect } from "../../scene/scene.ts";

const MIN_SCALE = 0.004;
const MAX_SCALE = 6;

export class Camera {
  /** World position of the pane's top-left corner. */
  x = 0;
  y = 0;
  scale = 1;
  width = 1;
  height = 1;

  get view(): Rect {
    return { x: this.x, y: this.y, w: this.width / this.scale, h: this.height / this.scale };
  }
  toWorldX(screenX: number): number {
    return this.x + screenX / this.scale;
  }
  toWorldY(screenY: number): number {
    return this.y + screenY / this.scale;
  }
  zoomAt(screenX: number, screenY: number, factor: number): void {
    const wx = this.toWorldX(screenX);
    const wy = this.toWorldY(screenY);
    this.scale = Math.min(MAX_SCALE, Math.max(MIN_SCALE, this.scale * factor));
    this.x = wx - screenX / this.scale;
    this.y = wy - screenY / this.scale;
  }
  panBy(screenDx: number, screenDy: number): void {
    this.x += screenDx / this.scale;
    this.y += screenDy / this.scale;
  }
  /** Keeps at least a corner of the world in view. */
  clamp(worldWidth: number, worldHeight: number): void {
    const marginX = Math.min(this.width * 0.7, 300) / this.scale;
    const marginY = Math.min(this.height * 0.7, 300) / this.scale;
    const w = this.width / this.scale;
    const h = this.height / this.scale;
    this.x = Math.min(worldWidth - Math.min(w, marginX), Math.max(this.x, marginX - w));
    this.y = Math.min(worldHeight - Math.min(h, marginY), Math.max(this.y, marginY - h));
  }
  /**
   * The whole world if it is readable, else its full width from the top. If not even the width
   * fits, the part of the top that contains the most of `contents`.
   */
  fit(world: Rect, readable: number, contents: Rect[]): Target {
    const whole = Math.min(this.width / world.w, this.height / world.h);
    // Slightly smaller but whole is better than readable but cut off.
    if (whole >= 0.94 * readable || contents.length === 0) {
      const scale = Math.min(1.25, Math.max(MIN_SCALE, whole));
      return this.centered(world, scale);
    }
    const scale = Math.min(1, Math.max(readable, this.width / world.w));
    const w = this.width / scale;
    const h = this.height / scale;
    const room = world.w <= w;
    const wanted = room ? 0 : fullest(contents, w, h);
    return {
      x: room ? world.x - (w - world.w) / 2 : clampTo(wanted, world.x, world.x + world.w - w),
      y: world.h <= h ? world.y - (h - world.h) / 2 : world.y,
      scale,
    };
  }
  centered(r: Rect, scale: number): Target {
    return {
      x: r.x + r.w / 2 - this.width / scale / 2,
      y: r.y + r.h / 2 - this.height / scale / 2,
      scale,
    };
  }
}

export interface Target {
  x: number;
  y: number;
  scale: number;
}

/** Left edge of the window of that size, at the top, that covers the most contents. */
function fullest(contents: Rect[], width: number, height: number): number {
  let best = 0;
  let bestArea = -1;
  const near = contents.filter((r) => r.y < height).slice(0, 400);
  for (const { x: left } of near) {
    let area = 0;
    for (const r of near) {
      const w = Math.min(r.x + r.w, left - 12 + width) - Math.max(r.x, left - 12);
      if (w > 0) area += w * (Math.min(r.y + r.h, height) - r.y) * (1 - 0.5 * (r.y / height));
    }
    if (area > bestArea * 1.001) {
      bestArea = area;
      best = left - 12;
    }
  }
  return best;
}

function clampTo(v: number, low: number, high: number): number {
  return Math.min(Math.max(v, low), Math.max(low, high));
}
