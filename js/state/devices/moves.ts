/** Asynchronous copies and collectives, which run beside the computation. */
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { Flag } from "../../view.ts";
import { perModel } from "../members.ts";

export interface Move {
  start: number;
  end: number;
  source: number;
  pieces: number;
  kind: string;
  bytes: number;
  /** Modelled, of one execution; NaN where no chip is known. */
  seconds: number;
  exposed: number;
  /** Its users, looking through plumbing. */
  users: number[];
}

export interface Moves {
  rows: Move[];
  /** Instruction → moves of which it is the start, end, source or a user. */
  byInstruction: Map<number, Move[]>;
  /** The chip for which seconds are modelled, or null. */
  hardware: string | null;
}

const MOST_USERS = 16;
const MOST_PLUMBING = 200;

export const movesOf = perModel((model: ViewModel): Moves | null => {
  const byInstruction = new Map<number, Move[]>();
  const start = model.optional<Uint32Array>("move.start");
  const hardware = model.header.extras.moves?.hardware ?? null;
  if (!start) return null;
  const numbers = (name: string) => model.column<Uint32Array>(`move.${name}`);
  const amounts = (name: string) => model.column<Float64Array>(`move.${name}`);
  const [end, source, pieces, kind] = ["end", "source", "pieces", "kind"].map(numbers);
  const [bytes, seconds, exposed] = ["bytes", "seconds", "exposed"].map(amounts);
  const rows = Array.from(
    start,
    (s, k): Move => ({
      start: s,
      end: end[k],
      source: source[k],
      pieces: pieces[k],
      kind: model.strings.get(kind[k]),
      bytes: bytes[k],
      seconds: seconds[k],
      exposed: exposed[k],
      users: usersThrough(model, end[k]),
    }),
  );
  for (const row of rows) {
    for (const i of new Set([row.start, row.end, row.source, ...row.users])) {
      const found = byInstruction.get(i);
      if (found) found.push(row);
      else byInstruction.set(i, [row]);
    }
  }
  return { rows, byInstruction, hardware };
});

function usersThrough(model: ViewModel, from: number): number[] {
  const { offsets, values } = model.users;
  const out: number[] = [];
  const seen = new Set([from]);
  const open = [from];
  while (open.length > 0 && out.length < MOST_USERS && seen.size < MOST_PLUMBING) {
    const at = open.pop() as number;
    for (let e = offsets[at]; e < offsets[at + 1]; e++) {
      const user = values[e];
      if (seen.has(user)) continue;
      seen.add(user);
      if (model.has(user, Flag.Plumbing)) open.push(user);
      else out.push(user);
    }
  }
  return out.sort((a, b) => a - b);
}

/** Whether work between start and done leaves some of it uncovered: more than 1%. */
export const isExposed = (move: Move): boolean => move.exposed > 0.01 * move.seconds;

/** "prefetch 4 MiB in 4 slices: 12 µs, hidden". */
export function moveText(move: Move): string {
  const size = `${move.kind} ${format.bytes(move.bytes)}`;
  const pieces = move.pieces > 1 ? ` in ${move.pieces} slices` : "";
  const { seconds, exposed } = move;
  if (Number.isNaN(seconds) || Number.isNaN(exposed)) return `${size}${pieces}`;
  const time = format.quantity(seconds, "s");
  const part = isExposed(move)
    ? `up to ${format.quantity(exposed, "s")} of ${time} exposed`
    : `${time}, hidden`;
  return `${size}${pieces}: ${part}`;
}
