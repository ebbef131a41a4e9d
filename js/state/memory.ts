/** Buffers of the View and what is live at a program point. */
import type { ViewModel } from "../base/model.ts";
import type { MemoryExtras } from "../view-extras.ts";
import { perModel } from "./members.ts";

/** How a list of live values can be grouped. */
export type Grouping = "category" | "scope" | "line";

export interface Line {
  file: string;
  line: number;
}

export interface Group {
  label: string;
  line: Line | null;
  bytes: number;
  /** Largest first. */
  buffers: number[];
}

export class Memory {
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
    frame: Int32Array | null;
    scope: Uint32Array | null;
    name: Uint32Array | null;
    padding: Float64Array | null;
    allocation: Int32Array | null;
    offset: Float64Array | null;
  };
  /** Points at which a buffer's memory is free between its values: [first, last, …]. */
  private readonly gaps = new Map<number, number[]>();
  private readonly lines = new Map<number, Line | null>();
  private readonly libraries: Set<string>;
  constructor(
    private readonly model: ViewModel,
    readonly extras: MemoryExtras,
  ) {
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
      frame: model.optional("buffer.frame"),
      scope: model.optional("buffer.scope"),
      name: model.optional("buffer.name"),
      padding: model.optional("buffer.padding"),
      allocation: model.optional("buffer.allocation"),
      offset: model.optional("buffer.offset"),
    };
    const gap = model.optional<Uint32Array>("gap.buffer");
    if (gap) {
      const first = model.column<Uint32Array>("gap.start");
      const last = model.column<Uint32Array>("gap.end");
      gap.forEach((b, k) => {
        const found = this.gaps.get(b);
        if (found) found.push(first[k], last[k]);
        else this.gaps.set(b, [first[k], last[k]]);
      });
    }
    const { source } = model.header.extras;
    this.libraries = new Set(source?.files.filter((f) => f.library).map((f) => f.file));
  }
  name(b: number): string {
    const { name, instruction } = this.buffer;
    return name ? this.model.strings.get(name[b]) : this.model.name(instruction[b]);
  }
  /** Whether a buffer holds main memory of its own at a point; arguments and outputs always do. */
  holds(b: number, point: number): boolean {
    const { kind, start, freed, home, space } = this.buffer;
    if (home[b] >= 0 || space[b] !== 0) return false;
    if (kind[b] < 2) return true;
    if (start[b] > point || freed[b] < point) return false;
    const gaps = this.gaps.get(b) ?? [];
    for (let k = 0; k < gaps.length; k += 2) {
      if (gaps[k] <= point && gaps[k + 1] >= point) return false;
    }
    return true;
  }
  /** The source line of a buffer, see `lineOf`; null for arguments. */
  line(b: number): Line | null {
    const at = this.buffer.frame?.[b] ?? -1;
    let found = this.lines.get(at);
    if (found === undefined) {
      found = this.lineOf(at);
      this.lines.set(at, found);
    }
    return found;
  }
  /** The innermost line outside libraries of a frame's stack, else its own; null for -1. */
  lineOf(innermost: number): Line | null {
    const { frame, strings } = this.model;
    const at = (f: number) => ({ file: strings.get(frame.file[f]), line: frame.line[f] });
    for (let f = innermost, depth = 0; f >= 0 && depth < 200; f = frame.parent[f], depth++) {
      if (!this.libraries.has(strings.get(frame.file[f]))) return at(f);
    }
    return innermost < 0 ? null : at(innermost);
  }
  /** Buffers that hold memory at a point, by purpose, scope or line, largest group first. */
  groupsAt(point: number, by: Grouping): Group[] {
    const { bytes, category, kind, scope } = this.buffer;
    const out = new Map<string, Group>();
    for (const b of this.liveAt(point)) {
      const line = by === "line" ? this.line(b) : null;
      const label =
        by === "category"
          ? this.extras.categories[category[b]]
          : kind[b] === 0
            ? "arguments"
            : by === "line"
              ? line
                ? `${line.file}:${line.line}`
                : "no line known"
              : this.model.strings.get(scope?.[b] ?? 0) || "outside any scope";
      const found = out.get(label);
      if (found) {
        found.bytes += bytes[b];
        found.buffers.push(b);
      } else out.set(label, { label, line, bytes: bytes[b], buffers: [b] });
    }
    return [...out.values()].sort((a, b) => b.bytes - a.bytes);
  }
  /** Buffers that hold memory at a point, largest first. */
  liveAt(point: number): number[] {
    const { count, bytes } = this.buffer;
    const out: number[] = [];
    for (let b = 0; b < count; b++) if (this.holds(b, point)) out.push(b);
    return out.sort((x, y) => bytes[y] - bytes[x] || x - y);
  }
}

/** The memory of a View, or null when it has none. */
export const memoryOf = perModel((model) => {
  const { memory } = model.header.extras;
  return memory && model.optional("memory.live") ? new Memory(model, memory) : null;
});
