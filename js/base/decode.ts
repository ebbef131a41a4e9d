/** Turns a gzip'd View or text block into typed arrays over one buffer; nothing is copied. */

import type { ColumnSpec } from "../view.ts";
import { parsePlain, plain } from "./plain.ts";

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

/** A required column; throws BadBlock when it is missing. */
export function columnOf<T extends Column>(columns: ReadonlyMap<string, Column>, name: string): T {
  const found = columns.get(name);
  if (!found) throw lacks(name);
  return found as T;
}

export const lacks = (name: string) =>
  new BadBlock(`The data has no column ${name}; it is from another version of hloscope.`);

/** Limits on inflated bytes: `always` allowed, `times` the compressed size, never above `most`. */
export const INFLATE_LIMIT = { always: 64 << 20, times: 200, most: 1 << 30 };

/**
 * Inflates a block. Throws BadBlock when the bytes are truncated or not gzip, when they do not
 * begin with `magic` (before inflating the rest), and beyond `INFLATE_LIMIT`: a few MiB of gzip
 * can hold gigabytes.
 */
export async function gunzip(bytes: Uint8Array, magic: string): Promise<Uint8Array> {
  const { always, times, most } = INFLATE_LIMIT;
  const limit = Math.min(most, Math.max(always, times * bytes.length));
  const stream = new Blob([bytes as BlobPart])
    .stream()
    .pipeThrough(new DecompressionStream("gzip"));
  const reader = stream.getReader();
  const parts: Uint8Array[] = [];
  let total = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new BadBlock("The data is damaged or cut off: it cannot be unpacked. Load it again.");
      });
      if (done) break;
      parts.push(value);
      total += value.length;
      if (total >= magic.length && total - value.length < magic.length) {
        const first = joined(parts, total);
        if (!beginsWith(first, magic)) throw notOurs(magic);
        parts.splice(0, parts.length, first);
      }
      if (total > limit) {
        const mib = Math.round(limit / 2 ** 20).toLocaleString("en-US");
        throw new BadBlock(`The data is larger than ${mib} MiB unpacked; it is not shown.`);
      }
    }
  } catch (error) {
    void reader.cancel().catch(() => undefined);
    throw error;
  }
  return joined(parts, total);
}

function joined(parts: Uint8Array[], total: number): Uint8Array {
  if (parts.length === 1) return parts[0];
  const out = new Uint8Array(total);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

const beginsWith = (raw: Uint8Array, magic: string): boolean =>
  String.fromCharCode(...raw.subarray(0, magic.length)) === magic;
const notOurs = (magic: string) =>
  new BadBlock(`The data does not begin with ${magic}; it was not written by hloscope.`);

/** Decodes an inflated block; throws BadBlock with one clear sentence. */
export function decodeBlock<H extends { columns: Record<string, ColumnSpec>; version: number }>(
  raw: Uint8Array,
  magic: string,
  version: number,
): Block<H> {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  if (raw.length < 12 || !beginsWith(raw, magic)) throw notOurs(magic);
  const found = view.getUint32(4, true);
  if (found !== version) {
    throw new BadBlock(
      found < version
        ? `The data was written by an older hloscope (version ${found} of its format; this reads ${version}): run the cell, or save the page, again.`
        : `The data was written by a newer hloscope (version ${found} of its format; this reads ${version}): update hloscope.`,
    );
  }
  const headerBytes = view.getUint32(8, true);
  if (12 + headerBytes > raw.length) {
    throw new BadBlock("The data is cut off inside its header; load it again.");
  }
  const header = parsed<H>(raw.subarray(12, 12 + headerBytes));
  const start = Math.ceil((12 + headerBytes) / 8) * 8;
  // Typed arrays need aligned offsets: copy once if the block itself is not aligned.
  const body = (raw.byteOffset + start) % 8 === 0 ? raw : raw.slice();
  const columns = new Map<string, Column>();
  for (const [name, spec] of Object.entries(header.columns)) {
    const Ctor = Object.hasOwn(ARRAYS, spec?.dtype) ? ARRAYS[spec.dtype] : null;
    if (!Ctor || !isCount(spec.offset) || !isCount(spec.length) || spec.offset % 8) {
      throw new BadBlock(`The data is damaged: its header describes no column at ${name}.`);
    }
    const begin = body.byteOffset + start + spec.offset;
    if (start + spec.offset + spec.length * Ctor.BYTES_PER_ELEMENT > body.length) {
      throw new BadBlock(`The data is cut off inside column ${name}; load it again.`);
    }
    columns.set(name, new Ctor(body.buffer as ArrayBuffer, begin, spec.length));
  }
  return { header, columns };
}

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;

/** The header as an object with columns; `validate.ts` checks the rest of it. */
function parsed<H extends { columns: object }>(bytes: Uint8Array): H {
  try {
    const found = parsePlain(new TextDecoder().decode(bytes)) as H | null;
    if (typeof found?.columns === "object" && found.columns !== null) return found;
  } catch {
    // reported below, like a header of another form
  }
  throw new BadBlock("The data is damaged: its header cannot be read. Load it again.");
}

/** Strings, decoded on first use and cached. */
export class StringTable {
  private cache: (string | undefined)[] = [];
  private decoder = new TextDecoder();
  /** Ids from `own` up belong to `more`, where they start at 0. */
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
        ? plain(this.decoder.decode(this.bytes.subarray(this.offsets[id], this.offsets[id + 1])))
        : (this.more as StringTable).get(id - this.own);
    this.cache[id] = text;
    return text;
  }
  /** Appends another table; returns the id of its first string. */
  append(table: StringTable): number {
    if (this.more) return this.own + this.more.append(table);
    this.more = table;
    return this.own;
  }
}
