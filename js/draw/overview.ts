/**
 * A bitmap of the picture, for zooming out with very many boxes: drawn once, larger than the pane,
 * then moved and scaled during panning and zooming, and drawn again sharply after a pause.
 */
import type { Rect, Scene } from "../scene/scene.ts";
import type { Camera } from "./camera.ts";
import { CanvasSurface } from "./canvas-surface.ts";
import type { PaintState } from "./paint-state.ts";
import { isFar, paintBase } from "./painter.ts";

/** Scenes with fewer boxes are drawn directly. */
const MIN_ITEMS = 3000;
/** Width and height of the bitmap relative to the pane. */
const MARGIN = 1.8;
const MAX_STRETCH = 1.7;
const PAUSE = 140;

export class Overview {
  private canvas: HTMLCanvasElement | null = null;
  private surface: CanvasSurface | null = null;
  private world: Rect = { x: 0, y: 0, w: 0, h: 0 };
  private scale = 0;
  private made: { scene: Scene; looks: unknown; lit: unknown; theme: unknown } | null = null;
  private timer = 0;

  constructor(
    private camera: Camera,
    private redraw: () => void,
    signal: AbortSignal,
  ) {
    signal.addEventListener("abort", () => clearTimeout(this.timer), { once: true });
  }

  /** Draws the base of the picture if a bitmap pays off; returns false to leave it to the caller. */
  draw(context: CanvasRenderingContext2D, scene: Scene, s: PaintState, ratio: number): boolean {
    if (scene.count < MIN_ITEMS || !isFar(s)) {
      this.canvas = null;
      return false;
    }
    const { view } = s;
    const known =
      this.canvas !== null &&
      this.made?.scene === scene &&
      this.made.looks === s.looks &&
      this.made.lit === s.lit &&
      this.made.theme === s.theme;
    const stretch = s.scale / this.scale;
    const covers =
      known &&
      stretch < MAX_STRETCH &&
      stretch > 1 / MAX_STRETCH &&
      this.inside(view, scene.picture);
    if (!covers) this.render(scene, s, ratio);
    const { world } = this;
    context.imageSmoothingQuality = "medium";
    context.drawImage(this.canvas as HTMLCanvasElement, world.x, world.y, world.w, world.h);
    clearTimeout(this.timer);
    if (this.scale !== s.scale) {
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

  private render(scene: Scene, s: PaintState, ratio: number): void {
    const { camera } = this;
    const width = Math.round(camera.width * MARGIN * ratio);
    const height = Math.round(camera.height * MARGIN * ratio);
    if (!this.canvas || this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas = document.createElement("canvas");
      this.canvas.width = width;
      this.canvas.height = height;
      const context = this.canvas.getContext("2d");
      if (!context) return;
      this.surface = new CanvasSurface(context, s.theme.font);
    }
    const surface = this.surface as CanvasSurface;
    const c = surface.context;
    const w = s.view.w * MARGIN;
    const h = s.view.h * MARGIN;
    this.world = { x: s.view.x - (w - s.view.w) / 2, y: s.view.y - (h - s.view.h) / 2, w, h };
    this.scale = s.scale;
    const k = width / w;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, width, height);
    c.setTransform(k, 0, 0, k, -this.world.x * k, -this.world.y * k);
    paintBase(surface, scene, { ...s, view: this.world });
    this.made = { scene, looks: s.looks, lit: s.lit, theme: s.theme };
  }
}
