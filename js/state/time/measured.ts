/** Measured time: seconds in one step of each instruction on each device. */
import type { ViewModel } from "../../base/model.ts";
import type { MeasuredExtras } from "../../view-extras.ts";
import { type Costs, costsOf } from "../cost/costs.ts";
import { perModel } from "../members.ts";

export interface MeasuredRow {
  instruction: number;
  /** Seconds on each device, in the order of `devices`. */
  seconds: Float32Array;
  mean: number;
  /** Mean seconds without what ran inside it, such as the body of a while. */
  itself: number;
  /** Mean seconds from start to done of an asynchronous operation, at its start; else 0. */
  flight: number;
  most: number;
  /** Position of the slowest device. */
  slowest: number;
  /** Modelled seconds in one step; NaN unknown. */
  modelled: number;
}

export interface Measured extends MeasuredExtras {
  rows: MeasuredRow[];
}

export type Order = "time" | "wait" | "spread";

/** How much longer the slowest device takes than the mean, as a fraction; 0 when all are equal. */
export const spread = (row: MeasuredRow): number => (row.mean > 0 ? row.most / row.mean - 1 : 0);

/** Rows in descending order; "wait" is how long others may wait for the slowest device. */
export function ordered(rows: readonly MeasuredRow[], by: Order): MeasuredRow[] {
  const key = {
    time: (r: MeasuredRow) => r.mean,
    wait: (r: MeasuredRow) => r.most - r.mean,
    spread,
  };
  return [...rows].sort((a, b) => key[by](b) - key[by](a) || a.instruction - b.instruction);
}

/** Modelled seconds in a step; NaN without a chip or where the model has no figure. */
export function modelled(costs: Costs | null, i: number): number {
  if (!costs?.chip || !costs.unit[i]) return Number.NaN;
  return costs.seconds[i] * costs.runs[i];
}

/** The measured seconds to compare with the model: for a transfer, from start to done. */
export const comparable = (row: MeasuredRow): number => (row.flight > 0 ? row.flight : row.mean);

/** The measurement of a View, or null when there is none. */
export const measuredOf = perModel((model: ViewModel): Measured | null => {
  const extras = model.header.extras.measured;
  const instructions = model.optional<Uint32Array>("measured.rows");
  const seconds = model.optional<Float32Array>("measured.seconds");
  const itself = model.optional<Float32Array>("measured.self");
  const flight = model.optional<Float32Array>("measured.flight");
  if (!extras || !instructions || !seconds) return null;
  const width = extras.devices.length;
  const rows = Array.from(instructions, (instruction, k) => {
    const own = seconds.subarray(k * width, (k + 1) * width);
    let most = 0;
    let slowest = 0;
    let sum = 0;
    for (let d = 0; d < width; d++) {
      sum += own[d];
      if (own[d] > most) {
        most = own[d];
        slowest = d;
      }
    }
    const mean = sum / width;
    return {
      instruction,
      seconds: own,
      mean,
      itself: itself?.[k] ?? mean,
      flight: flight?.[k] ?? 0,
      most,
      slowest,
      modelled: Number.NaN,
    };
  });
  return { ...extras, rows };
});

/** Fills in the times modelled for the chosen chip; returns how many rows have one. */
export function model(measured: Measured, view: ViewModel): number {
  const costs = costsOf(view);
  let known = 0;
  for (const row of measured.rows) {
    row.modelled = modelled(costs, row.instruction);
    if (row.modelled > 0) known++;
  }
  return known;
}
