/** The canvas: frames on demand, the camera and its animation, dimming and highlighting. */
import { READABLE_SCALE, type TextMetrics } from "../graph/metrics.ts";
import { EdgeShapes } from "../scene/edge-shapes.ts";
import { type Colors, type ItemLooks, itemLooks } from "../scene/looks.ts";
import type { EdgeMark } from "../scene/marks.ts";
import type { Rect, Scene } from "../scene/scene.ts";
import type { Surface } from "../scene/surface.ts";
import type { GraphTheme } from "../theme/graph.ts";
import type { LegendEntry } from "./api.ts";
import { Camera, type Target } from "./camera/camera.ts";
import { Minimap } from "./camera/minimap.ts";
import { Overview } from "./camera/overview.ts";
import { DURATION, Transition } from "./camera/transition.ts";
import type { SceneLife } from "./life.ts";
import { CanvasSurface } from "./paint/canvas-surface.ts";
import { paintEdgeShapes } from "./paint/edge-shapes.ts";
import { legendHeight, paintLegend } from "./paint/legend.ts";
import { paintMarks } from "./paint/marks.ts";
import { outlineAll, paintOverlay, type Touched } from "./paint/overlay.ts";
import type { PaintState } from "./paint/paint-state.ts";
import { PLAIN_SCALE, paintBase, paintScene } from "./paint/painter.ts";
import { SvgSurface } from "./paint/svg-surface.ts";
import { paintTitles } from "./paint/titles.ts";

/** Pixels of a canvas that browsers make; Safari's is the smallest limit. */
const MOST_PIXELS = 16_777_216 * 4;

export class Renderer {
  readonly camera = new Camera();
  readonly canvas: HTMLCanvasElement;
  readonly minimap: Minimap;
  scene: Scene;
  lit: Uint8Array | null = null;
  /** Which parts of the scene exist at a pass; see life.ts. */
  life: SceneLife | null = null;
  selected = -1;
  hovered = -1;
  /** Items pointed at in a text. */
  pointed: readonly number[] = [];
  lines: Touched | null = null;
  private edgeMarks: EdgeMark[] = [];
  private shapes: EdgeShapes | null = null;
  frameMs = 0;
  frames = 0;
  private context: CanvasRenderingContext2D;
  private surface: CanvasSurface;
  private looks: ItemLooks;
  private transition: Transition | null = null;
  private flight: { from: Target; to: Target; start: number } | null = null;
  private request = 0;
  private calm: MediaQueryList;
  private overview: Overview;

  constructor(
    readonly element: HTMLElement,
    scene: Scene,
    readonly metrics: TextMetrics,
    private theme: GraphTheme,
    private colors: Colors,
    private counted: (i: number) => boolean,
    signal: AbortSignal,
  ) {
    this.scene = scene;
    this.canvas = document.createElement("canvas");
    Object.assign(this.canvas.style, {
      position: "absolute",
      inset: "0",
      width: "100%",
      height: "100%",
      display: "block",
      outlineOffset: "-2px",
      touchAction: "none",
    });
    this.canvas.tabIndex = 0;
    element.append(this.canvas);
    const context = this.canvas.getContext("2d", { alpha: false });
    if (!context) throw new Error("This browser provides no 2D canvas; the graph cannot be drawn.");
    this.context = context;
    this.surface = new CanvasSurface(context, theme.font);
    this.looks = itemLooks(scene, colors, counted);
    this.minimap = new Minimap(element, this.camera, () => this.moved(), signal);
    this.overview = new Overview(this.camera, () => this.invalidate(), signal);
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    signal.addEventListener("abort", () => cancelAnimationFrame(this.request), { once: true });
  }

  /** Adopts the element's size; returns whether it changed. */
  resize(): boolean {
    const { clientWidth: w, clientHeight: h } = this.element;
    const ratio = devicePixelRatio || 1;
    const bw = Math.max(1, Math.round(w * ratio));
    const bh = Math.max(1, Math.round(h * ratio));
    const same = this.canvas.width === bw && this.canvas.height === bh && this.camera.width === w;
    if (same || w === 0 || h === 0) return false;
    this.canvas.width = bw;
    this.canvas.height = bh;
    this.camera.width = w;
    this.camera.height = h;
    this.surface.reset();
    // Resizing blanks the canvas: draw now, not in the next frame.
    this.draw(performance.now());
    return true;
  }

  setTheme(theme: GraphTheme, colors: Colors): void {
    this.theme = theme;
    this.surface.setFamily(theme.font);
    this.setColors(colors);
  }
  setColors(colors: Colors): void {
    this.colors = colors;
    this.looks = itemLooks(this.scene, colors, this.counted);
    this.invalidate();
  }

  get marks(): readonly EdgeMark[] {
    return this.edgeMarks;
  }
  /** Marks of the scene that is shown; the shapes beside edges avoid them. */
  set marks(marks: EdgeMark[]) {
    this.edgeMarks = marks;
    this.shapes = new EdgeShapes(this.scene, this.metrics, marks);
  }

  /** Shows another scene; `anchor` is a tree node whose corner stays in place on screen. */
  setScene(scene: Scene, anchor: number, counted: (i: number) => boolean): void {
    const before = this.scene;
    this.scene = scene;
    this.shapes = null;
    this.counted = counted;
    this.looks = itemLooks(scene, this.colors, counted);
    const old = findNode(before, anchor);
    const now = findNode(scene, anchor);
    let dx = 0;
    let dy = 0;
    if (old >= 0 && now >= 0) {
      dx = scene.picture.x[now] - before.picture.x[old];
      dy = scene.picture.y[now] - before.picture.y[old];
      this.camera.x += dx;
      this.camera.y += dy;
    }
    this.flight = null;
    this.transition = this.calm.matches
      ? null
      : Transition.between(before, scene, dx, dy, performance.now());
    this.invalidate();
  }

  moved(): void {
    this.flight = null;
    this.camera.clamp(this.scene.picture.width, this.scene.picture.height);
    this.invalidate();
  }
  invalidate(): void {
    if (!this.request) this.request = requestAnimationFrame((t) => this.frame(t));
  }
  flyTo(to: Target, instant = false): void {
    const { camera } = this;
    if (instant || this.calm.matches || this.scene.count > 20_000) {
      camera.x = to.x;
      camera.y = to.y;
      camera.scale = to.scale;
      this.flight = null;
    } else {
      const from = { x: camera.x, y: camera.y, scale: camera.scale };
      this.flight = { from, to, start: performance.now() };
    }
    this.invalidate();
  }
  /** Shows the whole picture; with `readable`, never too small to read. */
  fit(readable = false, instant = false): void {
    const { picture } = this.scene;
    const world = { x: 0, y: 0, w: picture.width, h: picture.height };
    const { childOffsets, children } = picture.projection;
    const contents: Rect[] = [];
    for (let k = 0; k < childOffsets[1]; k++) contents.push(this.scene.rect(children[k]));
    // In a picture of passes one looks for changes: seeing all of it matters more than reading names.
    const least = READABLE_SCALE * (this.life ? 0.6 : 1);
    this.flyTo(this.camera.fit(world, readable ? least : 0, contents), instant);
  }
  /** Moves as little as needed to show the rectangle, zooming only if it is unreadable. */
  show(r: Rect): void {
    const goal = this.flight?.to ?? this.camera;
    let scale = goal.scale;
    const { width, height } = this.camera;
    if (scale < 0.55) scale = 1;
    const fits = Math.min((width - 40) / r.w, (height - 40) / r.h);
    if (fits < scale) scale = Math.max(Math.min(scale, READABLE_SCALE), Math.min(scale, fits));
    const w = width / scale;
    const h = height / scale;
    const margin = 24 / scale;
    let x = goal.x + (width / goal.scale - w) / 2;
    let y = goal.y + (height / goal.scale - h) / 2;
    const inside =
      r.x - margin >= x &&
      r.y - margin >= y &&
      r.x + r.w + margin <= x + w &&
      r.y + r.h + margin <= y + h;
    if (!inside && r.w < w * 0.5 && r.h < h * 0.5) {
      x = r.x + r.w / 2 - w / 2;
      y = r.y + r.h / 2 - h / 2;
    } else {
      if (r.x + r.w + margin > x + w) x = r.x + r.w + margin - w;
      if (r.x - margin < x) x = r.x - margin;
      if (r.y + r.h + margin > y + h) y = r.y + r.h + margin - h;
      if (r.y - margin < y) y = r.y - margin;
    }
    this.flyTo({ x, y, scale });
  }

  private state(view: Rect): PaintState {
    const { picture } = this.scene;
    const places = this.transition?.now ?? picture;
    return {
      theme: this.theme,
      metrics: this.metrics,
      colors: this.colors,
      looks: this.looks,
      scale: this.camera.scale,
      view,
      lit: this.lit,
      life: this.life,
      x: places.x,
      y: places.y,
      w: places.w,
      h: places.h,
      all: this.transition !== null,
      edgeAlpha: 1,
    };
  }

  private frame(time: number): void {
    this.request = 0;
    this.draw(Math.max(time, performance.now() - 1));
    if (this.transition || this.flight) this.invalidate();
  }

  private draw(time: number): void {
    const begin = performance.now();
    const { camera, context } = this;
    if (this.flight) {
      const t = Math.min(1, Math.max(0, (time - this.flight.start) / (DURATION * 1.3)));
      const e = t < 0.5 ? 2 * t * t : 1 - (-2 * t + 2) ** 2 / 2;
      const { from, to } = this.flight;
      camera.scale = from.scale * (to.scale / from.scale) ** e;
      // Interpolate the centre of the screen: interpolating a corner would swing.
      const mx = (p: Target): number => p.x + camera.width / p.scale / 2;
      const my = (p: Target): number => p.y + camera.height / p.scale / 2;
      camera.x = mx(from) + (mx(to) - mx(from)) * e - camera.width / camera.scale / 2;
      camera.y = my(from) + (my(to) - my(from)) * e - camera.height / camera.scale / 2;
      if (t >= 1) this.flight = null;
    }
    let edgeAlpha = 1;
    if (this.transition) {
      const e = this.transition.step(time);
      edgeAlpha = Math.max(0, e * 2 - 1);
      if (e >= 1) this.transition = null;
    }
    const ratio = this.canvas.width / Math.max(1, camera.width);
    const k = ratio * camera.scale;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = this.theme.background;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    context.setTransform(k, 0, 0, k, -camera.x * k, -camera.y * k);
    const state = this.state(camera.view);
    state.edgeAlpha = this.transition ? edgeAlpha : 1;
    const marksBelow = state.scale < PLAIN_SCALE;
    const base = (surface: CanvasSurface, s: PaintState): void => {
      paintBase(surface, this.scene, s);
      if (marksBelow) paintMarks(surface, s, this.edgeMarks);
    };
    if (!this.overview.draw(context, this.scene, state, ratio, base, this.edgeMarks)) {
      base(this.surface, state);
    }
    paintTitles(this.surface, this.scene, state);
    outlineAll(this.surface, state, this.pointed);
    paintOverlay(this.surface, this.scene, state, this.selected, this.hovered, this.lines);
    paintEdgeShapes(this.surface, state, this.shapes);
    if (!marksBelow) paintMarks(this.surface, state, this.edgeMarks);
    this.minimap.draw(this.scene, state, ratio);
    this.frameMs = performance.now() - begin;
    this.frames++;
  }

  svg(title: string, legend: readonly LegendEntry[]): string {
    const { picture } = this.scene;
    const surface = new SvgSurface();
    const { font, background } = this.theme;
    const height = this.whole(surface, legend);
    return surface.document(picture.width, height, font, background, title);
  }
  screenshot(): string {
    this.draw(performance.now());
    return this.canvas.toDataURL("image/png");
  }
  /** A data URL; "" for a picture that is too large for a canvas at this scale. */
  png(scale: number, legend: readonly LegendEntry[]): string {
    const { picture } = this.scene;
    const canvas = document.createElement("canvas");
    const height = picture.height + legendHeight(legend, picture.width);
    canvas.width = Math.ceil(picture.width * scale);
    canvas.height = Math.ceil(height * scale);
    if (canvas.width * canvas.height > MOST_PIXELS) return "";
    const context = canvas.getContext("2d");
    if (!context) return "";
    context.scale(scale, scale);
    context.fillStyle = this.theme.background;
    context.fillRect(0, 0, picture.width, height);
    this.whole(new CanvasSurface(context, this.theme.font), legend);
    return canvas.toDataURL("image/png");
  }
  /** Paints the whole picture and the legend below it, without what is selected; returns the height. */
  private whole(surface: Surface, legend: readonly LegendEntry[]): number {
    const { x, y, w, h, width, height } = this.scene.picture;
    const view = { x: 0, y: 0, w: width, h: height };
    const state = { ...this.state(view), x, y, w, h, scale: 1, lit: null };
    paintScene(surface, this.scene, state);
    paintEdgeShapes(surface, state, this.shapes);
    paintMarks(surface, state, this.edgeMarks);
    return height + paintLegend(surface, this.theme, legend, width, height);
  }
}

function findNode(scene: Scene, node: number): number {
  if (node < 0) return -1;
  return scene.picture.projection.nodes.indexOf(node);
}
