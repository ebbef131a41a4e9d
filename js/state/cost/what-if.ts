/**
 * Modelled time after an edit: another chip, or other trip counts. The only place where TypeScript
 * computes what Python does; comments give the names of the Python functions
 * (analysis/cost/roofline.py and cost_runs.py explain them, with sources), and a test compares both
 * for every chip. Before an edit the View's own cost.seconds and cost.bound are shown.
 */
import type { Chip, CostExtras, Totals } from "../../view-extras.ts";

export const BOUNDS = ["", "compute", "vector", "memory", "collective", "unknown", "copy"] as const;
export const [, COMPUTE, VECTOR, MEMORY, COLLECTIVE, UNKNOWN, COPY] = [0, 1, 2, 3, 4, 5, 6];

type Levels = Record<
  "switchSteps" | "switchBytes" | "torusSteps" | "torusBytes" | "farSteps" | "farBytes",
  ArrayLike<number>
>;
export type Transfers = Levels & Record<"start" | "done" | "far" | "bytes", ArrayLike<number>>;

/** The View's cost.* columns, and the position of instructions. */
export interface CostColumns {
  unit: ArrayLike<number>;
  flops: ArrayLike<number>;
  matmulFlops: ArrayLike<number>;
  transcendentals: ArrayLike<number>;
  bytes: ArrayLike<number>;
  mainBytes: ArrayLike<number>;
  /** Bytes of copies from and to host memory; null where there are none. */
  fromHost: ArrayLike<number> | null;
  toHost: ArrayLike<number> | null;
  dtype: ArrayLike<number>;
  /** FLOPs with which products occupy a chip's matrix unit, where more than matmulFlops. */
  filled: (side: number | null | undefined) => ArrayLike<number>;
  loop: ArrayLike<number> | null;
  condition: ArrayLike<number> | null;
  transfer: Transfers;
  computation: ArrayLike<number>; // of an instruction
  first: ArrayLike<number>; // of a computation
  size: ArrayLike<number>;
}

export interface Modelled {
  /** Seconds of one execution; NaN unknown, 0 if it is not a unit. */
  seconds: Float64Array;
  bound: Uint8Array;
  /** What each adds to the step over all executions; sums to the total (`step_seconds`). */
  step: Float64Array;
  /** Per transfer: seconds on the wire over all executions, and the seconds waited for it. */
  wire: Float64Array;
  waited: Float64Array;
  totals: Totals;
}

const known = (value: number) => (Number.isNaN(value) ? 0 : value);

/** Executions if loops of unknown trip count run `trips` times each (`count_runs`). */
export function countRuns(
  columns: Pick<CostColumns, "loop" | "condition">,
  loops: CostExtras["unknownLoops"],
  runs: Float64Array,
  trips: readonly number[],
): Float64Array {
  const { loop, condition } = columns;
  if (!loop || trips.every((n) => n === 1)) return runs;
  const around = loops.map(({ parent }) => {
    let product = 1;
    for (let r = parent, steps = 0; r >= 0 && steps < 64; steps++) {
      product *= trips[r];
      r = loops[r].parent;
    }
    return product;
  });
  // A condition runs once more than its body.
  const once = (row: number, i: number) => (condition?.[i] && trips[row] > 1 ? 1 : 0);
  return runs.map((n, i) => {
    const row = loop[i];
    return row >= 0 ? n * around[row] * (trips[row] + once(row, i)) : n;
  });
}

/** Seconds of one execution; NaN when the chip has no interconnect (`transfer_time`). */
export function transferTime(chip: Chip, of: Levels, at: number): number {
  const near = chip.links[0];
  const far = chip.links[chip.links.length - 1];
  if (!near || !far) return Number.NaN;
  const torus = near.kind === "torus";
  const steps = torus ? of.torusSteps[at] : of.switchSteps[at];
  const sent = torus ? of.torusBytes[at] : of.switchBytes[at];
  return (
    steps * near.latency +
    of.farSteps[at] * far.latency +
    Math.max(sent / near.bytesPerSecond, of.farBytes[at] / far.bytesPerSecond)
  );
}

/** Modelled seconds of every unit (`model`); without a chip, only FLOPs and bytes. */
export function model(
  columns: CostColumns,
  reaches: number,
  runs: ArrayLike<number>,
  chip: Chip | null,
): Modelled {
  const { unit, flops, matmulFlops, transcendentals, bytes, mainBytes, dtype } = columns;
  const n = unit.length;
  const seconds = new Float64Array(n);
  const bound = new Uint8Array(n);
  const step = new Float64Array(n);
  const wire = new Float64Array(columns.transfer.start.length);
  const waited = new Float64Array(wire.length);
  const totals: Totals = {
    flops: 0,
    bytes: 0,
    compute: 0,
    memory: 0,
    collective: 0,
    exposed: 0,
    copies: 0,
    least: 0,
    total: 0,
    unknown: 0,
  };
  // Of a unit whose seconds are unknown: those of its resources that are known.
  const least = new Float64Array(n);
  let unknown = 0; // seconds of them, all executions
  // Seconds of main memory that copies need and that other units leave, and of the host link each way.
  let [needed, left, from, to] = [0, 0, 0, 0];
  const filled = columns.filled(chip?.side);
  const isSystolic = typeof chip?.side === "number";
  const rates = (chip?.matmul ?? []).map((r) => r ?? Number.NaN);
  for (let i = 0; i < n; i++) {
    if (!unit[i]) continue;
    totals.flops += known(flops[i] * runs[i]);
    totals.bytes += known(bytes[i] * runs[i]);
    if (!chip) continue;
    if (unit[i] === 3) {
      const memory = mainBytes[i] / chip.memoryBandwidth;
      const taken = (columns.fromHost?.[i] ?? 0) / chip.hostBandwidth;
      const given = (columns.toHost?.[i] ?? 0) / chip.hostBandwidth;
      needed += memory * runs[i];
      from += taken * runs[i];
      to += given * runs[i];
      seconds[i] = Math.max(memory, taken, given);
      bound[i] = seconds[i] > 0 ? COPY : 0;
    }
    if (unit[i] !== 1) continue;
    let products = filled[i] > 0 ? filled[i] / rates[dtype[i]] : 0;
    if (isSystolic && chip.vector && products > 0) {
      const full = matmulFlops[i] / rates[dtype[i]];
      products = Math.min(products, Math.max(full, matmulFlops[i] / chip.vector));
    }
    const others = flops[i] - matmulFlops[i] + transcendentals[i];
    const vector = chip.vector ? others / chip.vector : others * 0;
    const memory = mainBytes[i] / chip.memoryBandwidth;
    // Math.max keeps NaN: what is unknown stays unknown.
    const most = Math.max(products, vector, memory, 0);
    seconds[i] = most;
    if (Number.isNaN(most)) {
      bound[i] = UNKNOWN;
      const fastest = matmulFlops[i] / chip.peak;
      least[i] = Math.max(known(products), known(vector), known(memory), known(fastest), 0);
    }
    if (runs[i] > 0) step[i] = (least[i] || most) * runs[i];
    if (most > 0) bound[i] = most === products ? COMPUTE : most === vector ? VECTOR : MEMORY;
    if ((least[i] || most) > memory) left += ((least[i] || most) - memory) * runs[i];
    unknown += least[i] * runs[i];
    if (bound[i] === UNKNOWN) totals.unknown += runs[i] > 0 ? 1 : 0;
    else if (bound[i] === MEMORY) totals.memory += most * runs[i];
    else totals.compute += most * runs[i];
  }
  const made = { seconds, bound, step, wire, waited, totals };
  if (chip) exposed(columns, reaches, runs, chip, made, least);
  const busy = totals.compute + totals.memory + unknown + totals.exposed;
  totals.least = unknown;
  totals.copies = Math.max(0, needed - left - totals.exposed, Math.max(from, to) - busy);
  totals.total = busy + totals.copies;
  const copying = (i: number) => (unit[i] === 3 ? seconds[i] * runs[i] : 0);
  let copies = 0;
  for (let i = 0; i < n; i++) copies += copying(i);
  if (copies > 0 && totals.copies > 0) {
    for (let i = 0; i < n; i++) step[i] += (copying(i) * totals.copies) / copies;
  }
  return { seconds, bound, step, wire, waited, totals };
}

/** Time on the wire and how long the dones wait, by walking through each schedule (`_exposed`). */
function exposed(
  columns: CostColumns,
  reaches: number,
  runs: ArrayLike<number>,
  chip: Chip,
  { seconds, bound, step, wire: onWire, waited: waits, totals }: Modelled,
  least: Float64Array,
): void {
  const { transfer, unit } = columns;
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
    wire[k] = transferTime(chip, transfer, k * reaches + chip.reach);
    put(starting, transfer.start[k], k);
    put(ending, transfer.done[k], k);
    touched.add(columns.computation[transfer.start[k]]);
    totals.collective += known(wire[k]) * runs[transfer.start[k]];
  }
  const until = new Float64Array(count);
  for (const c of touched) {
    const first = columns.first[c];
    let clock = 0;
    const free = [0, 0]; // when the near and the far link are free again
    for (let i = first; i < first + columns.size[c]; i++) {
      for (const k of starting.get(i) ?? []) {
        const which = transfer.far[k];
        until[k] = Math.max(clock, free[which]) + known(wire[k]);
        free[which] = until[k];
      }
      if (unit[i] === 1) clock += known(seconds[i]) + least[i];
      const ended = ending.get(i);
      if (!ended) continue;
      let waited = 0;
      let length = 0;
      for (const k of ended) {
        const wait = Math.max(0, until[k] - clock);
        waited += wait;
        length += known(wire[k]);
        clock += wait;
      }
      totals.exposed += waited * runs[i];
      for (const k of ended) {
        waits[k] = length > 0 ? (waited * runs[i] * known(wire[k])) / length : 0;
        step[transfer.start[k]] += waits[k];
      }
    }
  }
  for (let k = 0; k < count; k++) {
    const i = transfer.start[k];
    onWire[k] = known(wire[k]) * runs[i];
    if (unit[i] !== 2) continue;
    if (Number.isNaN(wire[k]) && runs[i] > 0 && !Number.isNaN(seconds[i])) totals.unknown++;
    seconds[i] = wire[k];
    bound[i] = COLLECTIVE;
  }
}
