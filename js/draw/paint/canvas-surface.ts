/** A surface over Canvas 2D. Fonts are set only when they change, as that is the slow part of text. */
import type { RectStyle, RouteLook, Surface, TextStyle } from "../../scene/surface.ts";
import { dashes, trace } from "../../scene/surface.ts";

export class CanvasSurface implements Surface {
  private font = "";
  constructor(
    readonly context: CanvasRenderingContext2D,
    private family: string,
  ) {}
  setFamily(family: string): void {
    this.family = family;
    this.font = "";
  }
  /** Forgets the font it set, after the context's state was changed elsewhere. */
  reset(): void {
    this.font = "";
  }
  rect(x: number, y: number, w: number, h: number, s: RectStyle): void {
    const c = this.context;
    if (s.alpha !== undefined) c.globalAlpha = s.alpha;
    const r = Math.min(s.radius ?? 0, w / 2, h / 2);
    if (r > 0) {
      c.beginPath();
      c.roundRect(x, y, w, h, r);
      if (s.fill) {
        c.fillStyle = s.fill;
        c.fill();
      }
      if (s.stroke) this.strokeStyle(s.stroke, s.lineWidth ?? 1, s.dash);
      if (s.stroke) c.stroke();
    } else {
      if (s.fill) {
        c.fillStyle = s.fill;
        c.fillRect(x, y, w, h);
      }
      if (s.stroke) {
        this.strokeStyle(s.stroke, s.lineWidth ?? 1, s.dash);
        c.strokeRect(x, y, w, h);
      }
    }
    if (s.dash) c.setLineDash([]);
    if (s.alpha !== undefined) c.globalAlpha = 1;
  }
  private strokeStyle(color: string, width: number, dash?: boolean): void {
    const c = this.context;
    c.strokeStyle = color;
    c.lineWidth = width;
    if (dash) c.setLineDash(dashes(width));
  }
  text(text: string, x: number, y: number, s: TextStyle): void {
    const c = this.context;
    const font = `${s.bold ? "600 " : ""}${s.size}px ${this.family}`;
    if (font !== this.font) {
      c.font = font;
      c.textBaseline = "middle";
      this.font = font;
    }
    const align = s.align ?? "left";
    if (c.textAlign !== align) c.textAlign = align;
    if (s.alpha !== undefined) c.globalAlpha = s.alpha;
    c.fillStyle = s.color;
    c.fillText(text, x, y);
    if (s.alpha !== undefined) c.globalAlpha = 1;
  }
  route(
    px: ArrayLike<number>,
    py: ArrayLike<number>,
    begin: number,
    end: number,
    style: number,
    look: RouteLook,
  ): void {
    const c = this.context;
    if (look.alpha !== undefined) c.globalAlpha = look.alpha;
    c.beginPath();
    trace(c, px, py, begin, end, style);
    this.strokeStyle(look.stroke, look.lineWidth, look.dash);
    c.stroke();
    if (look.dash) c.setLineDash([]);
    if (look.arrow) {
      const head = arrowHead(px, py, begin, end, style, 3 + look.lineWidth);
      c.beginPath();
      c.moveTo(head[0], head[1]);
      c.lineTo(head[2], head[3]);
      c.lineTo(head[4], head[5]);
      c.fillStyle = look.stroke;
      c.fill();
    }
    if (look.alpha !== undefined) c.globalAlpha = 1;
  }
}

/** The tip and the other two corners of the arrow head at the end of a route. */
export function arrowHead(
  px: ArrayLike<number>,
  py: ArrayLike<number>,
  begin: number,
  end: number,
  style: number,
  size: number,
): number[] {
  const x = px[end - 1];
  const y = py[end - 1];
  let dx = 0;
  let dy = 1;
  if (style !== 0 && end - begin > 1) {
    const length = Math.hypot(x - px[end - 2], y - py[end - 2]) || 1;
    dx = (x - px[end - 2]) / length;
    dy = (y - py[end - 2]) / length;
  }
  const bx = x - dx * size * 1.3;
  const by = y - dy * size * 1.3;
  const half = size * 0.62;
  return [x, y, bx - dy * half, by + dx * half, bx + dy * half, by - dx * half];
}
