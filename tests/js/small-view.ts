/** Views made by hand in the container format of Views, for tests without Python. */
import { type ColumnSpec, type DType, VIEW_VERSION, type ViewHeader } from "../../js/view.ts";

const BYTES: Record<DType, number> = { u8: 1, u16: 2, u32: 4, i32: 4, f32: 4, f64: 8 };

/** Packs header and columns; the inverse of `decodeBlock`. */
export function pack(
  magic: string,
  version: number,
  header: Record<string, unknown>,
  columns: Record<string, [DType, ArrayLike<number>]>,
  texts: readonly string[] = [],
): Uint8Array {
  const specs: Record<string, ColumnSpec> = {};
  let at = 0;
  for (const [name, [dtype, values]] of Object.entries(columns)) {
    specs[name] = { dtype, offset: at, length: values.length };
    if (texts.includes(name)) specs[name].text = true;
    at = Math.ceil((at + values.length * BYTES[dtype]) / 8) * 8;
  }
  const text = new TextEncoder().encode(JSON.stringify({ version, ...header, columns: specs }));
  const start = Math.ceil((12 + text.length) / 8) * 8;
  const out = new Uint8Array(start + at);
  const view = new DataView(out.buffer);
  out.set(new TextEncoder().encode(magic), 0);
  view.setUint32(4, version, true);
  view.setUint32(8, text.length, true);
  out.set(text, 12);
  for (const [name, [dtype, values]] of Object.entries(columns)) {
    const set = {
      u8: view.setUint8,
      u16: view.setUint16,
      u32: view.setUint32,
      i32: view.setInt32,
      f32: view.setFloat32,
      f64: view.setFloat64,
    }[dtype];
    for (let k = 0; k < values.length; k++) {
      set.call(view, start + specs[name].offset + k * BYTES[dtype], values[k], true);
    }
  }
  return out;
}

export class Strings {
  private ids = new Map<string, number>([["", 0]]);
  id(text: string): number {
    const known = this.ids.get(text);
    if (known !== undefined) return known;
    this.ids.set(text, this.ids.size);
    return this.ids.size - 1;
  }
  columns(): Record<string, [DType, ArrayLike<number>]> {
    const parts = [...this.ids.keys()].map((t) => new TextEncoder().encode(t));
    const offsets = [0];
    for (const p of parts) offsets.push(offsets[offsets.length - 1] + p.length);
    return {
      "strings.bytes": ["u8", parts.flatMap((p) => [...p])],
      "strings.offsets": ["u32", offsets],
    };
  }
}

export interface Row {
  name: string;
  opcode: string;
  shape: string;
  bytes: number;
  opName?: string;
  /** Frames outermost first: "train.py:31". */
  stack?: string[];
  group?: number;
  operands?: number[];
  flags?: number;
}

export interface GroupRow {
  label: string;
  kind: ViewHeader["groupKinds"][number];
  parent: number;
  fold?: number;
}

const KINDS: ViewHeader["groupKinds"] = ["module", "entry", "scope", "fusion"];

/** One computation holding `rows`; groups default to the module and its ENTRY. */
export function smallView(
  rows: Row[],
  groups: GroupRow[] = [],
  folds: number[][] = [],
): Uint8Array {
  const all: GroupRow[] = [
    { label: "m", kind: "module", parent: -1 },
    { label: "main", kind: "entry", parent: 0 },
    ...groups,
  ];
  const s = new Strings();
  const opcodes = [...new Set(rows.map((r) => r.opcode))];
  const frames: { file: number; line: number; parent: number }[] = [];
  const frameOf = rows.map((r) => {
    let parent = -1;
    for (const place of r.stack ?? []) {
      const [file, line] = place.split(":");
      frames.push({ file: s.id(file), line: Number(line), parent });
      parent = frames.length - 1;
    }
    return parent;
  });
  const groupOf = rows.map((r) => r.group ?? 1);
  const size = all.map(
    (_, g) =>
      groupOf.filter((of) => {
        for (let at = of; at >= 0; at = all[at].parent) if (at === g) return true;
        return false;
      }).length,
  );
  const first = all.map((_, g) => Math.max(0, groupOf.indexOf(g)));
  const csr = (lists: number[][]): [number[], number[]] => {
    const offsets = [0];
    for (const l of lists) offsets.push(offsets[offsets.length - 1] + l.length);
    return [offsets, lists.flat()];
  };
  const [operandOffsets, operandValues] = csr(rows.map((r) => r.operands ?? []));
  const zeros = (n: number) => new Array<number>(n).fill(0);
  const [foldOffsets, foldMembers] = csr(folds);
  const columns: Record<string, [DType, ArrayLike<number>]> = {
    "instruction.name": ["u32", rows.map((r) => s.id(r.name))],
    "instruction.label": ["u32", rows.map((r) => s.id(r.opcode))],
    "instruction.code": ["u32", rows.map(() => s.id(""))],
    "instruction.opcode": ["u16", rows.map((r) => opcodes.indexOf(r.opcode))],
    "instruction.family": ["u8", rows.map((r) => opcodes.indexOf(r.opcode))],
    "instruction.flags": ["u16", rows.map((r) => r.flags ?? 0)],
    "instruction.shape": ["u32", rows.map((r) => s.id(`${r.shape}{0}`))],
    "instruction.dense_shape": ["u32", rows.map((r) => s.id(r.shape))],
    "instruction.bytes": ["f64", rows.map((r) => r.bytes)],
    "instruction.element": ["i32", rows.map(() => -1)],
    "instruction.computation": ["u32", zeros(rows.length)],
    "instruction.group": ["u32", groupOf],
    "instruction.op_name": ["u32", rows.map((r) => s.id(r.opName ?? ""))],
    "instruction.frame": ["i32", frameOf],
    "operand.offsets": ["u32", operandOffsets],
    "operand.values": ["u32", operandValues],
    "control.offsets": ["u32", zeros(rows.length + 1)],
    "control.values": ["u32", []],
    "called.offsets": ["u32", zeros(rows.length + 1)],
    "called.values": ["u32", []],
    "called.role": ["u8", []],
    "computation.name": ["u32", [s.id("main")]],
    "computation.first": ["u32", [0]],
    "computation.size": ["u32", [rows.length]],
    "computation.root": ["i32", [rows.length - 1]],
    "computation.group": ["i32", [1]],
    "group.parent": ["i32", all.map((g) => g.parent)],
    "group.kind": ["u8", all.map((g) => KINDS.indexOf(g.kind))],
    "group.label": ["u32", all.map((g) => s.id(g.label))],
    "group.owner": ["i32", all.map(() => -1)],
    "group.computation": ["i32", all.map((_, k) => (k === 1 ? 0 : -1))],
    "group.size": ["u32", size],
    "group.order": ["u32", first],
    "group.worth": ["f32", all.map(() => 0)],
    "group.class": ["u32", all.map((_, k) => k)],
    "group.fold": ["i32", all.map((g) => g.fold ?? -1)],
    "fold.parent": ["u32", folds.map(() => 1)],
    "fold.label": ["u32", folds.map((_, k) => s.id(`fold_${k}`))],
    "fold.offsets": ["u32", foldOffsets],
    "fold.members": ["u32", foldMembers],
    "frame.file": ["u32", frames.map((f) => f.file)],
    "frame.function": ["u32", zeros(frames.length)],
    "frame.line": ["u32", frames.map((f) => f.line)],
    "frame.parent": ["i32", frames.map((f) => f.parent)],
  };
  const header = {
    opcodes,
    families: opcodes.map((id) => ({ id, label: id, landmark: false })),
    groupKinds: KINDS,
    callRoles: [],
    counts: { instructions: rows.length, computations: 1, groups: all.length, folds: folds.length },
    title: "m",
    subtitle: "",
    dialect: "hlo",
    isScheduled: true,
    summary: {
      module: "m",
      computations: 1,
      instructions: rows.length,
      entry_instructions: rows.length,
      fusions: {},
      opcodes: {},
      parameters: 0,
      parameter_bytes: null,
      output_bytes: null,
      shapes: "local",
      partitions: 1,
      replicas: 1,
      warnings: [],
    },
    warnings: [],
    extras: {},
  };
  return pack("HLOV", VIEW_VERSION, header, { ...columns, ...s.columns() });
}

export async function gzip(raw: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([raw as BlobPart]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
