/** A surface that writes an SVG document. All text is escaped: names are data, never markup. */
import type { PathSink, RectStyle, RouteLook, Surface, TextStyle } from "../../scene/surface.ts";
import { dashes, trace } from "../../scene/surface.ts";
import { arrowHead } from "./canvas-surface.ts";

const ENTITIES: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

export function escapeXml(text: string): string {
  // Control characters are not allowed in XML at all, escaped or not.
  let out = "";
  for (const c of text) {
    const code = c.codePointAt(0) as number;
    if (code < 32 && code !== 9 && code !== 10 && code !== 13) continue;
    if (code === 0xfffe || code === 0xffff || (code >= 0xd800 && code <= 0xdfff)) continue;
    out += ENTITIES[c] ?? c;
  }
  return out;
}

const num = (v: number): string => String(Math.round(v * 100) / 100);

class SvgPath implements PathSink {
  d = "";
  moveTo(x: number, y: number): void {
    this.d += `M${num(x)} ${num(y)}`;
  }
  lineTo(x: number, y: number): void {
    this.d += `L${num(x)} ${num(y)}`;
  }
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void {
    this.d += `C${num(ax)} ${num(ay)} ${num(bx)} ${num(by)} ${num(x)} ${num(y)}`;
  }
  quadraticCurveTo(cx: number, cy: number, x: number, y: number): void {
    this.d += `Q${num(cx)} ${num(cy)} ${num(x)} ${num(y)}`;
  }
}

export class SvgSurface implements Surface {
  private parts: string[] = [];
  rect(x: number, y: number, w: number, h: number, s: RectStyle): void {
    const r = s.radius ? ` rx="${num(Math.min(s.radius, w / 2, h / 2))}"` : "";
    this.parts.push(
      `<rect x="${num(x)}" y="${num(y)}" width="${num(w)}" height="${num(h)}"${r}` +
        `${paint(s.fill)}${stroke(s.stroke, s.lineWidth, s.dash)}${alpha(s.alpha)}/>`,
    );
  }
  text(text: string, x: number, y: number, s: TextStyle): void {
    const anchor = { left: "", center: ' text-anchor="middle"', right: ' text-anchor="end"' };
    this.parts.push(
      `<text x="${num(x)}" y="${num(y + s.size * 0.35)}" font-size="${num(s.size)}"` +
        `${s.bold ? ' font-weight="600"' : ""}${anchor[s.align ?? "left"]}` +
        ` fill="${escapeXml(s.color)}"${alpha(s.alpha)}>${escapeXml(text)}</text>`,
    );
  }
  route(
    px: ArrayLike<number>,
    py: ArrayLike<number>,
    begin: number,
    end: number,
    style: number,
    look: RouteLook,
  ): void {
    const path = new SvgPath();
    trace(path, px, py, begin, end, style);
    this.parts.push(
      `<path d="${path.d}" fill="none"${stroke(look.stroke, look.lineWidth, look.dash)}${alpha(look.alpha)}/>`,
    );
    if (look.arrow) {
      const a = arrowHead(px, py, begin, end, style, 3 + look.lineWidth).map(num);
      this.parts.push(
        `<path d="M${a[0]} ${a[1]}L${a[2]} ${a[3]}L${a[4]} ${a[5]}Z"${paint(look.stroke)}${alpha(look.alpha)}/>`,
      );
    }
  }
  /** The document, `width` by `height` world units, with a title for screen readers. */
  document(width: number, height: number, font: string, background: string, title: string): string {
    const w = num(Math.max(1, width));
    const h = num(Math.max(1, height));
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}"` +
      ` font-family="${escapeXml(font)}" role="img"><title>${escapeXml(title)}</title>` +
      `<rect width="100%" height="100%"${paint(background)}/>${this.parts.join("\n")}</svg>\n`
    );
  }
}

function paint(color: string | undefined): string {
  return color ? ` fill="${escapeXml(color)}"` : ' fill="none"';
}
function stroke(color: string | undefined, width = 1, dash = false): string {
  if (!color) return "";
  return ` stroke="${escapeXml(color)}" stroke-width="${num(width)}"${dash ? ` stroke-dasharray="${dashes(width).map(num).join(" ")}"` : ""}`;
}
function alpha(value: number | undefined): string {
  return value === undefined || value === 1 ? "" : ` opacity="${num(value)}"`;
}
