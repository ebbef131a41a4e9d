/** The View's device.*, array.*, sharding.* and traffic.* tables: what each device holds and sends. */

import type { ViewModel } from "../../base/model.ts";
import type { MeshInfo } from "../../view-extras.ts";
import { perModel } from "../members.ts";

export interface ArrayRow {
  index: number;
  role: "parameter" | "output" | "value";
  name: string;
  instruction: number; // -1 none
  sharding: number;
  type: string;
  bytes: number; // on one device
  globalBytes: number;
  padded: boolean;
  dims: Uint32Array;
  local: Uint32Array;
}

export interface ShardingRow {
  text: string;
  raw: string;
  kind: string;
  replicas: number;
  tiles: Uint32Array;
  /** Row-major tile of each device; -1 none. */
  place: Int32Array;
}

export interface Traffic {
  source: Uint32Array;
  target: Uint32Array;
  bytes: Float64Array;
}

export interface Devices {
  count: number;
  kind: string;
  ids: Uint32Array;
  coords: number[][]; // [] when not known
  slices: number[]; // the TPU slice of each device; [] where there is only one
  mesh: MeshInfo | null;
  bytes: { parameter: Float64Array; output: Float64Array; sent: Float64Array };
  traffic: Traffic | null;
  arrays: ArrayRow[];
  shardings: ShardingRow[];
  byInstruction: Map<number, ArrayRow>;
}

const ROLES = ["parameter", "output", "value"] as const;

export const devicesOf = perModel((model: ViewModel): Devices | null => {
  const extras = model.header.extras.devices;
  if (!extras || !model.optional("device.id")) return null;
  const source = model.optional<Uint32Array>("traffic.source");
  const shardings = shardingRows(model, extras.count);
  const arrays = arrayRows(model);
  const byInstruction = new Map<number, ArrayRow>();
  for (const a of arrays) {
    if (a.instruction >= 0 && !byInstruction.has(a.instruction))
      byInstruction.set(a.instruction, a);
  }
  return {
    ...extras,
    ids: model.column("device.id"),
    bytes: {
      parameter: model.column("device.parameter_bytes"),
      output: model.column("device.output_bytes"),
      sent: model.column("device.sent_bytes"),
    },
    traffic: source && {
      source,
      target: model.column("traffic.target"),
      bytes: model.column("traffic.bytes"),
    },
    arrays,
    shardings,
    byInstruction,
  };
});

function rowsOf(model: ViewModel, name: string): (k: number) => Uint32Array {
  const offsets = model.column<Uint32Array>(`${name}.offsets`);
  const values = model.column<Uint32Array>(`${name}.values`);
  return (k) => values.subarray(offsets[k], offsets[k + 1]);
}

function arrayRows(model: ViewModel): ArrayRow[] {
  const role = model.optional<Uint8Array>("array.role");
  if (!role) return [];
  const name = model.column<Uint32Array>("array.name");
  const instruction = model.column<Int32Array>("array.instruction");
  const sharding = model.column<Uint32Array>("array.sharding");
  const type = model.column<Uint32Array>("array.type");
  const bytes = model.column<Float64Array>("array.bytes");
  const globalBytes = model.column<Float64Array>("array.global_bytes");
  const padded = model.column<Uint8Array>("array.padded");
  const dims = rowsOf(model, "array_dims");
  const local = rowsOf(model, "array_local");
  return Array.from(role, (r, k) => ({
    index: k,
    role: ROLES[r],
    name: model.strings.get(name[k]),
    instruction: instruction[k],
    sharding: sharding[k],
    type: model.strings.get(type[k]),
    bytes: bytes[k],
    globalBytes: globalBytes[k],
    padded: padded[k] === 1,
    dims: dims(k),
    local: local(k),
  }));
}

function shardingRows(model: ViewModel, devices: number): ShardingRow[] {
  const text = model.optional<Uint32Array>("sharding.text");
  if (!text) return [];
  const raw = model.column<Uint32Array>("sharding.raw");
  const kind = model.column<Uint32Array>("sharding.kind");
  const replicas = model.column<Uint32Array>("sharding.replicas");
  const tiles = rowsOf(model, "sharding_tiles");
  const place = model.column<Int32Array>("sharding_place.tile");
  return Array.from(text, (id, k) => ({
    text: model.strings.get(id),
    raw: model.strings.get(raw[k]),
    kind: model.strings.get(kind[k]),
    replicas: replicas[k],
    tiles: tiles(k),
    place: place.subarray(k * devices, (k + 1) * devices),
  }));
}

/** Index ranges of a tile: [begin, end) per dimension; begin = end past the end of the array. */
export function tileRanges(
  dims: ArrayLike<number>,
  tiles: ArrayLike<number>,
  tile: number,
): [number, number][] {
  const out: [number, number][] = [];
  let rest = tile;
  for (let d = dims.length - 1; d >= 0; d--) {
    const n = Math.max(1, tiles[d]);
    const at = rest % n;
    rest = Math.floor(rest / n);
    const extent = Math.ceil(dims[d] / n);
    out.unshift([Math.min(at * extent, dims[d]), Math.min((at + 1) * extent, dims[d])]);
  }
  return out;
}

export interface Spot {
  x: number;
  y: number;
}

/**
 * Position of each device, in cells: the last axis runs to the right, the one before it down, and
 * outer axes alternate, with a gap between blocks. A single long axis is wrapped.
 */
export function meshSpots(
  sizes: readonly number[],
  partitions: readonly number[],
): { spots: Spot[]; width: number; height: number } {
  const shape = sizes.length === 1 && sizes[0] > 24 ? wrapped(sizes[0]) : sizes;
  const spots: Spot[] = new Array(partitions.length);
  let width = 1;
  let height = 1;
  const steps = shape.map(() => ({ x: 0, y: 0 }));
  for (let a = shape.length - 1, turn = 0; a >= 0; a--, turn++) {
    const gap = turn >= 2 ? 0.6 : 0;
    if (turn % 2 === 0) {
      steps[a].x = width + gap;
      width = steps[a].x * (shape[a] - 1) + width;
    } else {
      steps[a].y = height + gap;
      height = steps[a].y * (shape[a] - 1) + height;
    }
  }
  partitions.forEach((device, position) => {
    let rest = position;
    const spot = { x: 0, y: 0 };
    for (let a = shape.length - 1; a >= 0; a--) {
      const at = rest % shape[a];
      rest = Math.floor(rest / shape[a]);
      spot.x += at * steps[a].x;
      spot.y += at * steps[a].y;
    }
    spots[device] = spot;
  });
  return { spots, width, height };
}

function wrapped(n: number): number[] {
  for (let rows = Math.floor(Math.sqrt(n)); rows > 1; rows--) {
    if (n % rows === 0) return [rows, n / rows];
  }
  return [n];
}

/** The physical torus: x to the right, y down, z in blocks to the right. */
export function torusSpots(coords: readonly number[][]): {
  spots: Spot[];
  width: number;
  height: number;
} {
  const most = [0, 1, 2].map((d) => Math.max(...coords.map((c) => c[d] ?? 0)));
  const least = [0, 1, 2].map((d) => Math.min(...coords.map((c) => c[d] ?? 0)));
  const span = most[0] - least[0] + 1;
  const spots = coords.map((c) => ({
    x: (c[0] ?? 0) - least[0] + ((c[2] ?? 0) - least[2]) * (span + 0.6),
    y: (c[1] ?? 0) - least[1],
  }));
  return {
    spots,
    width: Math.max(...spots.map((s) => s.x)) + 1,
    height: most[1] - least[1] + 1,
  };
}
