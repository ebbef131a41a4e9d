/**
 * Draws a scene on a surface, at a level of detail that fits the zoom:
 *
 *     far    boxes merged into rows, large titles kept readable
 *     middle boxes with labels, landmarks' labels kept readable
 *     near   labels, chips, shapes
 */
import * as M from "../../graph/metrics.ts";
import { ItemKind } from "../../graph/project/projection.ts";
import type { Scene } from "../../scene/scene.ts";
import type { Surface } from "../../scene/surface.ts";
import { Life } from "../../state/passes/passes.ts";
import type { GraphTheme } from "../../theme/graph.ts";
import { box, plainBox } from "./boxes.ts";
import { direct } from "./direct.ts";
import { alphaOf, DIM_LINES, fillOf, isThere, type PaintState, range } from "./paint-state.ts";
import { paintTitles } from "./titles.ts";

/** Boxes shorter than this on screen are merged into rows. */
const ROW_PIXELS = 3.2;
/** Below this scale, boxes are drawn without borders and text, and titles above the marks on edges. */
export const PLAIN_SCALE = 0.3;
/** Rows are merged into blocks when boxes are shorter than this. */
const BLOCK_PIXELS = 1.4;

export function isFar(s: PaintState): boolean {
  // With `life`, rows would merge boxes that exist with boxes that do not.
  return M.BOX_HEIGHT * s.scale < ROW_PIXELS && !s.all && !s.life;
}

/** Whether boxes are plain rectangles, or rows of them: nothing in them can be read. */
export function isPlain(s: PaintState): boolean {
  return s.scale < PLAIN_SCALE && !s.all && !s.life;
}

export function paintScene(surface: Surface, scene: Scene, s: PaintState): void {
  paintBase(surface, scene, s);
  paintTitles(surface, scene, s);
}

/** Containers, edges and boxes. */
export function paintBase(surface: Surface, scene: Scene, s: PaintState): void {
  const { kind } = scene.picture.projection;
  const far = isFar(s);
  const by = 2 * M.STACK_OFFSET; // the cards behind an open stack stand out by this
  const view = { x: s.view.x - by, y: s.view.y, w: s.view.w + by, h: s.view.h + by };
  // Single boxes need not be found when rows are drawn instead.
  const items = s.all
    ? range(scene.count)
    : far
      ? scene.containersIn(view, 2 / s.scale)
      : scene.itemsIn(view);
  const boxes: number[] = [];
  for (const item of items) {
    if (!isThere(s, item)) continue;
    if (kind[item] === ItemKind.Open) {
      if (item > 0) container(surface, scene, s, item);
    } else boxes.push(item);
  }
  if (s.edgeAlpha > 0.02) paintEdges(surface, scene, s);
  if (s.edgeAlpha > 0.9) paintDirect(surface, s);
  if (far) rows(surface, scene, s);
  else if (s.scale < PLAIN_SCALE) for (const item of boxes) plainBox(surface, scene, s, item);
  else for (const item of boxes) box(surface, scene, s, item);
}

function container(surface: Surface, scene: Scene, s: PaintState, item: number): void {
  const { x, y, w, h } = s;
  const { depth, nodes } = scene.picture.projection;
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
  const stands = nodes[item] >= scene.tree.stacks; // for several equal groups
  const look = {
    fill: theme.containers[(depth[item] - 1) % theme.containers.length],
    stroke: stands ? theme.foldBorder : theme.containerBorder,
    lineWidth: Math.max(1, 0.6 / s.scale),
    radius: 7,
  };
  for (let k = stands ? 2 : 0; k >= 0; k--) {
    const by = k * M.STACK_OFFSET;
    surface.rect(x[item] + by, y[item] - by, w[item], h[item], look);
  }
  // A caller's own colour is shown along the top, and that of a stack.
  if ((own || stands) && h[item] * s.scale > 8) {
    surface.rect(x[item] + 1, y[item] + 1, w[item] - 2, M.HEADER_HEIGHT - 3, {
      fill: own ? fillOf(s, item, theme.group) : theme.fold,
      radius: 6,
      alpha: alphaOf(s, item),
    });
  }
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
  // Short lines become invisible among small boxes long before the boxes do.
  const least = scale < 0.12 ? 24 / scale : scale < 0.3 ? 10 / scale : 0;
  const found = scene.edgesIn(s.view, least);
  const arrow = scale > 0.45;
  for (const e of found) {
    const life = s.life ? s.life.edges[e] : Life.Kept;
    if (life === Life.Absent) continue;
    const dim = s.lit && !(s.lit[edges.from[e]] && s.lit[edges.to[e]]);
    surface.route(
      edges.pointX,
      edges.pointY,
      edges.pointOffsets[e],
      edges.pointOffsets[e + 1],
      edges.style[e],
      {
        stroke: edgeColor(theme, life),
        dash: life === Life.Removed,
        lineWidth: edgeWidth(edges.weight[e], scale),
        arrow,
        alpha: dim ? DIM_LINES * s.edgeAlpha : s.edgeAlpha < 1 ? s.edgeAlpha : undefined,
      },
    );
  }
}

function edgeColor(theme: GraphTheme, life: Life): string {
  if (life === Life.Added) return theme.steps.addedEdge;
  return life === Life.Removed ? theme.steps.removedEdge : theme.edge;
}

/** Arrows of this pass for which the layout, made for all passes, has no route. */
function paintDirect(surface: Surface, s: PaintState): void {
  for (const [from, to, life] of s.life?.direct ?? []) {
    const left = Math.min(s.x[from], s.x[to]);
    const right = Math.max(s.x[from] + s.w[from], s.x[to] + s.w[to]);
    const top = Math.min(s.y[from], s.y[to]);
    const bottom = Math.max(s.y[from] + s.h[from], s.y[to] + s.h[to]);
    const { view } = s;
    if (right < view.x || left > view.x + view.w) continue;
    if (bottom < view.y || top > view.y + view.h) continue;
    direct(surface, s, from, to, edgeColor(s.theme, life), life === Life.Removed);
  }
}
