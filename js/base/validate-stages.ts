/** Checks the stages block against its declaration; see validate.ts. */
import type { StagesHeader } from "../view.ts";
import type { Block } from "./decode.ts";
import { checkColumns, wrong } from "./validate.ts";

/** Throws BadBlock unless the block conforms to its declaration and has `instructions` instructions. */
export function checkStages(block: Block<StagesHeader>, instructions: number): void {
  const { header, columns } = block;
  checkColumns(header, columns, new Map(), {});
  if (header.instructions !== instructions) wrong("it is of another module");
  const of = (name: string) => columns.get(name)?.length ?? 0;
  const line = columns.get("place.line");
  if (!line || !columns.has("strand.color")) throw wrong("it has no places");
  if (!Array.isArray(header.stages)) wrong("it has no stages");
  for (const stage of header.stages) {
    const { begin, end, first, count, own } = stage;
    const isCount = (v: unknown) => Number.isSafeInteger(v) && (v as number) >= 0;
    if (![begin, end, first, count].every(isCount)) wrong("a stage has no bounds");
    if (begin > end || end > of("stage_text.bytes")) wrong("a stage is outside its text");
    if (first + count > line.length) wrong("a stage has more places than there are");
    for (let k = first + 1; k < first + count; k++) {
      if (line[k] <= line[k - 1]) wrong("the places of a stage are out of order");
    }
    const last = count ? line[first + count - 1] : 0;
    if (own && last >= instructions && count) wrong("a place is not an instruction");
    for (const list of [stage.notes, stage.files])
      if (!Array.isArray(list)) wrong("a stage is malformed");
  }
}
