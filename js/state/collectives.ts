/** The View's collective.* and phase.* tables, with what panels and colourings derive from them. */

import type { ViewModel } from "../base/model.ts";
import type { GroupSet, WhyCard } from "../view-extras.ts";
import { perModel } from "./members.ts";

export interface CollectiveRow {
  index: number;
  kind: string;
  /** "ici" or "dcn" in a program over several TPU slices, else "". */
  network: string;
  instruction: number;
  anchor: number;
  axes: string;
  onAxes: boolean;
  groupSize: number;
  payload: number; // bytes of one execution
  wire: number; // bytes one device sends in one execution; NaN unknown
  executions: number; // NaN unknown
  phase: string;
  written: string;
  moves: string;
  movesArgument: boolean;
  line: string;
  opName: string;
  why: WhyCard | null;
  groups: GroupSet | null;
  /** What wire bytes and time take for granted; "" nothing. */
  assumes: string;
  /** Stands for several permutes: `parts` are transfers. */
  ofPermutes: boolean;
  members: Uint32Array;
  parts: { shape: string; bytes: number }[];
}

export interface Collectives {
  rows: CollectiveRow[];
  /** Instruction → row it stands for. */
  byInstruction: Map<number, CollectiveRow>;
}

/** Wire bytes of all executions; one where the number is unknown. */
export const totalWire = (r: CollectiveRow): number =>
  r.wire * (Number.isFinite(r.executions) ? r.executions : 1);

/** Payload of all executions; one where the number is unknown. */
export const totalPayload = (r: CollectiveRow): number =>
  r.payload * (Number.isFinite(r.executions) ? r.executions : 1);

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
  const networks = model.optional<Uint32Array>("collective.network");
  const moves = text("moves");
  const line = text("line");
  const opName = text("op_name");
  const instruction = c<Uint32Array>("instruction");
  const anchor = c<Uint32Array>("anchor");
  const onAxes = c<Uint8Array>("on_axes");
  const size = c<Uint32Array>("group_size");
  const payload = c<Float64Array>("payload");
  const wire = c<Float64Array>("wire");
  const executions = c<Float64Array>("executions");
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
  const byInstruction = new Map<number, CollectiveRow>();
  const rows = Array.from(kind, (id, k): CollectiveRow => {
    const parts = [];
    for (let p = partAt[k]; p < partAt[k + 1]; p++) {
      parts.push({ shape: model.strings.get(partShape[p]), bytes: partBytes[p] });
    }
    const row: CollectiveRow = {
      index: k,
      kind: model.strings.get(id),
      instruction: instruction[k],
      anchor: anchor[k],
      axes: axes(k),
      network: networks ? model.strings.get(networks[k]) : "",
      onAxes: onAxes[k] === 1,
      groupSize: size[k],
      payload: payload[k],
      wire: wire[k],
      executions: executions[k],
      phase: phases[phase[k]] || "unknown",
      written: extras.written[written[k]],
      moves: moves(k),
      movesArgument: argument[k] === 1,
      line: line(k),
      opName: opName(k),
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
  wire: number;
  payload: number;
  atLeast: boolean; // a trip count or formula in it is unknown
}

/** Sums of rows that share a key, most wire bytes first. */
export function totalsBy(
  rows: readonly CollectiveRow[],
  key: (row: CollectiveRow) => string,
): Total[] {
  const sums = new Map<string, Total>();
  for (const row of rows) {
    const name = key(row);
    let t = sums.get(name);
    if (!t) {
      t = { key: name, count: 0, wire: 0, payload: 0, atLeast: false };
      sums.set(name, t);
    }
    t.count++;
    t.payload += totalPayload(row);
    const sent = totalWire(row);
    if (Number.isFinite(sent)) t.wire += sent;
    if (!Number.isFinite(row.wire) || !Number.isFinite(row.executions)) t.atLeast = true;
  }
  return [...sums.values()].sort((a, b) => b.wire - a.wire || b.payload - a.payload);
}
