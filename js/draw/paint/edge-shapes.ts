/** Shapes beside edges, in muted text, as long as they can be read. */
import * as M from "../../graph/metrics.ts";
import { EDGE_SHAPE_SIZE, type EdgeShapes } from "../../scene/edge-shapes.ts";
import type { Surface } from "../../scene/surface.ts";
import { ROOMY_PIXELS } from "./boxes.ts";
import { type PaintState, wordsAlphaOf } from "./paint-state.ts";

/** Text smaller than this on screen is not legible. */
const LEAST_PIXELS = 7.5;

export function paintEdgeShapes(surface: Surface, s: PaintState, shapes: EdgeShapes | null): void {
  if (!shapes || s.edgeAlpha < 1 || s.life || EDGE_SHAPE_SIZE * s.scale < LEAST_PIXELS) return;
  const boxesSay = M.SHAPE_SIZE * s.scale >= ROOMY_PIXELS;
  for (const shape of shapes.in(s.view)) {
    if (shape.inBox && boxesSay) continue;
    const alpha = wordsAlphaOf(s, shape.item);
    const style = { size: EDGE_SHAPE_SIZE, color: s.theme.mutedText, alpha };
    surface.text(shape.text, shape.x, shape.y, style);
  }
}
