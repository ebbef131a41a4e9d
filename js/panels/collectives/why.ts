/** The card of one collective: its figures, its devices, and why it is there. */

import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { costsOf } from "../../state/cost/costs.ts";
import {
  type CollectiveRow,
  executionsText,
  ONE_TRIP,
  totalWire,
} from "../../state/devices/collectives.ts";
import { compilerMessages } from "../../state/devices/compiler.ts";
import { devicesOf } from "../../state/devices/devices.ts";
import type { Origin, WhyCard } from "../../view-extras.ts";
import type { PanelContext } from "../panel.ts";
import { compilerSections } from "../parts/compiler.ts";
import { facts, longList, note, section, selectionLink } from "../parts/parts.ts";
import { lineLink } from "../parts/source.ts";

/** `alike`: all collectives that the row stands for, including `row` itself. */
export function collectiveCard(
  ctx: PanelContext,
  row: CollectiveRow,
  alike: readonly CollectiveRow[] = [row],
): HTMLElement {
  const each = alike.length > 1 ? " each" : "";
  const runs = Number.isFinite(row.executions)
    ? `${executionsText(row)} ${row.executions === 1 && !row.branches.length ? "execution" : "executions"}${each}${row.branches.length ? ", depending on which branch runs" : ""}`
    : "unknown number of executions";
  const total = alike.reduce((sum, r) => sum + totalWire(r), 0);
  const wire = Number.isFinite(row.wire)
    ? `${format.bytes(row.wire)} per device and execution, ${format.bytes(total)} in all${row.mayNotRun ? ` ${ONE_TRIP}` : ""}`
    : "unknown";
  const rows: [string, HTMLElement | string | (HTMLElement | string)[]][] = [
    [
      "Runs in",
      selectionLink(ctx, { kind: "instruction", index: row.anchor }, ctx.model.name(row.anchor)),
    ],
    ["Payload", `${format.bytes(row.payload)} (${format.count(row.payload)} B) per execution`],
    ["On the wire", row.assumes ? `${wire}, ${row.assumes}` : wire],
    ["How often", runs],
    ...timeOf(ctx, alike),
    ["Devices", groupsText(row)],
    ["Moves", row.moves ? (row.movesArgument ? `argument ${row.moves}` : row.moves) : "unknown"],
    ["Phase", row.phase],
    ["Written by", row.written],
  ];
  if (row.network) {
    rows.push(["Network", row.network === "dcn" ? "DCN, between slices" : "ICI, within a slice"]);
  }
  if (row.line) rows.push(["Source", lineLink(ctx, row.line)]);
  if (row.opName) rows.push(["op_name", h("code", null, row.opName)]);
  const parts =
    row.parts.length > 1
      ? section(
          row.ofPermutes ? "Transfers" : "Arrays moved together",
          longList(row.parts, (p) =>
            h(
              "li",
              null,
              h("span", { class: "mono" }, p.shape),
              h("span", { class: "figure" }, format.bytes(p.bytes)),
              p.moves ? h("span", { class: "dim" }, p.moves) : null,
            ),
          ),
        )
      : null;
  const devices = devicesOf(ctx.model)
    ? h(
        "button",
        {
          class: "mini",
          type: "button",
          onclick: () => ctx.store.setOptions({ panel: "devices" }),
        },
        "Show on the devices",
      )
    : null;
  const others =
    alike.length > 1
      ? section(
          `${format.count(alike.length)} alike`,
          longList(
            alike,
            (r) =>
              h(
                "li",
                null,
                selectionLink(ctx, { kind: "instruction", index: r.anchor }),
                h("span", { class: "dim" }, r.moves),
              ),
            4,
          ),
        )
      : null;
  const many = alike.length > 1 ? `${format.count(alike.length)} × ` : "";
  return h(
    "div",
    null,
    why(ctx, row),
    section(`${many}${row.kind} over ${row.axes}`, facts(rows)),
    devices,
    others,
    parts,
    ...compilerSections(ctx, row.members),
  );
}

/** Modelled time of all of them, hidden and exposed; [] if it is not known. */
function timeOf(ctx: PanelContext, alike: readonly CollectiveRow[]): [string, string][] {
  const costs = costsOf(ctx.model);
  if (!costs?.chip) return [];
  const { wire, waited } = costs.transferTime(alike.flatMap((r) => [...r.members]));
  if (!(wire > 0)) return [];
  const hidden = wire - waited > 1e-6 * wire ? wire - waited : 0;
  const queued = waited - wire > 5e-3 * wire ? waited - wire : 0; // behind others on the links
  const words = queued
    ? `all of it exposed, and ${format.seconds(queued)} more waiting for earlier transfers to free the links`
    : `${format.seconds(waited)} exposed, ${hidden ? format.seconds(hidden) : "none"} hidden`;
  return [["Time", `${format.seconds(wire)} modelled: ${words}`]];
}

function groupsText(row: CollectiveRow): string {
  const set = row.groups;
  if (!set) return "unknown";
  const list = set.rows
    .slice(0, 4)
    .map((r) =>
      set.pairs ? `${r[0]}→${r[1]}` : `{${r.slice(0, 12).join(",")}${r.length > 12 ? ",…" : ""}}`,
    )
    .join(" ");
  const more = set.rows.length > 4 ? " …" : "";
  const what = set.pairs
    ? format.plural(set.rows.length, "pair")
    : `${format.plural(set.rows.length, "group")} of ${row.groupSize}`;
  return `${what}: ${list}${more}`;
}

function why(ctx: PanelContext, row: CollectiveRow): HTMLElement {
  const card = row.why;
  if (row.written === "user" || row.written === "autodiff") {
    return section("Why", ...named(ctx, row, card));
  }
  if (!card) {
    const rest =
      "The program before partitioning, which would show what requested it, is not in this capture.";
    if (!row.shows) return section("Why", note(`Unknown. ${rest}`));
    return section("Why", h("p", null, `By the HLO, ${row.shows}.`), note(rest));
  }
  if (card.unknown && compilerMessages(ctx.model, row.members).length) {
    return section(
      "Why",
      note("XLA warned about this one: it had to assemble the whole array on every device."),
    );
  }
  if (card.unknown) {
    const known = around(ctx, card, "Known about them");
    const shows = row.shows && h("p", null, `By the HLO, ${row.shows}.`);
    return section("Why", shows, note(`What requested it is unknown: ${card.unknown}.`), ...known);
  }
  return section("Why", ...explained(ctx, card));
}

const OTHERS = 12;

/** For a collective that the program, or autodiff, requests explicitly. */
function named(ctx: PanelContext, row: CollectiveRow, card: WhyCard | null): HTMLElement[] {
  const said =
    row.written === "user"
      ? "The program requests it by name."
      : "Autodiff requests it, for the gradient of the line it is named after.";
  const at = card?.listed ? [facts([["At", lineLink(ctx, card.line)], listed(card)])] : [];
  return [note(said), ...at, ...around(ctx, card, "Also requested at")];
}

/** The callers of the line, and what else the collective is for. */
function around(ctx: PanelContext, card: WhyCard | null, also: string): HTMLElement[] {
  const rows: [string, HTMLElement | string][] = [];
  const callers = card?.callers ?? [];
  const others = card?.others ?? [];
  if (callers.length) {
    rows.push(["Called from", h("span", null, ...callers.map((c) => lineLink(ctx, c)))]);
  }
  for (const o of others.slice(0, OTHERS)) rows.push([also, lined(ctx, o)]);
  if (others.length > OTHERS) rows.push([also, `${others.length - OTHERS} more`]);
  return rows.length ? [facts(rows)] : [];
}

/** "dot f32[8,16] at train.py:31", with the line as a link. */
function lined(ctx: PanelContext, said: string): HTMLElement {
  const at = said.lastIndexOf(" at ");
  if (at < 0) return lineLink(ctx, said);
  return h("span", null, said.slice(0, at + 4), lineLink(ctx, said.slice(at + 4)));
}

function explained(ctx: PanelContext, card: WhyCard): HTMLElement[] {
  const rows: [string, HTMLElement | string][] = [
    ["Requested by", `${card.opcode} ${card.shape}`],
    ["Operand", `${card.operand}: ${card.had}`],
    ["Needed", card.needs.replace(/^needed as /, "")],
  ];
  if (card.line) rows.push(["At", lineLink(ctx, card.line)]);
  if (card.listed) rows.push(listed(card));
  return [
    facts(rows),
    ...around(ctx, card, "And by"),
    h("ul", { class: "list origins" }, ...card.origins.map((o) => originRow(ctx, o))),
  ];
}

/** The line that tables give, where it differs from the card's. */
function listed(card: WhyCard): [string, string] {
  return ["In tables at", card.listed];
}

/** "propagated along tanh ← multiply ← dot", if Shardy recorded it. */
function viaText({ via }: Origin): HTMLElement | null {
  if (!via.length) return null;
  const words = via.length > 12 ? [...via.slice(0, 11), "…"] : via;
  return h("span", { class: "dim" }, ` propagated along ${words.join(" ← ")}`);
}

function originRow(ctx: PanelContext, o: Origin): HTMLElement {
  const axis = o.axis ? `${o.of}'s ${o.axis} from ` : `${o.of} from `;
  if (o.kind === "constraint") {
    const callers = o.stack.slice(1, 3);
    return h(
      "li",
      null,
      `${axis}${o.name || "the constraint"} at `,
      lineLink(ctx, o.line),
      callers.length ? h("span", { class: "dim" }, ` called at ${callers.join(", ")}`) : null,
      viaText(o),
    );
  }
  if (o.kind === "unknown") return h("li", { class: "dim" }, `${axis}unknown`);
  return h("li", null, `${axis}${o.kind} `, h("code", null, o.name), viaText(o));
}
