/**
 * The passes block: every instruction throughout its life, and the module as it was after a row.
 * Python determines rows, identities and differences; here they are only looked up.
 */
import { BadBlock } from "../../base/decode.ts";
import { type Csr, decodeView, type ViewModel } from "../../base/model.ts";
import type { PassRow, PassTimesExtras } from "../../view-extras.ts";

/** Bits of `version.changed`. */
export const enum Changed {
  New = 1,
  Opcode = 2,
  Shape = 4,
  Layout = 8,
  Operands = 16,
  Attributes = 32,
  Renamed = 64,
}
const WORDS: [Changed, string][] = [
  [Changed.Opcode, "opcode"],
  [Changed.Shape, "shape"],
  [Changed.Layout, "layout"],
  [Changed.Operands, "operands"],
  [Changed.Attributes, "attributes"],
  [Changed.Renamed, "name"],
];

/** The state of an instruction at a row. */
export const enum Life {
  Absent = 0,
  Kept = 1,
  Added = 2,
  Removed = 3,
  Changed = 4,
}

export const enum DiffKind {
  Same = 0,
  Gone = 1,
  New = 2,
  Moved = 3,
  Computation = 4,
  Skipped = 5,
}

/** Texts of `pass_link.how`: how one instruction replaced another. */
const HOW = ["in the place of", "the result instead of", "of the same op_name as (a guess)"];

export interface Partner {
  row: number;
  instruction: number;
  how: string;
}

export class Passes {
  readonly rows: PassRow[];
  readonly note: string;
  /** The compile that was measured; null: none was. */
  times: PassTimesExtras | null;
  /** The row to show first. */
  readonly begin: number;
  readonly first: Uint32Array;
  readonly last: Uint32Array;
  readonly final: Int32Array;
  readonly diffOffsets: Uint32Array;
  readonly diffKind: Uint8Array;
  readonly diffValue: Uint32Array;
  private versions: Uint32Array;
  private versionOf: Int32Array;
  private changed: Uint8Array;
  private line: Uint32Array;
  private operands: Csr;
  private link: { row: Uint32Array; old: Uint32Array; new: Uint32Array; how: Uint8Array };
  private ofFinal: Map<number, number> | null = null;
  private ownVersions: Csr | null = null;

  constructor(readonly model: ViewModel) {
    const { passes } = model.header.extras;
    const first = model.optional<Uint32Array>("pass.first");
    if (!passes || !Array.isArray(passes.rows) || !first) {
      throw new BadBlock("The data is damaged: it has no passes. Make it again with hloscope.");
    }
    this.rows = passes.rows;
    this.note = passes.note ?? "";
    this.times = passes.times ?? null;
    this.begin = Math.max(0, Math.min(Number(passes.begin) || 0, passes.rows.length - 1));
    this.first = first;
    this.last = model.column("pass.last");
    this.final = model.column("pass.final");
    this.versions = model.column("version.offsets");
    this.versionOf = model.column("version.instruction");
    this.changed = model.column("version.changed");
    this.line = model.column("version.line");
    this.operands = {
      offsets: model.column("version_operand.offsets"),
      values: model.column("version_operand.values"),
    };
    this.link = {
      row: model.column("pass_link.row"),
      old: model.column("pass_link.old"),
      new: model.column("pass_link.new"),
      how: model.column("pass_link.how"),
    };
    this.diffOffsets = model.column("diff.offsets");
    this.diffKind = model.column("diff.kind");
    this.diffValue = model.column("diff.value");
    const r = this.rows.length;
    if (this.versions.length !== r + 1 || this.diffOffsets.length !== r + 1) {
      throw new BadBlock("The data is damaged: not one piece for each pass. Make it again.");
    }
    for (let k = 0; k < this.diffKind.length; k++) {
      const limit =
        this.diffKind[k] === DiffKind.Computation ? model.strings.length : this.line.length;
      if (this.diffKind[k] !== DiffKind.Skipped && this.diffValue[k] >= limit) {
        throw new BadBlock("The data is damaged: a line is not there. Make it again.");
      }
    }
  }

  /** `Life` of every instruction at a row. */
  lives(row: number): Uint8Array {
    const n = this.first.length;
    const out = new Uint8Array(n);
    for (let i = 0; i < n; i++) {
      if (this.first[i] > row || this.last[i] < row) continue;
      if (this.last[i] === row) out[i] = row > 0 ? Life.Removed : Life.Absent;
      else out[i] = row > 0 && this.first[i] === row ? Life.Added : Life.Kept;
    }
    if (row === 0) return out;
    for (let v = this.versions[row]; v < this.versions[row + 1]; v++) {
      const i = this.versionOf[v];
      if (i >= 0 && out[i] === Life.Kept && this.changed[v] & ~Changed.Renamed) {
        out[i] = Life.Changed;
      }
    }
    return out;
  }

  /** Operands of every instruction after a row; for those that are gone by then, their last ones. */
  operandsAt(row: number): Csr {
    const n = this.first.length;
    const now = new Int32Array(n).fill(-1);
    const end = this.versions[row + 1];
    for (let v = 0; v < end; v++) if (this.versionOf[v] >= 0) now[this.versionOf[v]] = v;
    const { offsets, values } = this.operands;
    const out = new Uint32Array(n + 1);
    for (let i = 0; i < n; i++) {
      out[i + 1] = out[i] + (now[i] >= 0 ? offsets[now[i] + 1] - offsets[now[i]] : 0);
    }
    const list = new Uint32Array(out[n]);
    for (let i = 0; i < n; i++) {
      if (now[i] >= 0) list.set(values.subarray(offsets[now[i]], offsets[now[i] + 1]), out[i]);
    }
    return { offsets: out, values: list };
  }

  /** The row to which a version belongs. */
  private rowOf(version: number): number {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.versions[middle] <= version) low = middle;
      else high = middle - 1;
    }
    return low;
  }
  lineOf(version: number): string {
    return this.model.strings.get(this.line[version]);
  }
  instructionOf(version: number): number {
    return this.versionOf[version];
  }

  /** The lines that an instruction had, in order, with the row each begins at and what changed. */
  history(i: number): { row: number; line: string; changed: string[] }[] {
    this.ownVersions ??= this.byInstruction();
    const { offsets, values } = this.ownVersions;
    const out = [];
    for (let k = offsets[i]; k < offsets[i + 1]; k++) {
      const v = values[k];
      const bits = this.changed[v];
      const changed = WORDS.filter(([bit]) => bits & bit).map(([, word]) => word);
      out.push({ row: this.rowOf(v), line: this.lineOf(v), changed });
    }
    return out;
  }
  private byInstruction(): Csr {
    const n = this.first.length;
    const offsets = new Uint32Array(n + 1);
    for (const i of this.versionOf) if (i >= 0) offsets[i + 1]++;
    for (let i = 0; i < n; i++) offsets[i + 1] += offsets[i];
    const at = offsets.slice();
    const values = new Uint32Array(offsets[n]);
    for (let v = 0; v < this.versionOf.length; v++) {
      const i = this.versionOf[v];
      if (i >= 0) values[at[i]++] = v;
    }
    return { offsets, values };
  }

  /** The instructions that it replaced, and those that replaced it. */
  partners(i: number): { before: Partner[]; after: Partner[] } {
    const before = new Map<number, Partner>();
    const after = new Map<number, Partner>();
    const { link } = this;
    const put = (to: Map<number, Partner>, k: number, instruction: number) => {
      const known = to.get(instruction);
      const how = HOW[link.how[k]] ?? "";
      if (!known) to.set(instruction, { row: link.row[k], instruction, how });
    };
    for (let k = 0; k < link.row.length; k++) {
      if (link.new[k] === i && link.row[k] === this.first[i]) put(before, k, link.old[k]);
      if (link.old[k] === i) put(after, k, link.new[k]);
    }
    return { before: [...before.values()], after: [...after.values()] };
  }

  /** The instruction here that became the given one of the main View; -1 not known. */
  fromFinal(index: number): number {
    if (!this.ofFinal) {
      this.ofFinal = new Map();
      for (let i = 0; i < this.final.length; i++) {
        if (this.final[i] >= 0) this.ofFinal.set(this.final[i], i);
      }
    }
    return this.ofFinal.get(index) ?? -1;
  }

  /** Seconds that the pass of a row took; null not known. */
  secondsOf(row: number): number | null {
    return this.times?.seconds[row] ?? null;
  }
  /** Seconds of rows of one pipeline, with those of its passes that have no row; null not known. */
  pipelineSeconds(rows: readonly number[]): { whole: number; others: number } | null {
    const { times } = this;
    if (!times) return null;
    const others = rows.reduce((sum, row) => sum + (times.others[row] ?? 0), 0);
    const own = rows.reduce((sum, row) => sum + (times.seconds[row] ?? 0), 0);
    const known = others > 0 || rows.some((row) => this.secondsOf(row) !== null);
    return known ? { whole: own + others, others } : null;
  }

  title(row: number): string {
    return this.rows[row]?.title ?? "";
  }
}

export async function decodePasses(gz: Uint8Array): Promise<Passes> {
  return new Passes(await decodeView(gz));
}
