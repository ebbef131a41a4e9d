/** The source line of an instruction: its own, or one that Python inferred from what it serves. */
import type { ViewModel } from "../../base/model.ts";

/** Innermost frame of an instruction, its own or inferred; -1 unknown. */
export function frameOf(model: ViewModel, i: number): number {
  return model.optional<Int32Array>("source.frame")?.[i] ?? model.instruction.frame[i];
}

/** How each line was inferred (`source.why`): 0 for own lines and where none is known. */
export function inferredFrom(model: ViewModel): Uint8Array | null {
  return model.optional<Uint8Array>("source.why");
}

/** How a line was inferred: "layout for" and the instruction that has it; null for own lines. */
export function inferredLine(model: ViewModel, i: number): { words: string; via: number } | null {
  const why = inferredFrom(model)?.[i] ?? 0;
  const via = model.optional<Int32Array>("source.via")?.[i] ?? -1;
  const words = model.header.extras.source?.why[why];
  return why > 0 && via >= 0 && words ? { words, via } : null;
}
