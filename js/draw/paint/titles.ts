/** Titles of open containers: in their headers, or on plates if headers are too small or off screen. */
import * as M from "../../graph/metrics.ts";
import { ItemKind } from "../../graph/project/projection.ts";
import type { Rect, Scene } from "../../scene/scene.ts";
import type { Surface } from "../../scene/surface.ts";
import { paintChip, sign } from "./boxes.ts";
import { isThere, type PaintState, range } from "./paint-state.ts";

/** Titles are drawn last, so that they stay readable over the contents of their container. */
export function paintTitles(surface: Surface, scene: Scene, s: PaintState): void {
  const { kind } = scene.picture.projection;
  const open = s.all
    ? range(scene.count).filter((k) => kind[k] === ItemKind.Open)
    : scene.containersIn(s.view, 20 / s.scale);
  titles(
    surface,
    scene,
    s,
    open.filter((k) => k > 0),
  );
}

function titles(surface: Surface, scene: Scene, s: PaintState, open: number[]): void {
  const { theme, scale, metrics, view } = s;
  const { text, projection } = scene.picture;
  const placed: Rect[] = [];
  // Outer containers first; a title that would cover another is left out.
  for (const item of open) {
    if (!isThere(s, item)) continue;
    const { chips, label } = text[item];
    const sub = s.life ? s.life.words(item) : text[item].sub;
    const x = s.x[item];
    const y = s.y[item];
    const w = s.w[item];
    const h = s.h[item];
    if (w * scale < 40 || h * scale < 20) continue;
    const header = M.HEADER_HEIGHT;
    const small = scale < M.READABLE_SCALE;
    // Its beginning may be off screen at the top or the left.
    const above = y < view.y || x + 8 < view.x;
    if (!small && !above) {
      const size = M.TITLE_SIZE;
      const middle = y + header / 2;
      surface.text(label, x + 9, middle, { size, bold: true, color: theme.title });
      const after = x + 9 + metrics.width(label, size, true) + 8;
      surface.text(sub, after, middle, { size: M.SUB_SIZE, color: theme.mutedText });
      if (chips.length > 0 && !s.life) {
        const [shift] = scene.chipShift(item);
        for (const chip of chips) paintChip(surface, s, x + shift, y, chip, undefined);
      }
      sign(surface, s, x + w - 13, middle, false);
      continue;
    }
    // Zoomed out, or its top is off screen: a small plate at the first visible position.
    const size = (small ? Math.max(10, Math.min(13, 9 + (h * scale) / 90)) : 12) / scale;
    const left = Math.max(x + 4 / scale, view.x + 6 / scale);
    let top = Math.max(y + 3 / scale, view.y + 5 / scale);
    const room = Math.min(x + w, view.x + view.w) - left - 8 / scale;
    const bottom = Math.min(y + h, view.y + view.h);
    const name = metrics.fit(label, size, room - 8 / scale, true);
    if (name.length < 7 && name !== label) continue;
    const plate = {
      x: left,
      y: top,
      w: metrics.width(name, size, true) + 10 / scale,
      h: size * 1.45,
    };
    if (above && !small) {
      // Titles of outer containers stack up, like sticky headers of a long table.
      for (let turn = 0; turn < 6; turn++) {
        const hit = placed.find((p) => meet(p, plate));
        if (!hit) break;
        top = hit.y + hit.h + 2 / scale;
        plate.y = top;
      }
    }
    if (top + plate.h > bottom || placed.some((p) => meet(p, plate))) continue;
    placed.push(plate);
    surface.rect(plate.x, plate.y, plate.w, plate.h, {
      fill: theme.containers[(projection.depth[item] - 1) % theme.containers.length],
      stroke: above ? theme.containerBorder : undefined,
      lineWidth: 1 / scale,
      radius: 4 / scale,
      alpha: 0.92,
    });
    surface.text(name, left + 5 / scale, top + plate.h / 2, {
      size,
      bold: true,
      color: theme.title,
    });
  }
}

function meet(a: Rect, b: Rect): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}
