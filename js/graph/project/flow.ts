/**
 * The data flow once plumbing is removed. Parameters and constants become chips on their users,
 * tuples and the like are looked through, and the root tuple becomes output marks.
 */
import type { ViewModel } from "../../base/model.ts";
import { Flag } from "../../view.ts";

export const enum Hidden {
  No = 0,
  /** Drawn as text on each user. */
  Chip = 1,
  /** Looked through. */
  Contracted = 2,
}

export interface Flow {
  /** `Hidden` of each instruction. */
  hidden: Uint8Array;
  /** Drawn instructions whose values reach each instruction: CSR. */
  offsets: Uint32Array;
  sources: Uint32Array;
  /** Chips of each instruction: parameters, constants, or elements taken from them. */
  chipOffsets: Uint32Array;
  chips: Uint32Array;
  /** 1 where the value is a result of its computation. */
  output: Uint8Array;
}

/** A tuple is not looked through if that would make more pairs than this. */
const MAX_PAIRS = 64;

export function buildFlow(model: ViewModel, plumbing: boolean, moves = false): Flow {
  const { instruction, operands, computation } = model;
  const n = instruction.count;
  const hidden = chooseHidden(model, plumbing, moves);
  const output = new Uint8Array(n);
  const root = new Uint8Array(n);
  for (let c = 0; c < computation.count; c++) {
    const r = computation.root[c];
    if (r < 0) continue;
    root[r] = 1;
    // A single result needs no mark: it is where the picture ends.
    if (hidden[r] === Hidden.Contracted) {
      for (let e = operands.offsets[r]; e < operands.offsets[r + 1]; e++) {
        output[operands.values[e]] = 1;
      }
    }
  }
  const users = new Uint32Array(n);
  for (const o of operands.values) users[o]++;

  const offsets = new Uint32Array(n + 1);
  const chipOffsets = new Uint32Array(n + 1);
  let sources = new Uint32Array(operands.values.length + 16);
  let chips = new Uint32Array(256);
  let s = 0;
  let k = 0;
  const seen = new Int32Array(n).fill(-1);
  const addSource = (i: number, o: number): void => {
    if (seen[o] === i) return;
    seen[o] = i;
    if (s === sources.length) {
      sources = grow(sources);
    }
    sources[s++] = o;
  };
  const addChip = (i: number, o: number): void => {
    if (seen[o] === i) return;
    seen[o] = i;
    if (k === chips.length) chips = grow(chips);
    chips[k++] = o;
  };
  for (let i = 0; i < n; i++) {
    let begin = operands.offsets[i];
    let end = operands.offsets[i + 1];
    const element = elementOf(model, hidden, i);
    if (element >= 0) {
      begin = element;
      end = element + 1;
    }
    for (let e = begin; e < end; e++) {
      const o = operands.values[e];
      if (hidden[o] === Hidden.No) addSource(i, o);
      else if (hidden[o] === Hidden.Chip) addChip(i, o);
      else {
        for (let f = offsets[o]; f < offsets[o + 1]; f++) addSource(i, sources[f]);
        // "Element 3 of a tuple parameter" says more than the tuple parameter itself.
        const only = chipOffsets[o + 1] - chipOffsets[o];
        const taken = model.opcode(o) === "get-tuple-element" && elementOf(model, hidden, o) < 0;
        if (taken && only === 1 && offsets[o + 1] === offsets[o]) addChip(i, o);
        else for (let f = chipOffsets[o]; f < chipOffsets[o + 1]; f++) addChip(i, chips[f]);
      }
    }
    offsets[i + 1] = s;
    chipOffsets[i + 1] = k;
    if (hidden[i] === Hidden.Contracted && !root[i] && users[i] > 1) {
      const fanIn = s - offsets[i] + k - chipOffsets[i];
      if (fanIn > 1 && fanIn * users[i] > MAX_PAIRS) hidden[i] = Hidden.No;
    }
    // Results reached through plumbing mark the instructions that made them.
    if (output[i] && hidden[i] === Hidden.Contracted) {
      for (let f = offsets[i]; f < s; f++) output[sources[f]] = 1;
    }
  }
  return {
    hidden,
    offsets,
    sources: sources.subarray(0, s),
    chipOffsets,
    chips: chips.subarray(0, k),
    output,
  };
}

/** Index in `operands.values` of the element that a get-tuple-element selects; -1 if unknown. */
function elementOf(model: ViewModel, hidden: Uint8Array, i: number): number {
  const { offsets, values } = model.operands;
  if (hidden[i] !== Hidden.Contracted || model.opcode(i) !== "get-tuple-element") return -1;
  const tuple = values[offsets[i]];
  if (hidden[tuple] !== Hidden.Contracted || model.opcode(tuple) !== "tuple") return -1;
  const element = model.instruction.element[i];
  if (element < 0) return -1;
  const e = offsets[tuple] + element;
  return e < offsets[tuple + 1] ? e : -1;
}

function chooseHidden(model: ViewModel, plumbing: boolean, moves: boolean): Uint8Array {
  const { instruction, operands, called } = model;
  const n = instruction.count;
  const hidden = new Uint8Array(n);
  const chip = Flag.Inline | Flag.Parameter;
  for (let i = 0; i < n; i++) {
    const flags = instruction.flags[i];
    const turn = (flags & Flag.Turn) !== 0;
    if (plumbing && turn) continue;
    if (flags & chip) hidden[i] = Hidden.Chip;
    else if (
      !(flags & Flag.Move ? moves : plumbing) &&
      flags & Flag.Plumbing &&
      (turn || called.offsets[i + 1] === called.offsets[i]) &&
      operands.offsets[i + 1] > operands.offsets[i]
    ) {
      hidden[i] = Hidden.Contracted;
    }
  }
  // Only what comes before its users can be looked through in one pass.
  for (let i = 0; i < n; i++) {
    for (let e = operands.offsets[i]; e < operands.offsets[i + 1]; e++) {
      if (operands.values[e] >= i) hidden[operands.values[e]] = Hidden.No;
    }
  }
  return hidden;
}

function grow(array: Uint32Array): Uint32Array<ArrayBuffer> {
  const out = new Uint32Array(array.length * 2);
  out.set(array);
  return out;
}
