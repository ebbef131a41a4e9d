/** Lines of a large text by byte offset, and the instruction of each line. Nothing is copied. */
import type { TextModel } from "../../../base/model.ts";

export class TextLines {
  /** Byte offset of every line, then one past the end of the text plus its line break. */
  readonly begin: Uint32Array;
  readonly count: number;
  private instructionAt: Int32Array;

  constructor(readonly text: TextModel) {
    const { bytes } = text;
    let lines = 1;
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) lines++;
    const begin = new Uint32Array(lines + 1);
    let k = 1;
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) begin[k++] = at + 1;
    begin[lines] = bytes.length + 1;
    this.begin = begin;
    this.count = begin[lines - 1] >= bytes.length && lines > 1 ? lines - 1 : lines;
    this.instructionAt = new Int32Array(lines).fill(-1);
    text.instructionBegin.forEach((offset, i) => {
      if (offset !== 0xffffffff) this.instructionAt[this.lineOf(offset)] = i;
    });
  }
  /** 0-based line that contains the byte. */
  lineOf(offset: number): number {
    let low = 0;
    let high = this.begin.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.begin[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }
  line(k: number): string {
    return this.text.slice(this.begin[k], this.begin[k + 1] - 1).replace(/\r$/, "");
  }
  /** The instruction on line `k`, or -1. */
  instruction(k: number): number {
    return this.instructionAt[k] ?? -1;
  }
  lineOfInstruction(i: number): number {
    const offset = this.text.instructionBegin[i];
    return offset === undefined || offset === 0xffffffff ? -1 : this.lineOf(offset);
  }
  /** Lines that contain the text, ignoring case, at most `limit`; yields to the page between blocks. */
  async find(needle: string, limit: number, signal: AbortSignal): Promise<number[]> {
    const found: number[] = [];
    const low = needle.toLowerCase();
    if (!low) return found;
    const STEP = 20_000;
    for (let from = 0; from < this.count && found.length < limit; from += STEP) {
      const to = Math.min(this.count, from + STEP);
      const block = this.text.slice(this.begin[from], this.begin[to] - 1).toLowerCase();
      if (block.includes(low)) {
        block.split("\n").forEach((line, k) => {
          if (found.length < limit && line.includes(low)) found.push(from + k);
        });
      }
      if (to < this.count) await new Promise((resolve) => setTimeout(resolve));
      if (signal.aborted) return [];
    }
    return found;
  }
}
