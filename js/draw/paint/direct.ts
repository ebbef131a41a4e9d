/** Lines between boxes for which the layout has no route. */
import { RouteStyle } from "../../graph/layout/routes.ts";
import type { Surface } from "../../scene/surface.ts";
import type { PaintState } from "./paint-state.ts";

/** Draws a line straight from box to box, regardless of what is in between. */
export function direct(
  surface: Surface,
  s: PaintState,
  a: number,
  b: number,
  stroke: string,
  dash: boolean,
): void {
  const ax = s.x[a] + s.w[a] / 2;
  const bx = s.x[b] + s.w[b] / 2;
  const look = { stroke, lineWidth: Math.max(1.6, 1.4 / s.scale), dash, arrow: true };
  const bottom = s.y[a] + s.h[a];
  if (bottom + 6 <= s.y[b]) {
    surface.route([ax, bx], [bottom, s.y[b]], 0, 2, RouteStyle.Curve, look);
    return;
  }
  const right = bx > ax;
  const fromX = right ? s.x[a] + s.w[a] : s.x[a];
  const toX = right ? s.x[b] : s.x[b] + s.w[b];
  const middle = (fromX + toX) / 2;
  const fromY = s.y[a] + s.h[a] / 2;
  const toY = s.y[b] + Math.min(s.h[b] / 2, 14);
  surface.route(
    [fromX, middle, middle, toX],
    [fromY, fromY, toY, toY],
    0,
    4,
    RouteStyle.Square,
    look,
  );
}
