/** Colours of instructions and items under the chosen colouring. */
import { ItemKind } from "../graph/projection.ts";
import type { Scene } from "./scene.ts";

/** Palette index of every instruction, and the colours it indexes. */
export interface Colors {
  index: Uint16Array;
  palette: string[];
  /** Amounts: UNKNOWN, ZERO, then the larger index is the hotter; groups show their hottest. */
  numeric: boolean;
  /** What adds up over instructions, so that a group has an amount of its own. */
  amounts?: {
    values: ArrayLike<number>;
    unit: string;
    /** Palette place of an amount: of a group's total, on the scale of single instructions. */
    place: (amount: number) => number;
  };
}

/** Palette places of amounts that have no place on the ramp. */
export const UNKNOWN = 0;
export const ZERO = 1;
export const LEAST = 2;

export interface Share {
  color: number;
  share: number;
}

/** What each item shows of the colours inside it. */
export interface ItemLooks {
  /** Palette index per item, or -1 for the plain group colour. */
  fill: Int32Array;
  /** Bars of closed groups: shares of the colours inside, largest first. */
  bars: Map<number, Share[]>;
  /** Amounts of closed groups and of boxes, and of all of them; null where nothing adds up. */
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
      // How much of the whole is in here, in the colour of its hottest.
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
