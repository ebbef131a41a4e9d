/** What is open, in a form to store: for undo, links and bookmarks. */
import type { Openness } from "./openness.ts";

export interface Opened {
  /** Open container nodes and loose positions, ascending. */
  open: Int32Array;
  loose: Int32Array;
  /** Whether tuples and the like (`plumbing`) and asynchronous copies (`moves`) have boxes. */
  plumbing: boolean;
  moves: boolean;
}

const ones = (flags: Uint8Array): Int32Array => {
  let count = 0;
  for (const f of flags) count += f;
  const out = new Int32Array(count);
  let k = 0;
  for (let i = 0; i < flags.length; i++) if (flags[i]) out[k++] = i;
  return out;
};

export function opened(openness: Openness, plumbing: boolean, moves: boolean): Opened {
  return { open: ones(openness.open), loose: ones(openness.loose), plumbing, moves };
}

export function reopen(openness: Openness, to: Opened): void {
  openness.open.fill(0);
  openness.loose.fill(0);
  for (const v of to.open) if (v < openness.open.length) openness.open[v] = 1;
  for (const p of to.loose) if (p < openness.loose.length) openness.loose[p] = 1;
  openness.open[openness.tree.root] = 1;
}

export const same = (a: Opened, b: Opened): boolean =>
  a.plumbing === b.plumbing &&
  a.moves === b.moves &&
  equal(a.open, b.open) &&
  equal(a.loose, b.loose);

const equal = (a: Int32Array, b: Int32Array): boolean =>
  a.length === b.length && a.every((v, k) => v === b[k]);

/** Ascending numbers as their differences in base 36: "5.1.2k". */
export function written(numbers: Int32Array): string {
  let before = 0;
  return Array.from(numbers, (v) => {
    const step = v - before;
    before = v;
    return step.toString(36);
  }).join(".");
}

/** Reads what `written` writes; null for any other text. */
export function readNumbers(text: string): Int32Array | null {
  if (text === "") return new Int32Array(0);
  let at = 0;
  const out: number[] = [];
  for (const part of text.split(".")) {
    if (!/^[0-9a-z]{1,7}$/.test(part)) return null;
    at += Number.parseInt(part, 36);
    out.push(at);
  }
  return Int32Array.from(out);
}
