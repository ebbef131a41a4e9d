/** Marks on edges, of nearly constant size on screen: diamonds, and discs for what moves. */
import { bytes } from "../base/format.ts";
import type { EdgeMark } from "../scene/marks.ts";
import type { Surface } from "../scene/surface.ts";
import type { PaintState } from "./paint-state.ts";
import { alphaOf } from "./paint-state.ts";

/** World units at scale 1, and the least pixels on screen. */
const SIZE = 15;
const MIN_PIXELS = 9;
const DISC = 8;
/** Bytes are said beside a disc where they can be read. */
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
    // A rim of background keeps it apart from lines and boxes of any colour.
    surface.text("◆", m.x, m.y, { size: size * 1.45, color: theme.background, align: "center" });
    surface.text("◆", m.x, m.y, { size, color: theme.reshard, align: "center", alpha });
  }
}

/** Filled where it is waited for, a ring where other work covers it or nothing is known. */
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
  const align = m.room > 0 ? "left" : "right";
  surface.text(bytes(m.bytes), m.x + m.room * d, m.y, { size: WORDS, color, align, alpha });
}
