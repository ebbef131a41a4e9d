/**
 * A bitmap of the picture, for zooming out with very many boxes: drawn once, larger than the pane,
 * then moved during panning and scaled during zooming, and drawn again sharply after a pause.
 *
 *     ┌ bitmap ───────────┐
 *     │   ┌ pane ────┐    │   A pane that leaves it takes the bitmap along: what both places
 *     │   │          │    │   show is copied, and only the rest is painted.
 *     │   └──────────┘    │
 *     └───────────────────┘
 *
 * Without a GPU, copying whole pixels of an opaque bitmap is the one cheap way to draw it: with
 * fractions of pixels, smoothing or transparency, a frame takes several times as long.
 */
import type { Rect, Scene } from "../../scene/scene.ts";
import { CanvasSurface } from "../paint/canvas-surface.ts";
import type { PaintState } from "../paint/paint-state.ts";
import { isFar, isPlain } from "../paint/painter.ts";
import type { Camera } from "./camera.ts";

/** Scenes with fewer boxes are drawn directly. */
const MIN_ITEMS = 3000;
/** Width of the bitmap beyond each side of the pane, relative to the pane. */
const MARGIN = 0.4;
const MAX_STRETCH = 1.7;
const PAUSE = 140;
/** Fractions of a device pixel that cannot be seen. */
const EXACT = 0.02;

type Paint = (surface: CanvasSurface, s: PaintState) => void;

export class Overview {
  private canvas: HTMLCanvasElement | null = null;
  private surface: CanvasSurface | null = null;
  /** What the bitmap shows, in world units, and its device pixels per world unit. */
  private world: Rect = { x: 0, y: 0, w: 0, h: 0 };
  private k = 0;
  private made: readonly unknown[] | null = null;
  private timer = 0;

  constructor(
    private camera: Camera,
    private redraw: () => void,
    signal: AbortSignal,
  ) {
    signal.addEventListener("abort", () => clearTimeout(this.timer), { once: true });
  }

  /**
   * Draws what `paint` paints if a bitmap pays off; returns false to leave it to the caller.
   * `marks` is another value when that shows other marks.
   */
  draw(
    context: CanvasRenderingContext2D,
    scene: Scene,
    s: PaintState,
    ratio: number,
    paint: Paint,
    marks: unknown,
  ): boolean {
    clearTimeout(this.timer);
    if (scene.count < MIN_ITEMS || !isPlain(s)) {
      this.canvas = null;
      this.made = null;
      return false;
    }
    const { view } = s;
    const k = ratio * s.scale;
    // What is not that much is painted sharply while zooming.
    if (k !== this.k && !isFar(s)) {
      this.k = k;
      this.made = null;
      return false;
    }
    const key = [scene, s.looks, s.lit, s.theme, marks];
    const known = this.canvas && this.made?.every((part, n) => part === key[n]);
    const stretch = k / this.k;
    const near = stretch < MAX_STRETCH && stretch > 1 / MAX_STRETCH;
    if (!known || !near || !this.inside(view, scene.picture)) {
      this.render(s, k, paint, Boolean(known) && stretch === 1);
      this.made = key;
    }
    const canvas = this.canvas as unknown as HTMLCanvasElement;
    const { world } = this;
    let exact = false;
    if (this.k === k) {
      const x = (world.x - view.x) * k;
      const y = (world.y - view.y) * k;
      exact = Math.abs(x - Math.round(x)) < EXACT && Math.abs(y - Math.round(y)) < EXACT;
      context.save();
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(canvas, Math.round(x), Math.round(y));
      context.restore();
    } else context.drawImage(canvas, world.x, world.y, world.w, world.h);
    if (!exact) {
      this.timer = setTimeout(() => {
        this.made = null;
        this.redraw();
      }, PAUSE) as unknown as number;
    }
    return true;
  }

  /** Whether the bitmap covers everything that the view shows. */
  private inside(view: Rect, size: { width: number; height: number }): boolean {
    const { world } = this;
    return (
      Math.max(0, view.x) >= world.x &&
      Math.max(0, view.y) >= world.y &&
      Math.min(size.width, view.x + view.w) <= world.x + world.w &&
      Math.min(size.height, view.y + view.h) <= world.y + world.h
    );
  }

  /** Paints the bitmap around the view; with `moved`, only what it does not show yet. */
  private render(s: PaintState, k: number, paint: Paint, moved: boolean): void {
    const { camera, world: old } = this;
    const marginX = Math.round(s.view.w * k * MARGIN);
    const marginY = Math.round(s.view.h * k * MARGIN);
    const width = Math.round(s.view.w * k) + 2 * marginX;
    const height = Math.round(s.view.h * k) + 2 * marginY;
    let dx = width;
    let dy = height;
    if (!this.canvas || this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas = document.createElement("canvas");
      this.canvas.width = width;
      this.canvas.height = height;
      const context = this.canvas.getContext("2d", { alpha: false });
      if (!context) return;
      this.surface = new CanvasSurface(context, s.theme.font);
    } else if (moved) {
      dx = Math.round((old.x - camera.x) * k + marginX);
      dy = Math.round((old.y - camera.y) * k + marginY);
    }
    const known = Math.abs(dx) < width && Math.abs(dy) < height;
    this.k = k;
    this.world = {
      x: known ? old.x - dx / k : camera.x - marginX / k,
      y: known ? old.y - dy / k : camera.y - marginY / k,
      w: width / k,
      h: height / k,
    };
    if (!known) {
      this.paint(s, paint, 0, 0, width, height);
      return;
    }
    const c = (this.surface as CanvasSurface).context;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.imageSmoothingEnabled = false;
    c.drawImage(this.canvas, dx, dy);
    if (dx > 0) this.paint(s, paint, 0, 0, dx, height);
    if (dx < 0) this.paint(s, paint, width + dx, 0, -dx, height);
    if (dy > 0) this.paint(s, paint, 0, 0, width, dy);
    if (dy < 0) this.paint(s, paint, 0, height + dy, width, -dy);
  }

  /** Paints a part of the bitmap, given in its pixels. */
  private paint(s: PaintState, paint: Paint, x: number, y: number, w: number, h: number): void {
    const { k, world } = this;
    const surface = this.surface as CanvasSurface;
    const c = surface.context;
    c.save();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.beginPath();
    c.rect(x, y, w, h);
    c.clip();
    c.fillStyle = s.theme.background;
    c.fillRect(x, y, w, h);
    c.setTransform(k, 0, 0, k, -world.x * k, -world.y * k);
    const view = { x: world.x + x / k, y: world.y + y / k, w: w / k, h: h / k };
    paint(surface, { ...s, view });
    c.restore();
    surface.reset();
  }
}
