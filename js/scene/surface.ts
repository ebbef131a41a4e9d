/** The few primitives of a picture; implemented for a canvas and for an SVG document. */

export interface RectStyle {
  fill?: string;
  stroke?: string;
  /** In world units. */
  lineWidth?: number;
  radius?: number;
  dash?: boolean;
  alpha?: number;
}

export interface RouteLook {
  stroke: string;
  lineWidth: number;
  dash?: boolean;
  alpha?: number;
  arrow?: boolean;
}

export interface TextStyle {
  size: number;
  color: string;
  bold?: boolean;
  align?: "left" | "center" | "right";
  alpha?: number;
}

export interface Surface {
  rect(x: number, y: number, w: number, h: number, style: RectStyle): void;
  /** One line of text; `y` is its middle. */
  text(text: string, x: number, y: number, style: TextStyle): void;
  /** Points begin .. end of the arrays, joined according to `style` (RouteStyle). */
  route(
    px: ArrayLike<number>,
    py: ArrayLike<number>,
    begin: number,
    end: number,
    style: number,
    look: RouteLook,
  ): void;
}

/** Receives the path of a route as canvas-like commands. */
export interface PathSink {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void;
  quadraticCurveTo(cx: number, cy: number, x: number, y: number): void;
}

/** Lengths of dash and gap, in world units; they grow with the line, which is wide when zoomed out. */
export function dashes(lineWidth: number): [number, number] {
  const k = Math.max(1, lineWidth / 1.6);
  return [4 * k, 3 * k];
}

const CORNER = 6;

/** Writes a route into a path; `style` is a `RouteStyle` of the layout. */
export function trace(
  sink: PathSink,
  px: ArrayLike<number>,
  py: ArrayLike<number>,
  begin: number,
  end: number,
  style: number,
): void {
  sink.moveTo(px[begin], py[begin]);
  if (style === 0) {
    for (let k = begin + 1; k < end; k++) {
      const x0 = px[k - 1];
      const y0 = py[k - 1];
      if (Math.abs(px[k] - x0) < 0.5) sink.lineTo(px[k], py[k]);
      else {
        const bend = Math.max((py[k] - y0) * 0.5, 6);
        sink.bezierCurveTo(x0, y0 + bend, px[k], py[k] - bend, px[k], py[k]);
      }
    }
    return;
  }
  for (let k = begin + 1; k + 1 < end; k++) {
    const before = Math.hypot(px[k] - px[k - 1], py[k] - py[k - 1]);
    const after = Math.hypot(px[k + 1] - px[k], py[k + 1] - py[k]);
    const r = Math.min(CORNER, before / 2, after / 2);
    if (r < 0.5) {
      sink.lineTo(px[k], py[k]);
      continue;
    }
    const fromX = px[k] - ((px[k] - px[k - 1]) / before) * r;
    const fromY = py[k] - ((py[k] - py[k - 1]) / before) * r;
    sink.lineTo(fromX, fromY);
    sink.quadraticCurveTo(
      px[k],
      py[k],
      px[k] + ((px[k + 1] - px[k]) / after) * r,
      py[k] + ((py[k + 1] - py[k]) / after) * r,
    );
  }
  sink.lineTo(px[end - 1], py[end - 1]);
}
