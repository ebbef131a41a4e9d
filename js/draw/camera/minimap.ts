/** The whole picture in a corner, with a frame around what is on screen; drag to go there. */
import { ItemKind } from "../../graph/project/projection.ts";
import type { Scene } from "../../scene/scene.ts";
import { fillOf, type PaintState } from "../paint/paint-state.ts";
import type { Camera } from "./camera.ts";

const WIDTH = 168;
const HEIGHT = 118;

export class Minimap {
  readonly canvas: HTMLCanvasElement;
  wanted = true;
  private bitmap: HTMLCanvasElement;
  private scale = 1;
  private left = 0;
  private top = 0;
  private drawn: { scene: Scene; state: unknown } | null = null;

  constructor(
    parent: HTMLElement,
    private camera: Camera,
    moved: () => void,
    signal: AbortSignal,
  ) {
    this.canvas = document.createElement("canvas");
    this.bitmap = document.createElement("canvas");
    Object.assign(this.canvas.style, {
      position: "absolute",
      right: "10px",
      bottom: "10px",
      width: `${WIDTH}px`,
      height: `${HEIGHT}px`,
      borderRadius: "6px",
      cursor: "crosshair",
      touchAction: "none",
      display: "none",
    });
    this.canvas.setAttribute("aria-hidden", "true");
    parent.append(this.canvas);
    const go = (event: PointerEvent): void => {
      const box = this.canvas.getBoundingClientRect();
      const wx = (event.clientX - box.left - this.left) / this.scale;
      const wy = (event.clientY - box.top - this.top) / this.scale;
      this.camera.x = wx - this.camera.width / this.camera.scale / 2;
      this.camera.y = wy - this.camera.height / this.camera.scale / 2;
      moved();
    };
    this.canvas.addEventListener(
      "pointerdown",
      (event) => {
        this.canvas.setPointerCapture(event.pointerId);
        go(event);
        event.preventDefault();
      },
      { signal },
    );
    this.canvas.addEventListener(
      "pointermove",
      (event) => {
        if (event.buttons & 1) go(event);
      },
      { signal },
    );
  }

  draw(scene: Scene, s: PaintState, ratio: number): void {
    const { width, height } = scene.picture;
    const v = this.camera.view;
    const all = v.x <= 4 && v.y <= 4 && v.x + v.w >= width - 4 && v.y + v.h >= height - 4;
    // In a small pane it would cover too much of the picture.
    const small = this.camera.width < 800 || this.camera.height < 460;
    const show = this.wanted && !all && !small;
    this.canvas.style.display = show ? "block" : "none";
    if (!show) return;
    if (this.drawn?.scene !== scene || this.drawn.state !== s.looks) {
      this.render(scene, s, ratio);
      this.drawn = { scene, state: s.looks };
    }
    const c = this.canvas.getContext("2d");
    if (!c) return;
    if (this.canvas.width !== this.bitmap.width) this.canvas.width = this.bitmap.width;
    if (this.canvas.height !== this.bitmap.height) this.canvas.height = this.bitmap.height;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.bitmap, 0, 0);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = Math.max(1, this.left + v.x * this.scale);
    const y = Math.max(1, this.top + v.y * this.scale);
    const r = Math.min(WIDTH - 1, this.left + (v.x + v.w) * this.scale);
    const b = Math.min(HEIGHT - 1, this.top + (v.y + v.h) * this.scale);
    c.fillStyle = s.theme.selection;
    c.globalAlpha = 0.12;
    c.fillRect(x, y, Math.max(3, r - x), Math.max(3, b - y));
    c.globalAlpha = 1;
    c.strokeStyle = s.theme.selection;
    c.lineWidth = 1.5;
    c.strokeRect(x, y, Math.max(3, r - x), Math.max(3, b - y));
  }

  private render(scene: Scene, s: PaintState, ratio: number): void {
    const { width, height, x, y, w, h, projection } = scene.picture;
    const { kind, depth } = projection;
    this.scale = Math.min((WIDTH - 10) / width, (HEIGHT - 10) / height);
    this.left = (WIDTH - width * this.scale) / 2;
    this.top = (HEIGHT - height * this.scale) / 2;
    this.bitmap.width = Math.round(WIDTH * ratio);
    this.bitmap.height = Math.round(HEIGHT * ratio);
    const c = this.bitmap.getContext("2d");
    if (!c) return;
    const { theme } = s;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.globalAlpha = 0.94;
    c.fillStyle = theme.background;
    c.fillRect(0, 0, WIDTH, HEIGHT);
    c.globalAlpha = 1;
    c.strokeStyle = theme.containerBorder;
    c.lineWidth = 1;
    c.strokeRect(0.5, 0.5, WIDTH - 1, HEIGHT - 1);
    c.setTransform(
      ratio * this.scale,
      0,
      0,
      ratio * this.scale,
      ratio * this.left,
      ratio * this.top,
    );
    c.lineWidth = 0.7 / this.scale;
    for (let k = 1; k < scene.count; k++) {
      if (kind[k] !== ItemKind.Open || w[k] * this.scale < 2) continue;
      c.fillStyle = theme.containers[(depth[k] - 1) % theme.containers.length];
      c.fillRect(x[k], y[k], w[k], h[k]);
      c.strokeRect(x[k], y[k], w[k], h[k]);
    }
    const rows = scene.rows;
    for (let k = 0; k < rows.count; k++) {
      const item = rows.item[k];
      const bars = s.looks.bars.get(item);
      const main = bars && bars.length > 0 ? s.colors.palette[bars[0].color] : theme.group;
      c.fillStyle = fillOf(s, item, main);
      c.fillRect(rows.x[k], rows.y[k], rows.w[k], rows.h[k]);
    }
  }
}
