/** The cost of an operation or a group, in a few lines of Details; other panels have the rest. */
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { BOUNDS, COLLECTIVE, costsOf, UNKNOWN } from "../../state/cost/costs.ts";
import { collectivesOf, totalWire } from "../../state/devices/collectives.ts";
import { ownValues } from "../../state/own.ts";

type Row = [name: string, value: string];

export function instructionCost(model: ViewModel, i: number): Row[] {
  const rows: Row[] = [];
  const costs = costsOf(model);
  if (costs?.unit[i] && costs.runs[i] > 0) {
    const runs = costs.runs[i];
    const all = (each: number, text: (v: number) => string) =>
      runs === 1 || !Number.isFinite(each)
        ? text(each)
        : `${text(each * runs)}: ${text(each)} × ${format.count(runs)} runs`;
    rows.push(["FLOPs", all(costs.flops[i], (v) => format.quantity(v, "FLOP"))]);
    rows.push(["Bytes accessed", all(costs.bytes[i], format.bytes)]);
    if (costs.chip) {
      const bound = costs.bound[i];
      const why = bound && bound < COLLECTIVE ? `, ${BOUNDS[bound]} bound` : "";
      rows.push([
        "Modelled time",
        bound === UNKNOWN ? "unknown" : `${all(costs.seconds[i], format.seconds)}${why}`,
      ]);
      const hidden = costs.seconds[i] * runs - costs.step[i];
      if (hidden > 1e-6 * costs.seconds[i] * runs) {
        rows.push([
          "In the step",
          `${format.seconds(costs.step[i])}: the rest runs beside other work`,
        ]);
      }
    }
  }
  const measured = model.optional<Float64Array>("measured.mean")?.[i] ?? Number.NaN;
  if (measured > 0) rows.push(["Measured time", `${format.seconds(measured)}, mean over devices`]);
  for (const { label, unit, values } of ownValues(model)) {
    if (!Number.isNaN(values[i])) rows.push([label, format.quantity(values[i], unit)]);
  }
  const collective = collectivesOf(model)?.byInstruction.get(i);
  if (collective) {
    const wire = format.bytes(totalWire(collective));
    rows.push(["Collective", `${collective.kind} over ${collective.axes}, ${wire} on the wire`]);
  }
  return rows;
}

/** Sums over units: instructions inside a fusion count as part of the fusion. */
export function groupCost(model: ViewModel, members: readonly number[]): Row[] {
  const costs = costsOf(model);
  if (!costs) return [];
  let flops = 0;
  let bytes = 0;
  let seconds = 0;
  let unknown = 0;
  let units = 0;
  for (const i of members) {
    if (!costs.unit[i] || !(costs.runs[i] > 0)) continue;
    units++;
    if (Number.isNaN(costs.flops[i])) unknown++;
    else flops += costs.flops[i] * costs.runs[i];
    if (costs.bytes[i] > 0) bytes += costs.bytes[i] * costs.runs[i];
    if (costs.step[i] > 0) seconds += costs.step[i];
  }
  if (!units) return [];
  const without = unknown ? `, without ${format.plural(unknown, "unknown operation")}` : "";
  const rows: Row[] = [
    ["FLOPs", `${format.quantity(flops, "FLOP")}${without}`],
    ["Bytes accessed", format.bytes(bytes)],
  ];
  if (costs.chip) {
    rows.push(["Modelled time", `${format.seconds(seconds)} on ${costs.chip.label}`]);
  }
  return rows;
}
