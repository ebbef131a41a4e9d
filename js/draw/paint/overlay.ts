/** The selection and its edges: those from operands in one colour, those to users in another. */
import type { Flow } from "../../graph/project/flow.ts";
import { ItemKind } from "../../graph/project/projection.ts";
import type { Scene } from "../../scene/scene.ts";
import type { Surface } from "../../scene/surface.ts";
import type { Selection } from "../../view.ts";
import { direct } from "./direct.ts";
import type { PaintState } from "./paint-state.ts";
import { edgeWidth } from "./painter.ts";

/** More lines than this from one box would hide the picture. */
const MAX_LINES = 120;

export interface Touched {
  /** Item pairs to join, and the edge of the picture that joins them, or -1. */
  from: number[];
  to: number[];
  edge: number[];
  /** 1 if the other end is a user. */
  user: number[];
}

/** Edges of the selected instruction, or of the item if the selection is something else. */
export function touched(
  scene: Scene,
  flow: Flow,
  users: { offsets: Uint32Array; values: Uint32Array },
  item: number,
  selection: Selection,
): Touched {
  const out: Touched = { from: [], to: [], edge: [], user: [] };
  const { edges, projection } = scene.picture;
  const drawn = new Map<number, number>();
  const join = (a: number, b: number, user: number): void => {
    if (a < 0 || b < 0 || a === b || out.from.length >= MAX_LINES) return;
    const key = a * scene.count + b;
    if (drawn.has(key)) return;
    let edge = -1;
    for (let k = scene.touchOffsets[a]; k < scene.touchOffsets[a + 1]; k++) {
      const e = scene.touch[k];
      if (edges.from[e] === a && edges.to[e] === b) edge = e;
    }
    drawn.set(key, edge);
    out.from.push(a);
    out.to.push(b);
    out.edge.push(edge);
    out.user.push(user);
  };
  const { itemOfInstruction } = projection;
  if (selection.kind === "instruction" && itemOfInstruction[selection.index] === item) {
    const i = selection.index;
    for (let e = flow.offsets[i]; e < flow.offsets[i + 1]; e++) {
      join(itemOfInstruction[flow.sources[e]], item, 0);
    }
    for (let e = users.offsets[i]; e < users.offsets[i + 1]; e++) {
      join(item, itemOfInstruction[users.values[e]], 1);
    }
    return out;
  }
  for (let k = scene.touchOffsets[item]; k < scene.touchOffsets[item + 1]; k++) {
    const e = scene.touch[k];
    join(edges.from[e], edges.to[e], edges.from[e] === item ? 1 : 0);
  }
  return out;
}

export function paintOverlay(
  surface: Surface,
  scene: Scene,
  s: PaintState,
  selected: number,
  hovered: number,
  lines: Touched | null,
): void {
  const { theme, scale } = s;
  const { edges } = scene.picture;
  if (lines) {
    for (let k = 0; k < lines.from.length; k++) {
      const stroke = lines.user[k] ? theme.userEdge : theme.operandEdge;
      const e = lines.edge[k];
      if (e >= 0 && edges.pointOffsets[e + 1] > edges.pointOffsets[e] && s.edgeAlpha === 1) {
        surface.route(
          edges.pointX,
          edges.pointY,
          edges.pointOffsets[e],
          edges.pointOffsets[e + 1],
          edges.style[e],
          { stroke, lineWidth: edgeWidth(edges.weight[e], scale) + 1 / scale, arrow: true },
        );
      } else direct(surface, s, lines.from[k], lines.to[k], stroke, true);
    }
    const ends = new Set<number>();
    for (let k = 0; k < lines.from.length; k++) {
      const other = lines.user[k] ? lines.to[k] : lines.from[k];
      if (ends.has(other)) continue;
      ends.add(other);
      outline(surface, s, other, lines.user[k] ? theme.userEdge : theme.operandEdge, 1.5);
    }
  }
  if (hovered > 0 && hovered !== selected) outline(surface, s, hovered, theme.selection, 1.2);
  if (selected > 0) outline(surface, s, selected, theme.selection, 2.6);
  if (selected > 0 && scene.picture.projection.kind[selected] === ItemKind.Open) return;
}

/** Outlines what is pointed at outside the graph. */
export function outlineAll(surface: Surface, s: PaintState, items: readonly number[]): void {
  for (const item of items) outline(surface, s, item, s.theme.highlight, 2.6);
}

function outline(
  surface: Surface,
  s: PaintState,
  item: number,
  color: string,
  pixels: number,
): void {
  const out = Math.min(2, 1.5 / s.scale);
  surface.rect(s.x[item] - out, s.y[item] - out, s.w[item] + 2 * out, s.h[item] + 2 * out, {
    stroke: color,
    lineWidth: Math.max(pixels / s.scale, pixels * 0.6),
    radius: 7,
  });
}
