/** Cost: FLOPs, bytes and modelled time, in total, per operation, and on the roofline. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { type Costs, costsOf } from "../../state/cost/costs.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { chapters } from "../parts/chapters.ts";
import { bars, facts, note, plotWidth, section } from "../parts/parts.ts";
import { chipForm } from "./chip.ts";
import { rooflinePlot } from "./roofline.ts";
import { slowest } from "./table.ts";
import { treemap } from "./treemap.ts";

export const cost: Panel = {
  id: "cost",
  title: "Cost",
  width: 0.42,
  available: (model) => costsOf(model) !== null,
  render(element, ctx) {
    const costs = costsOf(ctx.model);
    if (!costs) return;
    const body = h("div");
    element.append(h("div", { class: "cost" }, chipForm(ctx, costs), body));
    // Aborted when the figures change, so that the old plot's listeners go with it.
    let inner = new AbortController();
    ctx.signal.addEventListener("abort", () => inner.abort(), { once: true });
    const fill = () => {
      const width = plotWidth(element);
      body.replaceChildren(...contents({ ...ctx, signal: inner.signal }, costs, width));
    };
    const show = () => {
      inner.abort();
      inner = new AbortController();
      fill();
      ctx.store.repaint();
    };
    costs.on(show, ctx.signal);
    fill();
  },
};

function contents(ctx: PanelContext, costs: Costs, width: number): HTMLElement[] {
  return [
    totals(ctx, costs),
    ...split(ctx, costs),
    chapters(ctx, "cost", [
      {
        title: "Slowest",
        about: "The operations that take longest, with their lines",
        build: () => slowest(ctx, costs),
      },
      {
        title: "By scope",
        about: "Which layers take the time",
        build: () => byScope(ctx, costs, width),
      },
      ...(costs.chip
        ? [
            {
              title: "Roofline",
              about: "Compute against memory",
              build: () => roofline(ctx, costs, width),
            },
          ]
        : []),
      ...(costs.extras.xla.length
        ? [{ title: "XLA's figures", about: "XLA's own cost analysis", build: () => [xla(costs)] }]
        : []),
    ]),
  ];
}

/** Unit and name of each figure that may depend on branches of conditionals. */
const FIGURES_OF_BRANCHES: Record<string, [unit: string, said: string]> = {
  flops: ["FLOP", "FLOPs"],
  bytes_accessed: ["B", "bytes accessed"],
  seconds: ["s", "modelled"],
};

/** The modelled step; unknown if the time of everything that takes time is. */
const modelled = (t: Costs["totals"]): string =>
  t.unknown && !t.total ? "unknown" : `${t.unknown ? "≥ " : ""}${format.seconds(t.total)}`;

function totals(ctx: PanelContext, costs: Costs): HTMLElement {
  const t = costs.totals;
  const isGlobal = ctx.model.header.summary.shapes === "global";
  const whose = isGlobal ? "of the whole program, before partitioning" : "per device";
  const rows: [string, string][] = [
    ["FLOPs", `${format.quantity(t.flops, "FLOP")} ${whose}`],
    ["Bytes accessed", `${format.bytes(t.bytes)} ${whose}`],
    ["Intensity", `${format.quantity(t.flops / t.bytes)} FLOP/B`],
  ];
  if (costs.chip && !isGlobal) rows.push(["Modelled time", modelled(t)]);
  const unknown = t.unknown
    ? note(
        `The time of ${format.plural(t.unknown, "operation")} is unknown, such as of custom calls: only what their bytes take is counted.`,
      )
    : null;
  const lower = costs.extras.unknownLoops.some((_, row) => costs.tripsOf(row) === 1)
    ? note("A loop's trip count is unknown: it counts once.")
    : null;
  const out = h("div", { class: "totals" }, facts(rows));
  const ranges = Object.entries(costs.ranges);
  if (ranges.length) {
    const each = ranges.map(([name, [least, most]]) => {
      const [unit, said] = FIGURES_OF_BRANCHES[name] ?? ["", name];
      return `${said} ${format.quantity(least, unit)} – ${format.quantity(most, unit)}`;
    });
    out.append(note(`By which branches of conditionals run: ${each.join(", ")}.`));
  }
  if (unknown) out.append(unknown);
  if (lower) out.append(lower);
  if (costs.isEdited) {
    out.append(
      note(
        "With figures or trip counts that you edited: the headline, Findings and Timeline do not follow them.",
      ),
    );
  }
  return out;
}

/** Compute, memory, and exposed and hidden communication. */
function split(ctx: PanelContext, costs: Costs): HTMLElement[] {
  if (ctx.model.header.summary.shapes === "global") {
    return [
      note(
        "No single chip runs this: it is the program for all devices, before partitioning. Its step time is that of the optimised program.",
      ),
    ];
  }
  if (!costs.chip) return [note("Choose a chip to see modelled time.")];
  const t = costs.totals;
  const share = (v: number) =>
    t.total > 0 ? `${format.seconds(v)} · ${Math.round((100 * v) / t.total)} %` : modelled(t);
  const hidden = Math.max(0, t.collective - t.exposed);
  const rows = [
    { label: "compute", value: t.compute, text: share(t.compute), color: "var(--compute)" },
    { label: "memory", value: t.memory, text: share(t.memory), color: "var(--memory)" },
    {
      label: "exposed communication",
      value: t.exposed,
      text: share(t.exposed),
      color: "var(--wire)",
    },
  ];
  if (t.copies > 0) {
    rows.push({
      label: "copies to VMEM and the host",
      value: t.copies,
      text: share(t.copies),
      color: "var(--memory)",
    });
  }
  if (hidden > 1e-6 * t.collective) {
    rows.push({
      label: "hidden communication",
      value: hidden,
      text: format.seconds(hidden),
      color: "var(--line)",
    });
  }
  return [
    section(
      "Where modelled time goes",
      bars(rows),
      note(
        `At peak rates, one operation after another, copies beside them${costs.extras.torusIsKnown ? "" : `; the devices' places on the torus are unknown, ${costs.extras.assumedSlice} is assumed`}: a lower bound.`,
      ),
    ),
  ];
}

function byScope(ctx: PanelContext, costs: Costs, width: number): HTMLElement[] {
  const map = treemap(ctx, costs, width);
  return map ? [section("By scope", map)] : [note("The program names no scopes to tell apart.")];
}

function roofline(ctx: PanelContext, costs: Costs, width: number): HTMLElement[] {
  if (!costs.chip) return [];
  return [section("Roofline", rooflinePlot(ctx, costs, costs.chip, width))];
}

/** XLA's own cost analysis beside ours, with the difference explained. */
function xla(costs: Costs): HTMLElement {
  const rows = costs.extras.xla;
  if (!rows.length) return h("div");
  const units: Record<string, string> = { flops: "FLOP", "bytes accessed": "B" };
  const words = (x: (typeof rows)[number]) => {
    const parts: string[] = [];
    const text = (v: number) => format.quantity(v, units[x.quantity]);
    if (x.loops) parts.push(`${text(x.loops)} for loops, which XLA counts once`);
    if (x.customCalls > 1) parts.push(`${text(x.customCalls)} for custom calls`);
    if (x.other !== null && Math.abs(x.other) > 1e-6 * Math.max(1, Math.abs(x.xla))) {
      parts.push(`${text(x.other)} otherwise`);
    }
    return parts.length ? `ours adds ${parts.join(", ")}` : "the same as ours";
  };
  return section(
    "XLA's own figures",
    facts(
      rows.map((x) => [
        x.quantity,
        h("span", null, `${format.quantity(x.xla, units[x.quantity])}: ${words(x)}`),
      ]),
    ),
  );
}
