/** Colours of instructions and items in the chosen colouring. */
import { ItemKind } from "../graph/project/projection.ts";
import type { Scene } from "./scene.ts";

/** Palette index of every instruction, and the colours it indexes. */
export interface Colors {
  index: Uint16Array;
  palette: string[];
  /** The colours are amounts: UNKNOWN, ZERO, then hotter with a larger index; groups show their hottest. */
  numeric: boolean;
  /** Amounts that add up over instructions, so that a group has one too. */
  amounts?: {
    values: ArrayLike<number>;
    unit: string;
    /** Palette index of an amount, such as a group's total, on the scale of single instructions. */
    place: (amount: number) => number;
  };
}

/** Palette indices of amounts that are not on the ramp, and the first that is. */
export const UNKNOWN = 0;
export const ZERO = 1;
export const LEAST = 2;

export interface Share {
  color: number;
  share: number;
}

/** How each item shows the colours inside it. */
export interface ItemLooks {
  /** Palette index per item, or -1 for the plain group colour. */
  fill: Int32Array;
  /** Bars of closed groups: shares of the colours inside, largest first. */
  bars: Map<number, Share[]>;
  /** Amounts of closed groups and boxes, and the total over all instructions; null if amounts do not add up. */
  sums: { of: Float64Array; total: number } | null;
}

export function itemLooks(
  scene: Scene,
  colors: Colors,
  counted: (i: number) => boolean,
): ItemLooks {
  const { projection } = scene.picture;
  const { kind, nodes, itemOfInstruction } = projection;
  const fill = new Int32Array(scene.count).fill(-1);
  const counts = new Map<number, Uint32Array>();
  const n = itemOfInstruction.length;
  const sums = colors.amounts ? amountsOf(scene, colors.amounts.values) : null;
  for (let i = 0; i < n; i++) {
    const item = itemOfInstruction[i];
    if (item <= 0) continue;
    if (kind[item] === ItemKind.Box) {
      if (nodes[item] === i) fill[item] = colors.index[i];
      continue;
    }
    if (kind[item] === ItemKind.Open) {
      if (nodes[item] === i) fill[item] = colors.index[i];
      continue;
    }
    if (!counted(i)) continue;
    let mine = counts.get(item);
    if (!mine) {
      mine = new Uint32Array(colors.palette.length);
      counts.set(item, mine);
    }
    mine[colors.index[i]]++;
  }
  const bars = new Map<number, Share[]>();
  for (const [item, mine] of counts) {
    let total = 0;
    for (const c of mine) total += c;
    if (total === 0) continue;
    const shares: Share[] = [];
    for (let c = 0; c < mine.length; c++) {
      if (mine[c] > 0) shares.push({ color: c, share: mine[c] / total });
    }
    if (sums) {
      // The share of the whole that is in here, in the colour of its hottest part.
      const hottest = shares[shares.length - 1].color;
      bars.set(item, [{ color: hottest, share: sums.total > 0 ? sums.of[item] / sums.total : 0 }]);
      const known = sums.of[item] > 0 || shares.some((s) => s.color !== UNKNOWN);
      if (known && colors.amounts) fill[item] = colors.amounts.place(sums.of[item]);
      continue;
    }
    if (colors.numeric) shares.sort((a, b) => b.color - a.color);
    else shares.sort((a, b) => b.share - a.share || a.color - b.color);
    bars.set(item, shares);
  }
  return { fill, bars, sums };
}

function amountsOf(scene: Scene, values: ArrayLike<number>): { of: Float64Array; total: number } {
  const { itemOfInstruction } = scene.picture.projection;
  const of = new Float64Array(scene.count);
  let total = 0;
  for (let i = 0; i < itemOfInstruction.length; i++) {
    if (!(values[i] > 0)) continue;
    total += values[i];
    if (itemOfInstruction[i] > 0) of[itemOfInstruction[i]] += values[i];
  }
  return { of, total };
}
