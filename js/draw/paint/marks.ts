/** Marks on edges, of nearly constant size on screen: diamonds for reshardings, discs for moves. */
import { bytes } from "../../base/format.ts";
import type { EdgeMark } from "../../scene/marks.ts";
import type { Surface } from "../../scene/surface.ts";
import type { PaintState } from "./paint-state.ts";
import { alphaOf } from "./paint-state.ts";

/** Size in world units, and the least size in pixels on screen. */
const SIZE = 15;
const MIN_PIXELS = 9;
const DISC = 8;
/** From this scale on, bytes are written beside a disc. */
const WORDS_SCALE = 0.8;
const WORDS = 11;

export const markSize = (scale: number): number => Math.max(SIZE, MIN_PIXELS / scale);

export function paintMarks(surface: Surface, s: PaintState, marks: readonly EdgeMark[]): void {
  if (s.edgeAlpha < 1) return;
  const size = markSize(s.scale);
  const { view, theme } = s;
  for (const m of marks) {
    if (m.x < view.x - size || m.x > view.x + view.w + size) continue;
    if (m.y < view.y - size || m.y > view.y + view.h + size) continue;
    const alpha = alphaOf(s, m.item);
    if (m.kind !== "reshard") {
      disc(surface, s, m, alpha);
      continue;
    }
    // A rim in the background colour sets it off from lines and boxes of any colour.
    surface.text("◆", m.x, m.y, { size: size * 1.45, color: theme.background, align: "center" });
    surface.text("◆", m.x, m.y, { size, color: theme.reshard, align: "center", alpha });
  }
}

/** Filled if the move is waited for, a ring if other work covers it or its time is unknown. */
function disc(surface: Surface, s: PaintState, m: EdgeMark, alpha: number | undefined): void {
  const { theme } = s;
  const d = Math.max(DISC, (MIN_PIXELS * 0.6) / s.scale);
  const color = m.kind === "exposed" ? theme.exposed : theme.moved;
  surface.rect(m.x - d / 2, m.y - d / 2, d, d, {
    fill: m.kind === "exposed" ? color : theme.background,
    stroke: color,
    lineWidth: d / 5,
    radius: d / 2,
    alpha,
  });
  if (m.room === 0 || s.scale < WORDS_SCALE) return;
  const words = bytes(m.bytes);
  const at = m.x + m.room * d;
  const end = at + m.room * s.metrics.width(words, WORDS);
  // A figure that the edge of the pane cuts is another figure.
  if (end < s.view.x || end > s.view.x + s.view.w) return;
  const align = m.room > 0 ? "left" : "right";
  surface.text(words, at, m.y, { size: WORDS, color, align, alpha });
}
