/** The View's collective.* tables, with what panels and colourings derive from them. */

import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import type { GroupSet, WhyCard } from "../../view-extras.ts";
import { perModel } from "../members.ts";

export interface CollectiveRow {
  index: number;
  kind: string;
  /** "ici" or "dcn" in a program that spans several TPU slices, else "". */
  network: string;
  instruction: number;
  anchor: number;
  axes: string;
  onAxes: boolean;
  /** Element types, "bf16"; "" unknown. */
  types: string;
  groupSize: number;
  payload: number; // bytes of one execution
  wire: number; // bytes that one device sends in one execution; NaN unknown
  /** The most that are possible, where it is in a branch of a conditional; NaN unknown. */
  executions: number;
  /** Executions in one trip of each loop of unknown trip count around it. */
  executionsATrip: number;
  /** Whether a loop of unknown trip count around it may run 0 times. */
  mayNotRun: boolean;
  /** Branches of conditionals around it, outermost first; with any, it may not run at all. */
  branches: readonly Branch[];
  phase: string;
  written: string;
  moves: string;
  movesArgument: boolean;
  line: string;
  opName: string;
  /** Why it is there, as far as the HLO alone shows; "" if it does not. */
  shows: string;
  why: WhyCard | null;
  groups: GroupSet | null;
  /** What wire bytes and time assume; "" if nothing. */
  assumes: string;
  /** Consists of several permutes: `parts` are transfers. */
  ofPermutes: boolean;
  members: Uint32Array;
  parts: { shape: string; bytes: number; moves: string }[];
}

export interface Branch {
  conditional: number;
  number: number;
  of: number;
}

export interface Collectives {
  rows: CollectiveRow[];
  /** Instruction → the row that it is a member of. */
  byInstruction: Map<number, CollectiveRow>;
}

/** After a figure that counts one trip of a loop that may run more often, or not at all. */
export const ONE_TRIP = "(1 trip)";

const counted = (r: CollectiveRow): number =>
  Number.isFinite(r.executions) ? r.executions : r.executionsATrip;

/** Wire bytes over all executions; loops of unknown trip count count once. */
export const totalWire = (r: CollectiveRow): number => r.wire * counted(r);

/** Payload over all executions; loops of unknown trip count count once. */
export const totalPayload = (r: CollectiveRow): number => r.payload * counted(r);

export const collectivesOf = perModel((model: ViewModel): Collectives | null => {
  const kind = model.optional<Uint32Array>("collective.kind");
  const extras = model.header.extras.collectives;
  if (!kind || !extras) return null;
  const phases = model.header.extras.phases ?? [""];
  const c = <T extends Uint8Array | Uint32Array | Int32Array | Float64Array>(name: string): T =>
    model.column<T>(`collective.${name}`);
  const text = (name: string) => {
    const ids = c<Uint32Array>(name);
    return (k: number) => model.strings.get(ids[k]);
  };
  const axes = text("axes");
  const types = text("types");
  const networks = model.optional<Uint32Array>("collective.network");
  const moves = text("moves");
  const line = text("line");
  const opName = text("op_name");
  const shows = text("shows");
  const instruction = c<Uint32Array>("instruction");
  const anchor = c<Uint32Array>("anchor");
  const onAxes = c<Uint8Array>("on_axes");
  const size = c<Uint32Array>("group_size");
  const payload = c<Float64Array>("payload");
  const wire = c<Float64Array>("wire");
  const executions = c<Float64Array>("executions");
  const runs = model.optional<Float64Array>("cost.runs");
  const mayNotRun = model.optional<Uint8Array>("collective.may_not_run");
  const phase = c<Uint8Array>("phase");
  const written = c<Uint8Array>("written");
  const argument = c<Uint8Array>("moves_argument");
  const why = c<Int32Array>("why");
  const set = c<Int32Array>("group_set");
  const memberAt = model.column<Uint32Array>("collective_member.offsets");
  const member = model.column<Uint32Array>("collective_member.values");
  const partAt = model.column<Uint32Array>("collective_part.offsets");
  const partShape = model.column<Uint32Array>("collective_part.shape");
  const partBytes = model.column<Float64Array>("collective_part.bytes");
  const partMoves = model.column<Uint32Array>("collective_part.moves");
  const byInstruction = new Map<number, CollectiveRow>();
  const branchAt = model.optional<Uint32Array>("collective_branch.offsets");
  const branch = (k: number): Branch[] => {
    const out = [];
    const part = (name: string) => model.column<Uint32Array>(`collective_branch.${name}`);
    for (let b = branchAt?.[k] ?? 0; b < (branchAt?.[k + 1] ?? 0); b++) {
      const [conditional, number, of] = [part("conditional"), part("number"), part("of")];
      out.push({ conditional: conditional[b], number: number[b], of: of[b] });
    }
    return out;
  };
  const rows = Array.from(kind, (id, k): CollectiveRow => {
    const parts = [];
    for (let p = partAt[k]; p < partAt[k + 1]; p++) {
      parts.push({
        shape: model.strings.get(partShape[p]),
        bytes: partBytes[p],
        moves: model.strings.get(partMoves[p]),
      });
    }
    const row: CollectiveRow = {
      index: k,
      kind: model.strings.get(id),
      instruction: instruction[k],
      anchor: anchor[k],
      axes: axes(k),
      types: types(k),
      network: networks ? model.strings.get(networks[k]) : "",
      onAxes: onAxes[k] === 1,
      groupSize: size[k],
      payload: payload[k],
      wire: wire[k],
      executions: executions[k],
      executionsATrip: runs?.[instruction[k]] || 1,
      mayNotRun: mayNotRun?.[k] === 1,
      branches: branch(k),
      phase: phases[phase[k]] || "unknown",
      written: extras.written[written[k]],
      moves: moves(k),
      movesArgument: argument[k] === 1,
      line: line(k),
      opName: opName(k),
      shows: shows(k),
      why: extras.why[why[k]] ?? null,
      groups: extras.groups[set[k]] ?? null,
      assumes: extras.assumes[model.strings.get(kind[k])] ?? "",
      ofPermutes: extras.ofPermutes.includes(model.strings.get(kind[k])),
      members: member.subarray(memberAt[k], memberAt[k + 1]),
      parts,
    };
    for (const i of row.members) byInstruction.set(i, row);
    return row;
  });
  return { rows, byInstruction };
});

export interface Total {
  key: string;
  count: number;
  /** The most, over branches that exclude one another. */
  wire: number;
  leastWire: number;
  /** Both as text, see `wireText`. */
  sent: string;
  payload: number;
  leastPayload: number;
}

/** Executions: "0–8" inside a branch, otherwise "8"; "?" unknown. */
export const executionsText = (r: CollectiveRow): string =>
  !Number.isFinite(r.executions)
    ? "?"
    : `${r.branches.length ? "0–" : ""}${format.count(r.executions)}`;

/** "1 KiB – 2 KiB", or a single figure if both are equal. */
export const spanned = (least: number, most: number): string =>
  least === most ? format.bytes(most) : `${format.bytes(least)} – ${format.bytes(most)}`;

/** [least, most] of a sum over the branches that may run; unknown values add nothing. */
export function span(
  rows: readonly CollectiveRow[],
  value: (row: CollectiveRow) => number,
  depth = 0,
): [number, number] {
  let least = 0;
  let most = 0;
  const inner = new Map<number, Map<number, CollectiveRow[]>>();
  for (const row of rows) {
    const at = row.branches[depth];
    const one = value(row);
    if (!at) {
      if (Number.isFinite(one)) {
        least += one;
        most += one;
      }
      continue;
    }
    const sides = inner.get(at.conditional) ?? new Map<number, CollectiveRow[]>();
    inner.set(at.conditional, sides.set(at.number, [...(sides.get(at.number) ?? []), row]));
  }
  for (const sides of inner.values()) {
    const found = [...sides.values()].map((side) => span(side, value, depth + 1));
    const all = [...sides.values()][0][0].branches[depth].of;
    least += Math.min(...found.map(([low]) => low), sides.size < all ? 0 : Infinity);
    most += Math.max(...found.map(([, high]) => high));
  }
  return [least, most];
}

/**
 * Wire bytes of all rows: "≥" if a formula is unknown or the trip count of a loop that runs at least
 * once, "(1 trip)" if one is counted that may run 0 times, "unknown" if nothing is known.
 */
export function wireText(rows: readonly CollectiveRow[]): string {
  const [least, most] = span(rows, totalWire);
  if (!most && rows.some((r) => Number.isNaN(r.wire))) return "unknown";
  if (rows.some((r) => r.mayNotRun)) return `${spanned(least, most)} ${ONE_TRIP}`;
  const atLeast = rows.some((r) => !Number.isFinite(r.wire) || !Number.isFinite(r.executions));
  return atLeast ? `≥ ${format.bytes(least)}` : spanned(least, most);
}

/** Sums over rows that share a key, most wire bytes first. */
export function totalsBy(
  rows: readonly CollectiveRow[],
  key: (row: CollectiveRow) => string,
): Total[] {
  const groups = new Map<string, CollectiveRow[]>();
  for (const row of rows) {
    const name = key(row);
    const found = groups.get(name);
    if (found) found.push(row);
    else groups.set(name, [row]);
  }
  const totals = [...groups].map(([name, found]): Total => {
    const [leastWire, wire] = span(found, totalWire);
    const [leastPayload, payload] = span(found, totalPayload);
    const sent = wireText(found);
    return { key: name, count: found.length, wire, leastWire, sent, payload, leastPayload };
  });
  return totals.sort((a, b) => b.wire - a.wire || b.payload - a.payload);
}
