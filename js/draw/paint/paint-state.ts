/** The state that all parts of the painting share. */
import type { TextMetrics } from "../../graph/metrics.ts";
import { type Colors, type ItemLooks, UNKNOWN } from "../../scene/looks.ts";
import type { Rect } from "../../scene/scene.ts";
import type { GraphTheme } from "../../theme/graph.ts";
import type { SceneLife } from "../life.ts";

export interface PaintState {
  theme: GraphTheme;
  metrics: TextMetrics;
  colors: Colors;
  looks: ItemLooks;
  /** CSS pixels per world unit. */
  scale: number;
  /** World rectangle to draw. */
  view: Rect;
  /** 1 per item that is not dimmed; null when nothing is dimmed. */
  lit: Uint8Array | null;
  /** What exists at one of many passes; null: everything. */
  life?: SceneLife | null;
  /** Positions of items, which differ from the picture's during a transition. */
  x: Float64Array;
  y: Float64Array;
  w: Float64Array;
  h: Float64Array;
  /** Whether to consider all items rather than use the scene's index. */
  all: boolean;
  edgeAlpha: number;
}

/** Opacity of what a highlight leaves out. */
export const DIM = 0.28;
/** Opacity of text on it, which stays readable: a contrast of 3 on every fill, in both themes. */
export const DIM_WORDS = 0.66;
/** Opacity of lines that lead to it. */
export const DIM_LINES = 0.4;

export function range(n: number): number[] {
  return Array.from({ length: n }, (_, k) => k);
}

export function alphaOf(s: PaintState, item: number): number | undefined {
  return s.lit && !s.lit[item] ? DIM : undefined;
}

/** The opacity of text on an item. */
export function wordsAlphaOf(s: PaintState, item: number): number | undefined {
  return s.lit && !s.lit[item] ? DIM_WORDS : undefined;
}

export function isThere(s: PaintState, item: number): boolean {
  return !s.life || s.life.items[item] > 0;
}

export function fillOf(s: PaintState, item: number, other: string): string {
  const c = s.looks.fill[item];
  return c >= 0 ? s.colors.palette[c] : other;
}

/** Whether the colouring is by amounts and the item's is unknown. */
export function isUnknown(s: PaintState, item: number): boolean {
  return s.colors.numeric && s.looks.fill[item] === UNKNOWN;
}
