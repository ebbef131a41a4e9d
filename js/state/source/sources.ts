/** Costs summed by source line through stack frames, for the chosen chip. */
import type { ViewModel } from "../../base/model.ts";
import type { SourceExtras } from "../../view-extras.ts";
import { type Costs, costsOf } from "../cost/costs.ts";
import { perModel } from "../members.ts";
import { memoryOf } from "../memory.ts";
import { inferredFrom } from "./lines.ts";

export const FIGURES = ["measured", "seconds", "flops", "bytes", "wire", "live"] as const;
export type Figure = (typeof FIGURES)[number];
export type Figures = Record<Figure, number>;

export interface LineFigures {
  file: number;
  line: number;
  function: string;
  /** Of the line and everything it calls. */
  total: Figures;
  /** Of instructions whose own line it is: the innermost one outside libraries. */
  own: Figures;
  /** The part of `own` from instructions without a line of their own, which serve one that has it. */
  inferred: Figures;
  instructions: number[];
}

export interface SourceFile {
  file: string;
  library: boolean;
  text: string | null;
  lines: LineFigures[];
}

/** NaN is unknown and adds nothing. */
const known = (value: number) => (Number.isNaN(value) ? 0 : value);
const zero = (): Figures => ({ measured: 0, seconds: 0, flops: 0, bytes: 0, wire: 0, live: 0 });
function add(to: Figures, from: Figures): void {
  for (const f of FIGURES) to[f] += from[f];
}

export class Sources {
  unattributed: Figures = zero();
  /** Number of executed operations for which a figure is unknown; they are in no sum. */
  unknown: Figures = zero();
  private lines: LineFigures[] = [];
  private readonly library = new Map<number, boolean>();

  constructor(
    private readonly model: ViewModel,
    readonly costs: Costs,
    private readonly names: SourceExtras["files"],
  ) {
    const known = new Map(names.map((f) => [f.file, f.library]));
    for (const id of new Set(model.frame.file)) {
      this.library.set(id, known.get(model.strings.get(id)) ?? false);
    }
    this.work();
  }
  /** Whether the View has a figure at all. */
  has(figure: Figure): boolean {
    if (figure === "measured") return this.model.optional("measured.step") !== null;
    return figure !== "seconds" || this.costs.chip !== null;
  }
  /** Recomputes the sums after a change of the chip or a trip count. */
  work(): void {
    const { model, costs } = this;
    const frames = model.column<Int32Array>("source.frame");
    const flops = model.column<Float64Array>("source.flops");
    const wire = costs.wireBytes;
    const measured = model.optional<Float64Array>("measured.step");
    // FLOPs are over the executions known from the dump: trip counts set by hand multiply them.
    const runs = model.column<Float64Array>("cost.runs");
    const again = (i: number) => (runs[i] > 0 ? costs.runs[i] / runs[i] : 1);
    // Sum by frame first: thousands of instructions share a few hundred stacks.
    const guessed = inferredFrom(model);
    const byFrame = new Map<
      number,
      { figures: Figures; inferred: Figures; instructions: number[] }
    >();
    const at = (frame: number) => {
      let found = byFrame.get(frame);
      if (!found) {
        found = { figures: zero(), inferred: zero(), instructions: [] };
        byFrame.set(frame, found);
      }
      return found;
    };
    this.unknown = zero();
    for (let i = 0; i < frames.length; i++) {
      const unit = costs.unit[i] > 0;
      const seconds = unit ? costs.step[i] : 0;
      if (unit && costs.runs[i] > 0) {
        this.unknown.flops += Number(Number.isNaN(costs.flops[i]));
        this.unknown.bytes += Number(Number.isNaN(costs.bytes[i]));
        this.unknown.seconds += Number(Number.isNaN(seconds));
        this.unknown.wire += Number(Number.isNaN(wire[i]));
      }
      const bytes = unit ? costs.bytes[i] * costs.runs[i] : 0;
      const ran = known(measured?.[i] ?? 0);
      if (!(seconds > 0 || flops[i] > 0 || bytes > 0 || wire[i] > 0 || ran > 0)) continue;
      const found = at(frames[i]);
      const figures: Figures = {
        ...zero(),
        measured: ran,
        seconds: known(seconds),
        flops: flops[i] * again(i),
        bytes: known(bytes),
        wire: known(wire[i]),
      };
      add(found.figures, figures);
      if (guessed?.[i]) add(found.inferred, figures);
      found.instructions.push(i);
    }
    const memory = memoryOf(model);
    if (memory) {
      const { frame, instruction, bytes } = memory.buffer;
      for (const b of memory.liveAt(memory.extras.peakPoint)) {
        const found = at(frame ? frame[b] : frames[instruction[b]]);
        found.figures.live += bytes[b];
        if (guessed?.[instruction[b]]) found.inferred.live += bytes[b];
        found.instructions.push(instruction[b]);
      }
    }
    const lines = new Map<string, LineFigures>();
    this.unattributed = zero();
    const { frame, strings } = model;
    for (const [start, { figures, inferred, instructions }] of byFrame) {
      if (start < 0) {
        add(this.unattributed, figures);
        continue;
      }
      const seen = new Set<string>();
      let mine: LineFigures | null = null;
      let innermost: LineFigures | null = null;
      for (let f = start, depth = 0; f >= 0 && depth < 200; f = frame.parent[f], depth++) {
        const key = `${frame.file[f]}:${frame.line[f]}`;
        let line = lines.get(key);
        if (!line) {
          line = {
            file: frame.file[f],
            line: frame.line[f],
            function: strings.get(frame.function[f]),
            total: zero(),
            own: zero(),
            inferred: zero(),
            instructions: [],
          };
          lines.set(key, line);
        }
        innermost ??= line;
        if (!mine && !this.library.get(frame.file[f])) mine = line;
        if (seen.has(key)) continue;
        seen.add(key);
        add(line.total, figures);
        for (const i of new Set(instructions)) line.instructions.push(i);
      }
      const own = mine ?? innermost;
      if (own) {
        add(own.own, figures);
        add(own.inferred, inferred);
      }
    }
    this.lines = [...lines.values()];
  }
  /** The instructions' own lines and those of the callers around them, as "file:line". */
  linesOf(instructions: readonly number[]): { own: Set<string>; around: Set<string> } {
    const { model } = this;
    const { frame, strings } = model;
    const frames = model.column<Int32Array>("source.frame");
    const own = new Set<string>();
    const around = new Set<string>();
    for (const start of new Set(instructions.map((i) => frames[i]))) {
      let mine = "";
      let innermost = "";
      for (let f = start, depth = 0; f >= 0 && depth < 200; f = frame.parent[f], depth++) {
        const key = `${strings.get(frame.file[f])}:${frame.line[f]}`;
        innermost ||= key;
        if (!mine && !this.library.get(frame.file[f])) mine = key;
        else around.add(key);
      }
      if (mine || innermost) own.add(mine || innermost);
    }
    for (const key of own) around.delete(key);
    return { own, around };
  }
  knows(file: string): boolean {
    return this.names.some((f) => f.file === file);
  }
  isLibrary(file: string): boolean {
    return this.names.some((f) => f.file === file && f.library);
  }
  /** Files with their lines: the user's own, and those of libraries if `libraries`. */
  files(libraries: boolean): SourceFile[] {
    const out = new Map<number, SourceFile>();
    for (const line of [...this.lines].sort((a, b) => a.line - b.line)) {
      if (this.library.get(line.file) && !libraries) continue;
      let file = out.get(line.file);
      if (!file) {
        const name = this.model.strings.get(line.file);
        const known = this.names.find((f) => f.file === name);
        file = {
          file: name,
          library: this.library.get(line.file) ?? false,
          text: known?.text ?? null,
          lines: [],
        };
        out.set(line.file, file);
      }
      file.lines.push(line);
    }
    const weight = (f: SourceFile) => f.lines.reduce((sum, l) => sum + l.own.flops, 0);
    return [...out.values()].sort(
      (a, b) => Number(a.library) - Number(b.library) || weight(b) - weight(a),
    );
  }
}

/** The sources of a View, or null when it has no source lines or no costs. */
export const sourcesOf = perModel((model) => {
  const costs = costsOf(model);
  const { source } = model.header.extras;
  return costs && source && model.optional("source.frame")
    ? new Sources(model, costs, source.files)
    : null;
});
