/** Marks on edges, as diamonds of nearly constant size on screen. */
import type { EdgeMark } from "../scene/marks.ts";
import type { Surface } from "../scene/surface.ts";
import type { PaintState } from "./paint-state.ts";
import { alphaOf } from "./paint-state.ts";

/** World units at scale 1, and the least pixels on screen. */
const SIZE = 15;
const MIN_PIXELS = 9;

export const markSize = (scale: number): number => Math.max(SIZE, MIN_PIXELS / scale);

export function paintMarks(surface: Surface, s: PaintState, marks: readonly EdgeMark[]): void {
  if (s.edgeAlpha < 1) return;
  const size = markSize(s.scale);
  const { view, theme } = s;
  for (const m of marks) {
    if (m.x < view.x - size || m.x > view.x + view.w + size) continue;
    if (m.y < view.y - size || m.y > view.y + view.h + size) continue;
    const alpha = alphaOf(s, m.item);
    // A rim of background keeps it apart from lines and boxes of any colour.
    surface.text("◆", m.x, m.y, { size: size * 1.45, color: theme.background, align: "center" });
    surface.text("◆", m.x, m.y, { size, color: theme.reshard, align: "center", alpha });
  }
}
