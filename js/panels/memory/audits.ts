/** Lists of the Memory panel: what loops store, recomputing, donation, copies of parameters, loop carries. */
import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { costsOf } from "../../state/cost/costs.ts";
import type { Memory } from "../../state/memory.ts";
import { frameOf } from "../../state/source/lines.ts";
import type { PanelContext } from "../panel.ts";
import { facts, instructionRow, longList, note, section, selectionLink } from "../parts/parts.ts";
import { sourceLink } from "./live.ts";

/** A row of a list: its text, with bytes on the right. */
function entry(bytes: number, ...words: Child[]): HTMLElement {
  return h(
    "li",
    { class: "figured" },
    h("span", null, ...words),
    h("span", { class: "figure" }, format.bytes(bytes)),
  );
}

type Link = (i: number, text?: string) => HTMLElement;

const linker =
  (ctx: PanelContext): Link =>
  (i, text) =>
    i < 0
      ? h("span", null, text ?? "unknown")
      : selectionLink(ctx, { kind: "instruction", index: i }, text);

/** What loops store for later ones, and what recomputing values would cost. */
export function recomputing(ctx: PanelContext, memory: Memory): HTMLElement[] {
  const x = memory.extras;
  const out: HTMLElement[] = [...again(ctx)];
  const link = linker(ctx);
  if (x.residuals.length) {
    const whole = totalOf(memory, "residuals", "", x.residuals);
    out.push(
      section(
        "Stored between loops",
        note(
          `${format.bytes(whole.bytes)} that one loop stacks and a later one reads: what is actually saved.`,
        ),
        longList(x.residuals, (r) => {
          const known = r.instruction >= 0;
          const line = known ? memory.lineOf(frameOf(ctx.model, r.instruction)) : null;
          const name = known ? ctx.model.opName(r.instruction).split("/").slice(-2).join("/") : "";
          return entry(
            r.bytes,
            link(r.instruction, name || undefined),
            line && sourceLink(ctx, line),
            h("span", { class: "dim mono" }, `${r.shape}, ${r.slice} a step`),
          );
        }),
        cut(whole, x.residuals.length),
      ),
    );
  }
  if (x.remat.length) out.push(recompute(ctx, memory, link));
  if (!out.length)
    out.push(note("No loop stores anything for a later one, and nothing is recomputed."));
  return out;
}

/** Which arguments donate their memory to outputs, which could, and why others cannot. */
export function donation(ctx: PanelContext, memory: Memory): HTMLElement[] {
  const x = memory.extras;
  const out: HTMLElement[] = [];
  const link = linker(ctx);
  if (!x.donations.length) {
    out.push(note("No argument is donated, and no output could reuse the memory of one."));
  }
  if (x.donations.length) {
    const outcomes = [
      ...new Set([
        ...x.donations.map((d) => d.outcome),
        ...(x.totals ?? []).filter((t) => t.audit === "donations").map((t) => t.outcome),
      ]),
    ]
      .sort()
      .reverse();
    out.push(
      section(
        "Donation",
        ...outcomes.map((outcome) => {
          const rows = x.donations.filter((d) => d.outcome === outcome);
          const whole = totalOf(memory, "donations", outcome, rows);
          return h(
            "details",
            { open: outcome !== "aliased" },
            h(
              "summary",
              null,
              `${outcome}: ${format.count(whole.count)}, ${format.bytes(whole.bytes)}`,
            ),
            longList(rows, (d) =>
              entry(
                d.bytes,
                h("span", { class: "mono" }, d.argument),
                d.output ? h("span", { class: "dim" }, `output ${d.output}`) : null,
                d.why ? h("span", { class: "dim" }, d.why) : null,
              ),
            ),
            cut(whole, rows.length),
          );
        }),
      ),
    );
  }
  if (x.copies.length) {
    out.push(
      section(
        "Copies of parameters",
        longList(x.copies, (c) =>
          entry(
            c.bytes,
            link(c.instruction),
            h(
              "span",
              { class: "dim" },
              `${c.argument}, ${c.changes ? `another ${c.changes}` : "unchanged: a plain copy"}`,
            ),
          ),
        ),
        cut(totalOf(memory, "copies", "", x.copies), x.copies.length),
      ),
    );
  }
  return out;
}

/** What each loop carries, largest first. */
export function carries(ctx: PanelContext, memory: Memory): HTMLElement[] {
  const out: HTMLElement[] = [];
  const link = linker(ctx);
  for (const loop of memory.extras.loops) {
    out.push(
      h(
        "details",
        { class: "section" },
        h(
          "summary",
          null,
          `Loop %${ctx.model.name(loop.instruction)} carries ${format.bytes(loop.bytes)}` +
            `${loop.trips === null ? ", trips unknown" : ` over ${format.plural(loop.trips, "trip")}`}` +
            `${loop.phase ? `, ${loop.phase}` : ""}`,
        ),
        longList(loop.carries, (c) =>
          entry(
            c.bytes,
            h("span", { class: "mono" }, `${c.index}: ${c.shape}`),
            h("span", { class: "tag" }, c.role),
            c.stored >= 0 ? link(c.stored) : null,
          ),
        ),
        cut({ count: loop.count ?? loop.carries.length }, loop.carries.length),
      ),
    );
  }
  const { loops } = memory.extras;
  const missing = cut(totalOf(memory, "loops", "", loops), loops.length);
  return missing ? [...out, missing] : out;
}

/** Rows and bytes of an audit, also of rows that are not in this page. */
function totalOf(
  memory: Memory,
  audit: string,
  outcome: string,
  rows: readonly { bytes: number }[],
): { count: number; bytes: number } {
  const found = memory.extras.totals?.find((t) => t.audit === audit && t.outcome === outcome);
  return found ?? { count: rows.length, bytes: rows.reduce((sum, r) => sum + r.bytes, 0) };
}

/** Says how many rows were left out of the page; null if none were. */
const cut = (whole: { count: number }, listed: number): HTMLElement | null =>
  whole.count > listed
    ? note(`and ${format.count(whole.count - listed)} more, which are in the totals`)
    : null;

/** What is recomputed for the backward pass, and what that costs. */
function again(ctx: PanelContext): HTMLElement[] {
  const { model } = ctx;
  const phase = model.optional<Uint8Array>("phase.of");
  const costs = costsOf(model);
  const which = (model.header.extras.phases ?? []).indexOf("rematerialised");
  if (!phase || !costs || which < 0) return [];
  const sum = (values: ArrayLike<number>, of: (i: number) => boolean) => {
    let total = 0;
    for (let i = 0; i < phase.length; i++) if (of(i) && values[i] > 0) total += values[i];
    return total;
  };
  const inside = model.optional<Float64Array>("source.flops");
  const rematted = (i: number) => phase[i] === which;
  if (!phase.some((p) => p === which)) return [];
  const time = sum(costs.step, rematted);
  const rows: [string, string][] = [];
  if (inside) {
    const redone = sum(inside, rematted);
    const all = sum(inside, () => true);
    const share = all > 0 ? ` (${((100 * redone) / all).toFixed(1)} % of all)` : "";
    rows.push(["FLOPs repeated", `${format.quantity(redone, "FLOP")}${share}`]);
  }
  if (costs.chip) rows.push(["Modelled time", format.seconds(time)]);
  const heavy = Array.from(phase.keys())
    .filter((i) => rematted(i) && costs.unit[i] > 0 && costs.runs[i] > 0)
    .sort((a, b) => costs.step[b] - costs.step[a] || costs.flops[b] - costs.flops[a]);
  return [
    section(
      "Rematerialised",
      facts(rows),
      longList(
        heavy,
        (i) =>
          instructionRow(
            ctx,
            i,
            costs.chip ? h("span", { class: "figure" }, format.seconds(costs.step[i])) : null,
          ),
        6,
      ),
    ),
  ];
}

function recompute(
  ctx: PanelContext,
  memory: Memory,
  link: (i: number, text?: string) => HTMLElement,
): HTMLElement {
  const costs = costsOf(ctx.model);
  const rows = memory.extras.remat;
  const can = rows.filter((r) => !r.reason);
  const cannot = rows.filter((r) => r.reason);
  const lost = cannot.reduce((sum, r) => sum + r.bytes, 0);
  return section(
    "What recomputing would cost",
    note(
      "The largest temporaries live at the peak: the bytes that recomputing each would save, and what it costs once.",
    ),
    longList(can, (r) => {
      const time = r.instructions.reduce((sum, i) => sum + (costs?.seconds[i] ?? 0), 0);
      const parts = [
        `${format.quantity(r.flops, "FLOP")}`,
        r.wireBytes ? `${format.bytes(r.wireBytes)} on the wire` : "",
        costs?.chip ? `${format.seconds(time)} modelled` : "",
      ];
      return entry(
        r.bytes,
        link(r.instruction),
        h("span", { class: "dim" }, parts.filter(Boolean).join(", ")),
      );
    }),
    cannot.length
      ? h(
          "details",
          { open: !can.length },
          h(
            "summary",
            null,
            `${format.count(cannot.length)} cannot be recomputed: ${format.bytes(lost)}`,
          ),
          longList(cannot, (r) =>
            entry(r.bytes, link(r.instruction), h("span", { class: "dim" }, r.reason)),
          ),
        )
      : null,
  );
}
