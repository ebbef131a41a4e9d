/**
 * What is highlighted when places are pointed at: the same strands in other stages, and near ones.
 *
 *     pointed at      %dot.8   strands {9}   near {4}, the call that led there
 *     lit             places of other stages with strand 9
 *     near            places with strand 4, and those with 9 among their near strands
 */
import type { StagesModel } from "../../base/stages.ts";
import type { StageText } from "../../view-extras.ts";

export interface Lit {
  /** Places in no particular order, including those pointed at. */
  lit: ReadonlySet<number>;
  near: ReadonlySet<number>;
}

export const DARKNESS: Lit = { lit: new Set(), near: new Set() };

interface Inverse {
  offsets: Uint32Array;
  places: Uint32Array;
}

export class Links {
  private direct: Inverse | null = null;
  private around: Inverse | null = null;

  constructor(readonly model: StagesModel) {}

  stageOf(place: number): StageText {
    const { stages } = this.model;
    return stages.find((s) => place >= s.first && place < s.first + s.count) ?? stages[0];
  }
  /** Distinct colour classes of a place, the most important first; at most `limit`. */
  colors(place: number, limit = 4): number[] {
    const { strands, color } = this.model;
    const out: number[] = [];
    for (let k = strands.offsets[place]; k < strands.offsets[place + 1]; k++) {
      const c = color[strands.values[k]];
      if (c < 0 || out.includes(c)) continue;
      out.push(c);
      if (out.length === limit) break;
    }
    return out;
  }
  /** What is highlighted along with places of one stage; in that stage, only the places themselves. */
  light(places: readonly number[]): Lit {
    if (!places.length) return DARKNESS;
    const { model } = this;
    this.direct ??= inverse(model.strands, model.color.length);
    this.around ??= inverse(model.near, model.color.length);
    const lit = new Set<number>(places);
    const near = new Set<number>();
    const own = this.stageOf(places[0]);
    const other = (p: number) => p < own.first || p >= own.first + own.count;
    const strands = gathered(model.strands, places);
    for (const s of strands) {
      each(this.direct, s, (p) => other(p) && lit.add(p));
    }
    for (const s of strands) {
      each(this.around, s, (p) => other(p) && !lit.has(p) && near.add(p));
    }
    for (const s of gathered(model.near, places)) {
      each(this.direct, s, (p) => other(p) && !lit.has(p) && near.add(p));
    }
    return { lit, near };
  }
  /** Lines of the lit places of a stage, ascending; of near ones if none are lit. */
  linesIn(stage: StageText, { lit, near }: Lit): number[] {
    const within = (set: ReadonlySet<number>) => {
      const out: number[] = [];
      for (const p of set) {
        if (p >= stage.first && p < stage.first + stage.count) out.push(this.model.line[p]);
      }
      return out.sort((a, b) => a - b);
    };
    const found = within(lit);
    return found.length ? found : within(near);
  }
}

function gathered(csr: { offsets: Uint32Array; values: Uint32Array }, rows: readonly number[]) {
  const out = new Set<number>();
  for (const row of rows) {
    for (let k = csr.offsets[row]; k < csr.offsets[row + 1]; k++) out.add(csr.values[k]);
  }
  return out;
}

function each({ offsets, places }: Inverse, strand: number, take: (place: number) => void): void {
  for (let k = offsets[strand]; k < offsets[strand + 1]; k++) take(places[k]);
}

/** Strand → places, from place → strands. */
function inverse(csr: { offsets: Uint32Array; values: Uint32Array }, strands: number): Inverse {
  const offsets = new Uint32Array(strands + 1);
  for (const s of csr.values) offsets[s + 1]++;
  for (let s = 0; s < strands; s++) offsets[s + 1] += offsets[s];
  const places = new Uint32Array(csr.values.length);
  const at = offsets.slice();
  for (let p = 0; p + 1 < csr.offsets.length; p++) {
    for (let k = csr.offsets[p]; k < csr.offsets[p + 1]; k++) places[at[csr.values[k]]++] = p;
  }
  return { offsets, places };
}
