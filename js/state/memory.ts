/** Buffers of the View and what is live at a program point. */
import type { ViewModel } from "../base/model.ts";
import { perModel } from "./members.ts";

export interface Donation {
  argument: string;
  parameter: number;
  bytes: number;
  outcome: string;
  output: string;
}
export interface ParameterCopy {
  instruction: number;
  argument: string;
  bytes: number;
  changes: string;
}
export interface Carry {
  index: number;
  shape: string;
  bytes: number;
  role: string;
  stored: number;
}
export interface Loop {
  instruction: number;
  trips: number | null;
  phase: string;
  bytes: number;
  carries: Carry[];
}
export interface Residual {
  instruction: number;
  writer: number;
  readers: number[];
  shape: string;
  slice: string;
  bytes: number;
}
export interface Remat {
  instruction: number;
  bytes: number;
  flops: number;
  bytesAccessed: number;
  wireBytes: number;
  instructions: number[];
  reason: string;
}

interface Extras {
  kinds: string[];
  categories: string[];
  peakBytes: number;
  peakSource: string;
  simulatedBytes: number;
  assignedBytes: number | null;
  xlaPeakBytes: number | null;
  tableBytes: number;
  peakPoint: number;
  platform: string;
  spaces: { space: number; peak: number }[];
  donations: Donation[];
  copies: ParameterCopy[];
  loops: Loop[];
  residuals: Residual[];
  remat: Remat[];
}

export class Memory {
  readonly extras: Extras;
  readonly schedule: Uint32Array;
  readonly live: Float64Array;
  readonly buffer: {
    count: number;
    instruction: Uint32Array;
    leaf: Uint32Array;
    bytes: Float64Array;
    space: Uint8Array;
    kind: Uint8Array;
    category: Uint8Array;
    start: Uint32Array;
    end: Uint32Array;
    freed: Int32Array;
    home: Int32Array;
    name: Uint32Array | null;
    padding: Float64Array | null;
    allocation: Int32Array | null;
    offset: Float64Array | null;
  };
  constructor(private readonly model: ViewModel) {
    this.extras = model.header.extras.memory as Extras;
    this.schedule = model.column("memory.schedule");
    this.live = model.column("memory.live");
    const instruction = model.column<Uint32Array>("buffer.instruction");
    this.buffer = {
      count: instruction.length,
      instruction,
      leaf: model.column("buffer.leaf"),
      bytes: model.column("buffer.bytes"),
      space: model.column("buffer.space"),
      kind: model.column("buffer.kind"),
      category: model.column("buffer.category"),
      start: model.column("buffer.start"),
      end: model.column("buffer.end"),
      freed: model.column("buffer.freed"),
      home: model.column("buffer.home"),
      name: model.optional("buffer.name"),
      padding: model.optional("buffer.padding"),
      allocation: model.optional("buffer.allocation"),
      offset: model.optional("buffer.offset"),
    };
  }
  name(b: number): string {
    const { name, instruction } = this.buffer;
    return name ? this.model.strings.get(name[b]) : this.model.name(instruction[b]);
  }
  /** Whether a buffer holds memory of its own at a point; arguments and outputs always do. */
  holds(b: number, point: number): boolean {
    const { kind, start, freed, home } = this.buffer;
    if (home[b] >= 0) return false;
    return kind[b] < 2 || (start[b] <= point && freed[b] >= point);
  }
  /** Buffers that hold memory at a point, largest first. */
  liveAt(point: number): number[] {
    const { count, bytes } = this.buffer;
    const out: number[] = [];
    for (let b = 0; b < count; b++) if (this.holds(b, point)) out.push(b);
    return out.sort((x, y) => bytes[y] - bytes[x] || x - y);
  }
  /** Bytes by category at a point, largest first. */
  categoriesAt(point: number): { category: number; bytes: number }[] {
    const { count, bytes, category } = this.buffer;
    const sums = new Float64Array(this.extras.categories.length);
    for (let b = 0; b < count; b++) if (this.holds(b, point)) sums[category[b]] += bytes[b];
    return [...sums.keys()]
      .filter((k) => sums[k] > 0)
      .map((k) => ({ category: k, bytes: sums[k] }))
      .sort((a, b) => b.bytes - a.bytes);
  }
}

/** The memory of a View, or null when it has none. */
export const memoryOf = perModel((model) =>
  model.optional("memory.live") ? new Memory(model) : null,
);
