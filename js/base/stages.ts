/** The decoded stages block: texts of a program's stages and the links between their places. */

import { STAGES_MAGIC, type StagesHeader, VIEW_VERSION } from "../view.ts";
import type { StageText } from "../view-extras.ts";
import { type Block, type Column, columnOf, decodeBlock, gunzip, StringTable } from "./decode.ts";
import { plain } from "./plain.ts";
import { checkStages } from "./validate-stages.ts";

interface Csr {
  offsets: Uint32Array;
  values: Uint32Array;
}

/**
 * Places are numbered across all stages and linked by strands. A strand is one operation on its
 * way through the stages, and has the same number in all of them.
 */
export class StagesModel {
  readonly header: StagesHeader;
  readonly stages: readonly StageText[];
  /** Line of each place in its stage; in the View's own stage, an instruction. */
  readonly line: Uint32Array;
  readonly strands: Csr;
  readonly near: Csr;
  /** Colour class of each strand; -1 none. */
  readonly color: Int32Array;
  /** Line numbers of the rows of the source stage; 0: the row names a file. */
  readonly sourceNumber: Uint32Array;
  private readonly told: Uint32Array;
  private readonly bytes: Uint8Array;
  private readonly strings: StringTable;
  private readonly lines = new Map<StageText, string[]>();

  constructor(block: Block<StagesHeader>) {
    const c = <T extends Column>(name: string): T => columnOf<T>(block.columns, name);
    this.header = block.header;
    this.stages = block.header.stages;
    this.line = c("place.line");
    this.told = c("place.told");
    this.strands = { offsets: c("place_strand.offsets"), values: c("place_strand.values") };
    this.near = { offsets: c("place_near.offsets"), values: c("place_near.values") };
    this.color = c("strand.color");
    this.sourceNumber = c("source_row.number");
    this.bytes = c("stage_text.bytes");
    this.strings = new StringTable(c("strings.bytes"), c("strings.offsets"));
  }
  get count(): number {
    return this.line.length;
  }
  stage(id: string): StageText | undefined {
    return this.stages.find((s) => s.id === id);
  }
  /** Lines of a stage other than the View's own. */
  linesOf(stage: StageText): string[] {
    let found = this.lines.get(stage);
    if (!found) {
      const text = plain(new TextDecoder().decode(this.bytes.subarray(stage.begin, stage.end)));
      found = text ? text.split("\n") : [];
      this.lines.set(stage, found);
    }
    return found;
  }
  /** The place at a line of a stage (in the View's own stage: at an instruction), or -1. */
  placeAt(stage: StageText, line: number): number {
    let low = stage.first;
    let high = stage.first + stage.count - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.line[middle] === line) return middle;
      if (this.line[middle] < line) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }
  /** What became of a place, as a sentence; "" where there is nothing to say. */
  toldOf(place: number): string {
    return this.strings.get(this.told[place]);
  }
}

/** Throws BadBlock for anything but a stages block of a View with that many instructions. */
export async function decodeStages(gz: Uint8Array, instructions: number): Promise<StagesModel> {
  const raw = await gunzip(gz, STAGES_MAGIC);
  const block = decodeBlock<StagesHeader>(raw, STAGES_MAGIC, VIEW_VERSION);
  checkStages(block, instructions);
  return new StagesModel(block);
}
