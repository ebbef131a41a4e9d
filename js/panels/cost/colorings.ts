/** Colourings by cost; modelled time follows the chip chosen in the Cost panel. */
import type { ViewModel } from "../../base/model.ts";
import { costsOf } from "../../state/cost/costs.ts";
import { perModel } from "../../state/members.ts";
import type { Coloring } from "../panel.ts";

const times = (values: Float64Array, runs: Float64Array) => {
  const out = new Float64Array(values.length); // filled by hand: map() takes five times as long
  for (let i = 0; i < out.length; i++) {
    const v = values[i];
    out[i] = v > 0 ? v * runs[i] : v === 0 ? 0 : Number.NaN;
  }
  return out;
};

/** A colouring whose values add up without counting anything twice. */
const withTotals = (coloring: Coloring): Coloring => ({ ...coloring, amounts: coloring.values });

const NONE = new Float64Array(0);

const flops: Coloring = {
  id: "flops",
  label: "FLOPs",
  available: (model) => costsOf(model) !== null,
  values: (model) => {
    const costs = costsOf(model);
    return costs ? times(costs.flops, costs.runs) : NONE;
  },
  // FLOPs inside a fusion are already counted for the fusion.
  amounts: (model) => {
    const costs = costsOf(model);
    return costs ? times(costs.flops, costs.runs).map((v, i) => (costs.unit[i] ? v : 0)) : NONE;
  },
  unit: "FLOP",
  scale: "log",
  source: "counted as XLA does, loops multiplied",
};

const accessed: Coloring = withTotals({
  id: "bytes_accessed",
  label: "Bytes accessed",
  available: (model) => costsOf(model) !== null,
  values: (model) => {
    const costs = costsOf(model);
    return costs ? times(costs.bytes, costs.runs) : NONE;
  },
  unit: "B",
  scale: "log",
  source: "fusions at their boundary, loops multiplied",
});

const seconds: Coloring = withTotals({
  id: "seconds",
  label: "Modelled time",
  available: (model) => costsOf(model) !== null,
  values: (model) => {
    const costs = costsOf(model);
    if (!costs?.chip) return new Float64Array(model.instruction.count).fill(Number.NaN);
    return costs.step;
  },
  unit: "s",
  scale: "log",
  source: "modelled; what runs beside something else counts only where it is waited for",
});

/** Bytes that each instruction's results occupy at the simulated peak. */
const atPeak = perModel((model: ViewModel) => {
  const out = new Float64Array(model.instruction.count);
  const peak = model.header.extras.memory?.peakPoint ?? 0;
  const made = model.optional<Uint32Array>("buffer.instruction");
  if (!made) return out;
  const bytes = model.column<Float64Array>("buffer.bytes");
  const start = model.column<Uint32Array>("buffer.start");
  const freed = model.column<Int32Array>("buffer.freed");
  const kind = model.column<Uint8Array>("buffer.kind");
  const home = model.column<Int32Array>("buffer.home");
  const space = model.column<Uint8Array>("buffer.space");
  for (let b = 0; b < made.length; b++) {
    const held = kind[b] < 2 || (start[b] <= peak && freed[b] >= peak);
    if (held && home[b] < 0 && space[b] === 0) out[made[b]] += bytes[b];
  }
  return out;
});

const live: Coloring = withTotals({
  id: "live_bytes",
  label: "Live bytes at peak",
  available: (model) => model.optional("buffer.bytes") !== null,
  values: atPeak,
  unit: "B",
  scale: "log",
  source: "simulated from the schedule",
});

const measured: Coloring = {
  id: "measured",
  label: "Measured time",
  available: (model) => model.optional("measured.mean") !== null,
  values: (model) => model.column<Float64Array>("measured.mean"),
  // Time of what ran inside a loop is not counted again for the loop.
  amounts: (model) => model.column<Float64Array>("measured.step"),
  unit: "s",
  scale: "log",
  source: "measured by the profiler, mean over devices",
};

export const COST_COLORINGS: readonly Coloring[] = [flops, accessed, seconds, live, measured];
