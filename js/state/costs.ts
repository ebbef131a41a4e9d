/**
 * Modelled time on a chip that can be changed, from the linear figures of the View. The formula
 * is the one js/view.ts writes down under "cost" and Python's analysis/cost/roofline.py explains; a
 * test holds both to the same numbers. 100,000 instructions take a few milliseconds.
 */
import type { ViewModel } from "../base/model.ts";
import { perModel } from "./members.ts";

export interface Link {
  name: string;
  kind: "torus" | "switch";
  bytesPerSecond: number;
  latency: number;
  group: number;
}

export interface Chip {
  id: string;
  label: string;
  memoryBytes: number;
  memoryBandwidth: number;
  /** FLOP/s per entry of `dtypes`; null where no source says. */
  matmul: (number | null)[];
  peak: number;
  vector: number | null;
  clock: number | null;
  links: Link[];
  /** Column of the `transfer` tables that its first link's reach has. */
  reach: number;
  source: string[];
}

export interface XlaFigure {
  quantity: string;
  xla: number;
  ours: number;
  loops: number;
  customCalls: number;
  other: number;
}

interface Extras {
  dtypes: string[];
  /** Distinct reaches of the chips' first links: columns of the `transfer` tables. */
  reaches: number;
  hardware: Chip[];
  /** What Python modelled on: the chip a person chose, else the program's own. */
  chosen: string | null;
  /** The chip of the program's devices. */
  own?: string | null;
  torusIsKnown: boolean;
  unknownLoops: { instruction: number; parent: number }[];
  branchesLeftOut: number[];
  xla: XlaFigure[];
}

export const BOUNDS = ["", "compute", "vector", "memory", "collective", "unknown"] as const;
export const COMPUTE = 1;
export const VECTOR = 2;
export const MEMORY = 3;
export const COLLECTIVE = 4;
export const UNKNOWN = 5;

export interface Totals {
  flops: number;
  bytes: number;
  compute: number;
  memory: number;
  collective: number;
  exposed: number;
  total: number;
  /** Executed instructions whose time is not known. */
  unknown: number;
}

export const copyOf = (chip: Chip): Chip => ({
  ...chip,
  matmul: [...chip.matmul],
  links: chip.links.map((link) => ({ ...link })),
});

export class Costs {
  readonly extras: Extras;
  readonly flops: Float64Array;
  readonly matmulFlops: Float64Array;
  readonly transcendentals: Float64Array;
  readonly bytes: Float64Array;
  readonly mainBytes: Float64Array;
  readonly unit: Uint8Array;
  readonly dtype: Uint8Array;
  readonly cycles: Float64Array | null;
  /** Executions, with the trip counts set by hand. */
  runs: Float64Array;
  chip: Chip | null = null;
  /** Seconds of one execution; NaN unknown, 0 for what is no unit. */
  seconds: Float64Array;
  bound: Uint8Array;
  totals: Totals;
  private readonly knownRuns: Float64Array;
  private readonly loop: Int32Array | null;
  private readonly condition: Uint8Array | null;
  private readonly trips: number[];
  private readonly transfer: Record<
    | "start"
    | "done"
    | "far"
    | "bytes"
    | "switchSteps"
    | "switchBytes"
    | "torusSteps"
    | "torusBytes"
    | "farSteps"
    | "farBytes",
    ArrayLike<number>
  >;
  private readonly listeners = new Set<() => void>();

  constructor(private readonly model: ViewModel) {
    const c = (name: string) => model.column<Float64Array>(`cost.${name}`);
    this.extras = model.header.extras.cost as Extras;
    this.flops = c("flops");
    this.matmulFlops = c("matmul_flops");
    this.transcendentals = c("transcendentals");
    this.bytes = c("bytes");
    this.mainBytes = c("main_bytes");
    this.knownRuns = c("runs");
    this.unit = model.column("cost.unit");
    this.dtype = model.column("cost.dtype");
    this.cycles = model.optional("cost.cycles");
    this.loop = model.optional("cost.loop");
    this.condition = model.optional("cost.condition");
    this.trips = this.extras.unknownLoops.map(() => 1);
    const t = (name: string): ArrayLike<number> => model.optional(`transfer.${name}`) ?? [];
    this.transfer = {
      start: t("start"),
      done: t("done"),
      far: t("far"),
      bytes: t("bytes"),
      switchSteps: t("switch_steps"),
      switchBytes: t("switch_bytes"),
      torusSteps: t("torus_steps"),
      torusBytes: t("torus_bytes"),
      farSteps: t("far_steps"),
      farBytes: t("far_bytes"),
    };
    const n = model.instruction.count;
    this.runs = this.knownRuns;
    this.seconds = new Float64Array(n);
    this.bound = new Uint8Array(n);
    this.totals = {
      flops: 0,
      bytes: 0,
      compute: 0,
      memory: 0,
      collective: 0,
      exposed: 0,
      total: 0,
      unknown: 0,
    };
    this.chip = this.find(this.extras.chosen);
    this.work();
  }
  private find(id: string | null): Chip | null {
    return this.extras.hardware.find((h) => h.id === id) ?? null;
  }
  /**
   * The chip of that id as published, null for the one Python modelled on. False for an id
   * nobody knows: then that one too.
   */
  choose(id: string | null): boolean {
    const found = this.find(id);
    const chip = found ?? this.find(this.extras.chosen);
    if (chip?.id !== this.chip?.id) this.setChip(chip && copyOf(chip));
    return found !== null || id === null;
  }
  on(listener: () => void, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener), { once: true });
  }
  /** Another chip, or the same with other numbers; null models no time. */
  setChip(chip: Chip | null): void {
    this.chip = chip;
    this.changed();
  }
  /** Trip count of a row of `extras.unknownLoops`. */
  setTrips(row: number, count: number): void {
    this.trips[row] = count;
    this.changed();
  }
  tripsOf(row: number): number {
    return this.trips[row];
  }
  loopName(row: number): string {
    return this.model.name(this.extras.unknownLoops[row].instruction);
  }
  private changed(): void {
    this.work();
    for (const listener of [...this.listeners]) listener();
  }

  private work(): void {
    this.countRuns();
    this.time();
  }
  private countRuns(): void {
    const { loop, condition, trips } = this;
    if (!loop || trips.every((n) => n === 1)) {
      this.runs = this.knownRuns;
      return;
    }
    const around = this.extras.unknownLoops.map(({ parent }) => {
      let product = 1;
      for (let r = parent, steps = 0; r >= 0 && steps < 64; steps++) {
        product *= trips[r];
        r = this.extras.unknownLoops[r].parent;
      }
      return product;
    });
    const once = (row: number, i: number) => (condition?.[i] && trips[row] > 1 ? 1 : 0);
    this.runs = this.knownRuns.map((n, i) => {
      const row = loop[i];
      return row >= 0 ? n * around[row] * (trips[row] + once(row, i)) : n;
    });
  }

  private time(): void {
    const { chip, unit, runs, seconds, bound, flops, bytes } = this;
    const n = seconds.length;
    const totals: Totals = {
      flops: 0,
      bytes: 0,
      compute: 0,
      memory: 0,
      collective: 0,
      exposed: 0,
      total: 0,
      unknown: 0,
    };
    const rates = (chip?.matmul ?? []).map((r) => r ?? Number.NaN);
    seconds.fill(0);
    bound.fill(0);
    for (let i = 0; i < n; i++) {
      if (!unit[i]) continue;
      if (!Number.isNaN(flops[i])) totals.flops += flops[i] * runs[i];
      if (!Number.isNaN(bytes[i])) totals.bytes += bytes[i] * runs[i];
      if (!chip || unit[i] !== 1) continue;
      const products = this.matmulFlops[i] ? this.matmulFlops[i] / rates[this.dtype[i]] : 0;
      const others = flops[i] - this.matmulFlops[i] + this.transcendentals[i];
      const vector = chip.vector ? others / chip.vector : others * 0;
      const memory = this.mainBytes[i] / chip.memoryBandwidth;
      // Math.max keeps NaN: what is unknown stays so.
      const most = Math.max(products, vector, memory);
      seconds[i] = most;
      if (Number.isNaN(most)) bound[i] = UNKNOWN;
      else if (most > 0) bound[i] = most === products ? COMPUTE : most === vector ? VECTOR : MEMORY;
      if (runs[i] > 0) {
        if (bound[i] === UNKNOWN) totals.unknown++;
        else if (bound[i] === MEMORY) totals.memory += most * runs[i];
        else totals.compute += most * runs[i];
      }
    }
    if (chip) this.transfers(chip, totals);
    totals.total = totals.compute + totals.memory + totals.exposed;
    this.totals = totals;
  }

  /** Time on the wire, and how long the dones wait: a walk through each schedule. */
  private transfers(chip: Chip, totals: Totals): void {
    const { transfer, seconds, unit, bound, runs, model } = this;
    const count = transfer.start.length;
    const wire = new Float64Array(count);
    const starting = new Map<number, number[]>();
    const ending = new Map<number, number[]>();
    const touched = new Set<number>();
    const put = (map: Map<number, number[]>, key: number, k: number) => {
      const list = map.get(key);
      if (list) list.push(k);
      else map.set(key, [k]);
    };
    for (let k = 0; k < count; k++) {
      wire[k] = transferTime(chip, transfer, k * this.extras.reaches + chip.reach);
      put(starting, transfer.start[k], k);
      put(ending, transfer.done[k], k);
      touched.add(model.instruction.computation[transfer.start[k]]);
      totals.collective += wire[k] * runs[transfer.start[k]];
    }
    const until = new Float64Array(count);
    for (const c of touched) {
      const first = model.computation.first[c];
      let clock = 0;
      const free = [0, 0]; // the near wire and the far one
      for (let i = first; i < first + model.computation.size[c]; i++) {
        for (const k of starting.get(i) ?? []) {
          const which = transfer.far[k];
          until[k] = Math.max(clock, free[which]) + wire[k];
          free[which] = until[k];
        }
        if (unit[i] === 1 && seconds[i] > 0) clock += seconds[i];
        for (const k of ending.get(i) ?? []) {
          const wait = Math.max(0, until[k] - clock);
          totals.exposed += wait * runs[i];
          clock += wait;
        }
      }
    }
    for (let k = 0; k < count; k++) {
      const i = transfer.start[k];
      if (unit[i] !== 2) continue;
      seconds[i] = wire[k];
      bound[i] = COLLECTIVE;
    }
  }

  /** Wire bytes of each instruction over all executions. */
  get wireBytes(): Float64Array {
    const out = new Float64Array(this.seconds.length);
    const { start, bytes } = this.transfer;
    for (let k = 0; k < start.length; k++) out[start[k]] += bytes[k] * this.runs[start[k]];
    return out;
  }
  /**
   * Units that run, by seconds where a chip is chosen, else by FLOPs; unknown ones first: the
   * first `limit` of them, and how many there are. Sorting all 40,000 costs as much as modelling.
   */
  ranking(limit: number): { first: number[]; count: number } {
    const { unit, runs, flops, bytes } = this;
    const each = this.chip ? this.seconds : flops;
    const first: number[] = [];
    const keys: number[] = [];
    let count = 0;
    for (let i = 0; i < unit.length; i++) {
      if (!unit[i] || !(runs[i] > 0) || (flops[i] === 0 && !(bytes[i] > 0))) continue;
      count++;
      const value = each[i] * runs[i];
      const key = Number.isNaN(value) ? Number.POSITIVE_INFINITY : value;
      const before = (k: number) =>
        key > keys[k] || (key === keys[k] && bytes[i] > bytes[first[k]]);
      if (keys.length === limit && !before(limit - 1)) continue;
      let at = keys.length;
      while (at > 0 && before(at - 1)) at--;
      keys.splice(at, 0, key);
      first.splice(at, 0, i);
      if (keys.length > limit) {
        keys.pop();
        first.pop();
      }
    }
    return { first, count };
  }
}

type Levels = Record<
  "switchSteps" | "switchBytes" | "torusSteps" | "torusBytes" | "farSteps" | "farBytes",
  ArrayLike<number>
>;

/** Seconds of one execution: the first and the last link at once, steps of both; 0 without links. */
export function transferTime(chip: Chip, of: Levels, at: number): number {
  const near = chip.links[0];
  const far = chip.links[chip.links.length - 1];
  if (!near || !far) return 0;
  const torus = near.kind === "torus";
  const steps = torus ? of.torusSteps[at] : of.switchSteps[at];
  const sent = torus ? of.torusBytes[at] : of.switchBytes[at];
  return (
    steps * near.latency +
    of.farSteps[at] * far.latency +
    Math.max(sent / near.bytesPerSecond, of.farBytes[at] / far.bytesPerSecond)
  );
}

/** The costs of a View, or null when it has none. */
export const costsOf = perModel((model) =>
  model.optional("cost.flops") ? new Costs(model) : null,
);
