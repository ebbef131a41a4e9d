/** Colourings by phase, by collective axes and by sharding. */
import type { ViewModel } from "../../base/model.ts";
import { collectivesOf } from "../../state/devices/collectives.ts";
import { devicesOf } from "../../state/devices/devices.ts";
import { perModel } from "../../state/members.ts";
import type { Coloring } from "../panel.ts";

const phase: Coloring = {
  id: "phase",
  label: "Phase",
  available: (model) => model.optional("phase.of") !== null,
  values: (model) => {
    const of = model.optional<Uint8Array>("phase.of") ?? new Uint8Array(0);
    return Float64Array.from(of, (p) => (p ? p - 1 : Number.NaN));
  },
  categories: (model) => (model.header.extras.phases ?? []).slice(1),
  source: "from op_name",
};

interface Classes {
  labels: string[];
  values: Float64Array;
}

function classes(model: ViewModel, rows: Iterable<[instruction: number, label: string]>): Classes {
  const labels: string[] = [];
  const known = new Map<string, number>();
  const values = new Float64Array(model.instruction.count).fill(Number.NaN);
  for (const [i, label] of rows) {
    let k = known.get(label);
    if (k === undefined) {
      k = labels.length;
      known.set(label, k);
      labels.push(label);
    }
    values[i] = k;
  }
  return { labels, values };
}

const byAxes = perModel((model: ViewModel): Classes => {
  const found = collectivesOf(model);
  const rows = found ? [...found.byInstruction].map(([i, r]) => [i, r.axes] as const) : [];
  return classes(model, rows as [number, string][]);
});

const bySharding = perModel((model: ViewModel): Classes => {
  const found = devicesOf(model);
  const rows = found
    ? [...found.byInstruction].map(([i, a]) => [i, found.shardings[a.sharding].text] as const)
    : [];
  return classes(model, rows as [number, string][]);
});

const axes: Coloring = {
  id: "collectives",
  label: "Collectives by axes",
  available: (model) => collectivesOf(model) !== null,
  values: (model) => byAxes(model).values,
  categories: (model) => byAxes(model).labels,
  rest: "no collective",
  source: "from replica groups",
};

const sharding: Coloring = {
  id: "sharding",
  label: "Sharding",
  available: (model) => (devicesOf(model)?.arrays.length ?? 0) > 0,
  values: (model) => bySharding(model).values,
  categories: (model) => bySharding(model).labels,
  rest: "not annotated",
  source: "as annotated",
};

export const COLLECTIVE_COLORINGS: readonly Coloring[] = [phase, axes, sharding];
