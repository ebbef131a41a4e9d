/**
 * Draws a scene on a surface, at a level of detail that fits the zoom:
 *
 *     far    boxes merged into rows, large titles kept readable
 *     middle boxes with labels, landmarks' labels kept readable
 *     near   labels, chips, shapes
 */
import type { Chip } from "../graph/items.ts";
import { ChipKind } from "../graph/items.ts";
import * as M from "../graph/metrics.ts";
import { ItemKind } from "../graph/projection.ts";
import type { Colors, ItemLooks } from "../scene/looks.ts";
import type { Rect, Scene } from "../scene/scene.ts";
import type { Surface } from "../scene/surface.ts";
import type { GraphTheme } from "./theme.ts";

export interface PaintState {
  theme: GraphTheme;
  metrics: M.TextMetrics;
  colors: Colors;
  looks: ItemLooks;
  /** CSS pixels per world unit. */
  scale: number;
  /** World rectangle to draw. */
  view: Rect;
  /** 1 per item that stays bright; null when nothing is dimmed. */
  lit: Uint8Array | null;
  /** Places of items, which differ from the picture's while they move. */
  x: Float64Array;
  y: Float64Array;
  w: Float64Array;
  h: Float64Array;
  /** Items to consider; null asks the scene's index. */
  all: boolean;
  edgeAlpha: number;
}

const DIM = 0.28;
/** Boxes lower than this on screen are merged into rows. */
const ROW_PIXELS = 3.2;
/** And rows into blocks, when boxes are lower than this. */
const BLOCK_PIXELS = 1.4;
const TEXT_PIXELS = 6;

export function isFar(s: PaintState): boolean {
  return M.BOX_HEIGHT * s.scale < ROW_PIXELS && !s.all;
}

export function paintScene(surface: Surface, scene: Scene, s: PaintState): void {
  paintBase(surface, scene, s);
  paintTitles(surface, scene, s);
}

/** Containers, edges and boxes. */
export function paintBase(surface: Surface, scene: Scene, s: PaintState): void {
  const { kind } = scene.picture.projection;
  const far = isFar(s);
  // A box needs no look when rows stand for it.
  const items = s.all
    ? range(scene.count)
    : far
      ? scene.containersIn(s.view, 2 / s.scale)
      : scene.itemsIn(s.view);
  const boxes: number[] = [];
  for (const item of items) {
    if (kind[item] === ItemKind.Open) {
      if (item > 0) container(surface, scene, s, item);
    } else boxes.push(item);
  }
  if (s.edgeAlpha > 0.02) paintEdges(surface, scene, s);
  if (far) rows(surface, scene, s);
  else if (s.scale < 0.3) for (const item of boxes) plainBox(surface, scene, s, item);
  else for (const item of boxes) box(surface, scene, s, item);
}

/** Titles come last: they stay readable over what is in their container. */
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

function range(n: number): number[] {
  return Array.from({ length: n }, (_, k) => k);
}

function alphaOf(s: PaintState, item: number): number | undefined {
  return s.lit && !s.lit[item] ? DIM : undefined;
}

export function fillOf(s: PaintState, item: number, other: string): string {
  const c = s.looks.fill[item];
  return c >= 0 ? s.colors.palette[c] : other;
}

function container(surface: Surface, scene: Scene, s: PaintState, item: number): void {
  const { x, y, w, h } = s;
  const { depth } = scene.picture.projection;
  if (w[item] * s.scale < 2) return;
  const { theme } = s;
  const own = s.looks.fill[item] >= 0;
  if (w[item] * s.scale < 24 || h[item] * s.scale < 12) {
    surface.rect(x[item], y[item], w[item], h[item], {
      fill: own ? fillOf(s, item, theme.group) : theme.containerBorder,
      alpha: own ? 0.35 : 0.3,
    });
    return;
  }
  surface.rect(x[item], y[item], w[item], h[item], {
    fill: theme.containers[(depth[item] - 1) % theme.containers.length],
    stroke: theme.containerBorder,
    lineWidth: Math.max(1, 0.6 / s.scale),
    radius: 7,
  });
  // What a caller is shows in its colour, along the top.
  if (own && h[item] * s.scale > 8) {
    surface.rect(x[item] + 1, y[item] + 1, w[item] - 2, M.HEADER_HEIGHT - 3, {
      fill: fillOf(s, item, theme.group),
      radius: 6,
      alpha: alphaOf(s, item),
    });
  }
}

function titles(surface: Surface, scene: Scene, s: PaintState, open: number[]): void {
  const { theme, scale, metrics, view } = s;
  const { text, projection } = scene.picture;
  const placed: Rect[] = [];
  // Outer containers first; a title that would cover another is left out.
  for (const item of open) {
    const { chips, label, sub } = text[item];
    const x = s.x[item];
    const y = s.y[item];
    const w = s.w[item];
    const h = s.h[item];
    if (w * scale < 40 || h * scale < 20) continue;
    const header = M.HEADER_HEIGHT;
    const small = M.TITLE_SIZE * scale < 10;
    const above = y < view.y;
    if (!small && !above) {
      const size = M.TITLE_SIZE;
      const middle = y + header / 2;
      surface.text(label, x + 9, middle, { size, bold: true, color: theme.title });
      const after = x + 9 + metrics.width(label, size, true) + 8;
      surface.text(sub, after, middle, { size: M.SUB_SIZE, color: theme.mutedText });
      if (chips.length > 0) {
        const shift = x + w - M.SIGN - 8 - (chips[chips.length - 1].x + chips[chips.length - 1].w);
        for (const chip of chips) paintChip(surface, s, shift, y, chip, undefined);
      }
      sign(surface, s, x + w - 13, middle, false);
      continue;
    }
    // Zoomed out, or its top is out of sight: a small plate at the first place that shows.
    const size = (small ? Math.max(10, Math.min(13, 9 + (h * scale) / 90)) : 12) / scale;
    const left = Math.max(x + 4 / scale, view.x + 6 / scale);
    let top = Math.max(y + 3 / scale, view.y + 5 / scale);
    const room = Math.min(x + w, view.x + view.w) - left - 8 / scale;
    const bottom = Math.min(y + h, view.y + view.h);
    const name = metrics.fit(label, size, room - 8 / scale, true);
    if (name.length < 3 && name !== label) continue;
    const plate = {
      x: left,
      y: top,
      w: metrics.width(name, size, true) + 10 / scale,
      h: size * 1.45,
    };
    if (above && !small) {
      // Titles of outer containers stack up, like the headers of a long table.
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

/** A ring with "+" or "−" in it: opens, closes. */
function sign(surface: Surface, s: PaintState, x: number, y: number, plus: boolean): void {
  surface.text(plus ? "+" : "−", x, y, {
    size: 14,
    bold: true,
    color: s.theme.mutedText,
    align: "center",
  });
}

function plainBox(surface: Surface, scene: Scene, s: PaintState, item: number): void {
  const kind = scene.picture.projection.kind[item];
  const bars = s.looks.bars.get(item);
  const main = bars && bars.length > 0 ? s.colors.palette[bars[0].color] : s.theme.group;
  surface.rect(s.x[item], s.y[item], s.w[item], s.h[item], {
    fill: kind === ItemKind.Box ? fillOf(s, item, s.theme.unknown) : main,
    alpha: alphaOf(s, item),
  });
}

function box(surface: Surface, scene: Scene, s: PaintState, item: number): void {
  const { theme, scale, metrics } = s;
  const { text, projection } = scene.picture;
  const kind = projection.kind[item];
  const words = text[item];
  const alpha = alphaOf(s, item);
  const x = s.x[item];
  let y = s.y[item];
  let w = s.w[item];
  let h = s.h[item];
  const border = Math.max(1, 0.7 / scale);
  if (kind === ItemKind.Box) {
    surface.rect(x, y, w, h, {
      fill: fillOf(s, item, theme.unknown),
      stroke: theme.boxBorder,
      lineWidth: border,
      radius: 5,
      alpha,
    });
    if (M.LABEL_SIZE * scale < TEXT_PIXELS) return;
    const opens = scene.opens(item);
    const roomy = M.SHAPE_SIZE * scale >= 9.5;
    const middle = y + M.BOX_HEIGHT / 2;
    const room = w - (opens ? M.SIGN : 0);
    surface.text(words.label, x + room / 2, roomy ? middle - 4 : middle, {
      size: M.LABEL_SIZE,
      color: theme.text,
      align: "center",
      alpha,
    });
    if (roomy && words.sub) {
      surface.text(metrics.fit(words.sub, M.SHAPE_SIZE, w - 8), x + w / 2, middle + 8, {
        size: M.SHAPE_SIZE,
        color: theme.text,
        align: "center",
        alpha: alpha ?? 0.85,
      });
    }
    if (opens) sign(surface, s, x + w - 11, middle, true);
  } else {
    const stack = kind === ItemKind.Stack;
    if (stack) {
      w -= 2 * M.STACK_OFFSET;
      h -= 2 * M.STACK_OFFSET;
      for (let k = 2; k > 0; k--) {
        surface.rect(x + k * M.STACK_OFFSET, y + (2 - k) * M.STACK_OFFSET, w, h, {
          fill: theme.fold,
          stroke: theme.foldBorder,
          lineWidth: border,
          radius: 6,
          alpha,
        });
      }
      y += 2 * M.STACK_OFFSET;
    }
    surface.rect(x, y, w, h, {
      fill: stack ? theme.fold : theme.group,
      stroke: stack ? theme.foldBorder : theme.groupBorder,
      lineWidth: border,
      radius: 6,
      alpha,
    });
    bar(surface, s, item, x + 8, y + h - 6, w - 16);
    if (M.LABEL_SIZE * scale < TEXT_PIXELS) return;
    const left = x + 10;
    surface.text(words.label, left, y + 14, {
      size: M.LABEL_SIZE,
      bold: true,
      color: theme.text,
      alpha,
    });
    if (stack) {
      const count = projection.stackEnd[item] - (projection.nodes[item] - scene.tree.stacks);
      surface.text(`×${count}`, x + w - M.SIGN - 8, y + 14, {
        size: M.LABEL_SIZE,
        bold: true,
        color: theme.text,
        align: "right",
        alpha,
      });
    }
    sign(surface, s, x + w - 12, y + 14, true);
    surface.text(words.sub, left, y + 30, { size: M.SUB_SIZE, color: theme.mutedText, alpha });
  }
  if (words.chips.length > 0 && M.CHIP_SIZE * scale >= TEXT_PIXELS) {
    const lift = kind === ItemKind.Stack ? 2 * M.STACK_OFFSET : 0;
    for (const chip of words.chips) paintChip(surface, s, x, s.y[item] + lift, chip, alpha);
  }
}

/** The mix of what is inside, as a bar: nothing about a closed group is hidden entirely. */
function bar(surface: Surface, s: PaintState, item: number, x: number, y: number, w: number): void {
  const shares = s.looks.bars.get(item);
  if (!shares) return;
  let at = x;
  for (const { color, share } of shares) {
    const part = share * w;
    if (part * s.scale >= 0.7) {
      surface.rect(at, y, part, 3.5, { fill: s.colors.palette[color], alpha: alphaOf(s, item) });
    }
    at += part;
  }
}

function paintChip(
  surface: Surface,
  s: PaintState,
  x: number,
  y: number,
  chip: Chip,
  alpha: number | undefined,
): void {
  const { theme } = s;
  const back = chip.kind === ChipKind.BackFrom || chip.kind === ChipKind.BackTo;
  const stub = back || chip.kind === ChipKind.From || chip.kind === ChipKind.To;
  surface.rect(x + chip.x, y + chip.y, chip.w, M.CHIP_HEIGHT - 1, {
    fill: chip.kind === ChipKind.Output ? theme.output : theme.chip,
    stroke: back ? theme.backEdge : stub ? theme.edge : theme.boxBorder,
    lineWidth: 1,
    radius: chip.kind === ChipKind.Parameter || stub ? 7 : 2,
    dash: stub,
    alpha,
  });
  surface.text(chip.text, x + chip.x + chip.w / 2, y + chip.y + M.CHIP_HEIGHT / 2, {
    size: M.CHIP_SIZE,
    color: theme.chipText,
    align: "center",
    alpha,
  });
}

function rows(surface: Surface, scene: Scene, s: PaintState): void {
  const list = M.BOX_HEIGHT * s.scale < BLOCK_PIXELS ? scene.blocks : scene.rows;
  if (!list.index) return;
  const { view } = s;
  const least = 0.35 / s.scale;
  for (const k of list.index.search(view.x, view.y, view.x + view.w, view.y + view.h)) {
    if (list.w[k] < least) continue;
    const item = list.item[k];
    const bars = s.looks.bars.get(item);
    const main = bars && bars.length > 0 ? s.colors.palette[bars[0].color] : s.theme.group;
    surface.rect(list.x[k], list.y[k], list.w[k], list.h[k], {
      fill: fillOf(s, item, main),
      alpha: alphaOf(s, item),
    });
  }
}

export function edgeWidth(weight: number, scale: number): number {
  return Math.max(Math.min(3, 1.1 + 0.4 * Math.log2(weight)), 0.8 / scale);
}

function paintEdges(surface: Surface, scene: Scene, s: PaintState): void {
  const { edges } = scene.picture;
  const { theme, scale } = s;
  // Short lines are lost among small boxes long before the boxes are.
  const least = scale < 0.12 ? 24 / scale : scale < 0.3 ? 10 / scale : 0;
  const found = scene.edgesIn(s.view, least);
  const arrow = scale > 0.45;
  for (const e of found) {
    const dim = s.lit && !(s.lit[edges.from[e]] && s.lit[edges.to[e]]);
    surface.route(
      edges.pointX,
      edges.pointY,
      edges.pointOffsets[e],
      edges.pointOffsets[e + 1],
      edges.style[e],
      {
        stroke: theme.edge,
        lineWidth: edgeWidth(edges.weight[e], scale),
        arrow,
        alpha: dim ? DIM * 0.7 * s.edgeAlpha : s.edgeAlpha < 1 ? s.edgeAlpha : undefined,
      },
    );
  }
}
