/** Turns a gzip'd View or text block into typed arrays over one buffer; nothing is copied. */
import type { ColumnSpec } from "../view.ts";

const ARRAYS = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  f64: Float64Array,
} as const;

export type Column =
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array;

export interface Block<H> {
  header: H;
  columns: Map<string, Column>;
}

export class BadBlock extends Error {}

/** Throws BadBlock when the bytes are cut off or were never gzip. */
export async function gunzip(bytes: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([bytes as BlobPart])
    .stream()
    .pipeThrough(new DecompressionStream("gzip"));
  try {
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch {
    throw new BadBlock("The data is damaged or cut off: it cannot be unpacked. Load it again.");
  }
}

/** Decodes an uncompressed block; throws BadBlock with one clear sentence. */
export function decodeBlock<H extends { columns: Record<string, ColumnSpec>; version: number }>(
  raw: Uint8Array,
  magic: string,
  version: number,
): Block<H> {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  if (raw.length < 12 || String.fromCharCode(...raw.subarray(0, 4)) !== magic) {
    throw new BadBlock(`The data does not begin with ${magic}; it was not written by hloscope.`);
  }
  const found = view.getUint32(4, true);
  if (found !== version) {
    throw new BadBlock(
      `The data is of version ${found} and this page reads version ${version}; use the same hloscope for both.`,
    );
  }
  const headerBytes = view.getUint32(8, true);
  if (12 + headerBytes > raw.length) {
    throw new BadBlock("The data is cut off inside its header; load it again.");
  }
  const header = JSON.parse(new TextDecoder().decode(raw.subarray(12, 12 + headerBytes))) as H;
  const start = Math.ceil((12 + headerBytes) / 8) * 8;
  // Typed arrays need aligned offsets; one copy if the block itself is not aligned.
  const body = (raw.byteOffset + start) % 8 === 0 ? raw : raw.slice();
  const columns = new Map<string, Column>();
  for (const [name, spec] of Object.entries(header.columns)) {
    const Ctor = ARRAYS[spec.dtype];
    const begin = body.byteOffset + start + spec.offset;
    if (start + spec.offset + spec.length * Ctor.BYTES_PER_ELEMENT > body.length) {
      throw new BadBlock(`The data is cut off inside column ${name}; load it again.`);
    }
    columns.set(name, new Ctor(body.buffer as ArrayBuffer, begin, spec.length));
  }
  return { header, columns };
}

/** Strings decoded when asked for, and kept. */
export class StringTable {
  private cache: (string | undefined)[] = [];
  private decoder = new TextDecoder();
  /** Ids from `own` on are those of `more`, from 0. */
  private readonly own: number;
  private more: StringTable | null = null;
  constructor(
    private bytes: Uint8Array,
    private offsets: Uint32Array,
  ) {
    this.own = Math.max(0, offsets.length - 1);
  }
  get length(): number {
    return this.own + (this.more?.length ?? 0);
  }
  get(id: number): string {
    const hit = this.cache[id];
    if (hit !== undefined) return hit;
    if (!(id >= 0 && id < this.length)) return "";
    const text =
      id < this.own
        ? this.decoder.decode(this.bytes.subarray(this.offsets[id], this.offsets[id + 1]))
        : (this.more as StringTable).get(id - this.own);
    this.cache[id] = text;
    return text;
  }
  /** Adds another table behind; returns the id of its first string. */
  append(table: StringTable): number {
    if (this.more) return this.own + this.more.append(table);
    this.more = table;
    return this.own;
  }
}
