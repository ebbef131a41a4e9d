/** The module at a glance: what Details shows while nothing is selected. */

import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { costsOf } from "../../state/cost/costs.ts";
import { entryComputation, instructionsOf, materialized } from "../../state/members.ts";
import type { Summary } from "../../view-extras.ts";

import type { PanelContext } from "../panel.ts";
import { modelledStep } from "../parts/chips.ts";
import { bars, facts, instructionRow, longList, note, section } from "../parts/parts.ts";
import { biggestOutputs, bytesOf, families, highlighter } from "./members.ts";

export function overview(ctx: PanelContext): Child[] {
  const { model } = ctx;
  const { summary, warnings } = model.header;
  const real = materialized(model);
  const there: number[] = [];
  for (let i = 0; i < real.length; i++) if (real[i]) there.push(i);
  const biggest = biggestOutputs(model, there, 10);
  const entry = entryComputation(model);
  const devices = summary.partitions * summary.replicas;
  const whose =
    summary.shapes === "global"
      ? `Global shapes, before partitioning over ${format.count(devices)} devices.`
      : devices > 1
        ? `Sizes and FLOPs are per device; the program runs on ${format.count(devices)}.`
        : "";
  return [
    h("h2", { class: "title" }, "Overview"),
    whose && note(whose),
    facts([
      ["Module", h("code", null, summary.module)],
      ...analysed(model),
      [
        "Instructions",
        `${format.count(summary.instructions)} (${format.count(summary.entry_instructions)} in ENTRY)`,
      ],
      ["Computations", format.count(summary.computations)],
      [
        "Partitions",
        summary.replicas > 1
          ? `${format.count(summary.partitions)} × ${format.plural(summary.replicas, "replica")}`
          : format.count(summary.partitions),
      ],
      [
        "Parameters",
        summary.parameters === null || summary.parameter_bytes === null
          ? "unknown"
          : `${format.count(summary.parameters)}: ${format.bytes(summary.parameter_bytes)}`,
      ],
      ["Outputs", summary.output_bytes === null ? "unknown" : format.bytes(summary.output_bytes)],
      ["Order", model.header.isScheduled ? "scheduled: as it runs" : "as printed, not a schedule"],
    ]),
    fusionKinds(ctx),
    section(
      "By opcode family, in ENTRY",
      entry >= 0
        ? families(ctx, instructionsOf(model, { kind: "computation", index: entry }))
        : note("No ENTRY computation."),
    ),
    section("Opcodes", opcodes(ctx)),
    biggest.length > 0 &&
      section(
        "Biggest outputs",
        longList(biggest, (i) => instructionRow(ctx, i, bytesOf(model, i)), 10),
      ),
    warnings.length > 0 &&
      section(
        `Warnings (${warnings.length})`,
        longList(warnings, (w) => h("li", null, h("span", { class: "wrap" }, w))),
      ),
  ];
}

/** The source of the peak, in a few words; the Memory panel has the rest. */
function peakSource(summary: Summary): string {
  const source = summary.peak_source ?? "";
  return source.startsWith("XLA") ? "XLA's figure" : source;
}

/** Totals that arrive with the analyses, after the first picture. */
function analysed(model: ViewModel): [string, string][] {
  const { summary } = model.header;
  const rows: [string, string][] = [];
  const { flops, bytes_accessed: accessed, peak_live_bytes: peak } = summary;
  const costs = costsOf(model);
  const whose = summary.shapes === "global" ? " of all devices together" : "";
  if (flops !== undefined) rows.push(["FLOPs", `${format.quantity(flops, "FLOP")}${whose}`]);
  if (accessed !== undefined) rows.push(["Bytes accessed", `${format.bytes(accessed)}${whose}`]);
  if (peak !== undefined)
    rows.push(["Peak memory", `${format.bytes(peak)}${whose}, ${peakSource(summary)}`]);
  const step = modelledStep(model);
  if (costs?.chip && step) rows.push(["Modelled", `${step} on ${costs.chip.label}`]);
  return rows;
}

function fusionKinds(ctx: PanelContext): Child {
  const kinds = Object.entries(ctx.model.header.summary.fusions ?? {}).filter(([, n]) => n > 0);
  if (!kinds.length) return null;
  kinds.sort((a, b) => b[1] - a[1]);
  return section("Fusions by kind", facts(kinds.map(([kind, n]) => [kind, format.count(n)])));
}

function opcodes(ctx: PanelContext): HTMLElement {
  const { model } = ctx;
  const rows = Object.entries(model.header.summary.opcodes ?? {}).sort((a, b) => b[1] - a[1]);
  const bar = ([op, n]: [string, number]) => ({
    label: op,
    value: n,
    text: format.count(n),
    title: `Highlight every ${op} in the graph`,
    onclick: highlighter(ctx, `opcode ${op}`, (i) => model.opcode(i) === op),
  });
  const shown = bars(rows.slice(0, 10).map(bar));
  if (rows.length <= 10) return shown;
  return h(
    "div",
    null,
    shown,
    h(
      "details",
      null,
      h("summary", null, `${format.count(rows.length - 10)} more opcodes`),
      bars(rows.slice(10).map(bar)),
    ),
  );
}
