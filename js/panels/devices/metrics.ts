/** What devices can be coloured by: amounts per device, each with its wording and a note. */
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { costsOf } from "../../state/cost/costs.ts";
import type { Devices, Traffic } from "../../state/devices/devices.ts";
import { memoryOf } from "../../state/memory.ts";
import { extent } from "../parts/heat.ts";

export interface Metric {
  id: string;
  label: string;
  values: ArrayLike<number>; // one per device; NaN unknown
  unit: "B" | "FLOP";
  /** The wording in a device's line: "sends 3 MiB". */
  words(text: string): string;
  /** Shown below the map. */
  note?: string;
}

const SAME = "One program runs on every device: the figure is the same on all.";

export function deviceMetrics(model: ViewModel, found: Devices): Metric[] {
  const all = (value: number) => new Float64Array(found.count).fill(value);
  const out: Metric[] = [
    {
      id: "parameter",
      label: "parameter bytes",
      values: found.bytes.parameter,
      unit: "B",
      words: (t) => `${t} of parameters`,
    },
    {
      id: "output",
      label: "output bytes",
      values: found.bytes.output,
      unit: "B",
      words: (t) => `${t} of outputs`,
    },
  ];
  const memory = memoryOf(model)?.extras;
  if (memory) {
    out.push({
      id: "peak",
      label: "live bytes at peak",
      values: all(memory.peakBytes),
      unit: "B",
      words: (t) => `${t} live at peak`,
      note: SAME,
    });
  }
  const costs = costsOf(model);
  if (costs) {
    out.push({
      id: "flops",
      label: "FLOPs",
      values: all(costs.totals.flops),
      unit: "FLOP",
      words: (t) => t,
      note: SAME,
    });
  }
  if (found.traffic) {
    out.push(
      {
        id: "sent",
        label: "bytes sent",
        values: found.bytes.sent,
        unit: "B",
        words: (t) => `sends ${t}`,
      },
      {
        id: "received",
        label: "bytes received",
        values: received(found.traffic, found.count),
        unit: "B",
        words: (t) => `receives ${t}`,
      },
    );
  }
  return out;
}

/** Bytes that each device receives: the column sums of the traffic matrix. */
export function received(traffic: Traffic, devices: number): Float64Array {
  const out = new Float64Array(devices);
  traffic.bytes.forEach((b, k) => {
    out[traffic.target[k]] += b;
  });
  return out;
}

/** Largest over mean of the known values, 1 if even; NaN if there are none. */
export function imbalance(values: ArrayLike<number>): number {
  let sum = 0;
  let n = 0;
  for (let k = 0; k < values.length; k++) {
    if (!Number.isFinite(values[k])) continue;
    sum += values[k];
    n++;
  }
  return n && sum > 0 ? (extent(values)[1] * n) / sum : Number.NaN;
}

export const amount = (m: Metric, device: number): string =>
  Number.isFinite(m.values[device])
    ? m.unit === "B"
      ? format.bytes(m.values[device])
      : format.quantity(m.values[device], m.unit)
    : "unknown";

/** "Imbalance 1.25: the most over the mean.", or that all are equal, or the metric's note. */
export function balanceText(m: Metric): string {
  const ratio = imbalance(m.values);
  if (Number.isNaN(ratio)) return m.note ?? "";
  const said = ratio < 1.0005 ? "Even: the same on all devices." : "";
  return m.note ?? (said || `Imbalance ${ratio.toFixed(2)}: the most over the mean.`);
}
