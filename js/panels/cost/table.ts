/** The slowest operations with their lines and scopes, one by one or grouped. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { BOUNDS, type Costs, UNKNOWN } from "../../state/cost/costs.ts";
import { groupPath, nameOf } from "../../state/members.ts";
import { type Place, placeOf } from "../../state/source/places.ts";
import type { PanelContext } from "../panel.ts";
import {
  figuresTable,
  type Head,
  note,
  numberCell,
  scrolled,
  selectionLink,
} from "../parts/parts.ts";
import { pythonSection } from "../parts/python.ts";
import { lineLink } from "../parts/source.ts";

const ROWS = 60;
const GROUPINGS = ["operation", "alike", "line", "scope", "kind"] as const;
type Grouping = (typeof GROUPINGS)[number];
const WORDS: Record<Grouping, string> = {
  operation: "one by one",
  alike: "alike together",
  line: "by source line",
  scope: "by scope",
  kind: "by kind",
};

interface Row {
  members: number[];
  /** Seconds in the step, or FLOPs if no chip is chosen. */
  value: number;
  unknown: boolean;
}

/** Shared by all explorers on a page: a preference, not state of the program. */
let grouping: Grouping = "alike";

export function slowest(ctx: PanelContext, costs: Costs): HTMLElement[] {
  const out = h("div");
  const choose = h(
    "select",
    {
      "aria-label": "Operations",
      onchange: () => {
        grouping = choose.value as Grouping;
        show();
      },
    },
    ...GROUPINGS.map((g) => h("option", { value: g }, WORDS[g])),
  );
  choose.value = grouping;
  const show = () => out.replaceChildren(...table(ctx, costs));
  show();
  const title = costs.chip ? "Slowest operations" : "Operations with the most FLOPs";
  return [
    h(
      "div",
      { class: "section" },
      h("div", { class: "controls" }, h("h3", null, title), choose),
      out,
    ),
  ];
}

/** "layer_3/mlp": the two innermost scopes around an instruction, without computations. */
export function scopeOf(model: ViewModel, i: number): string {
  return groupPath(model, { kind: "instruction", index: i })
    .filter((g) => model.groupKind(g) === "scope")
    .map((g) => nameOf(model, { kind: "group", index: g }))
    .slice(-2)
    .join("/");
}

function rowsOf(model: ViewModel, costs: Costs): Row[] {
  const { unit, runs, flops, bytes, step } = costs;
  const key: Record<Grouping, (i: number) => string | number> = {
    operation: (i) => i,
    alike: (i) =>
      `${model.opcode(i)} ${model.label(i)} ${model.denseShape(i)} ${placeOf(model, i)?.text ?? ""}`,
    line: (i) => placeOf(model, i)?.text ?? "",
    scope: (i) => scopeOf(model, i),
    kind: (i) => model.header.families[model.instruction.family[i]].label,
  };
  const of = key[grouping];
  const rows = new Map<string | number, Row>();
  for (let i = 0; i < unit.length; i++) {
    if (!unit[i] || !(runs[i] > 0) || (flops[i] === 0 && !(bytes[i] > 0))) continue;
    const value = costs.chip ? step[i] : flops[i] * runs[i];
    const k = of(i);
    let row = rows.get(k);
    if (!row) {
      row = { members: [], value: 0, unknown: false };
      rows.set(k, row);
    }
    row.members.push(i);
    if (Number.isNaN(value)) row.unknown = true;
    else row.value += value;
  }
  const out = [...rows.values()];
  const most = (r: Row) => (r.unknown && !r.value ? Number.POSITIVE_INFINITY : r.value);
  const order = (a: Row, b: Row) => most(b) - most(a) || a.members[0] - b.members[0];
  return out.sort((a, b) => (most(a) === most(b) ? a.members[0] - b.members[0] : order(a, b)));
}

function table(ctx: PanelContext, costs: Costs): HTMLElement[] {
  const { model } = ctx;
  const rows = rowsOf(model, costs);
  const first = rows.slice(0, ROWS);
  const { chip } = costs;
  const single = grouping === "operation" || grouping === "alike";
  const places = new Map<Row, Place | null>(first.map((r) => [r, placeOf(model, r.members[0])]));
  // Leave out columns that would be empty, as they make the others narrow.
  const looped = single && first.some((r) => costs.runs[r.members[0]] !== 1);
  const several = first.some((r) => r.members.length > 1);
  const lines = grouping !== "line" && single && [...places.values()].some(Boolean);
  const scopes = single && first.some((r) => scopeOf(model, r.members[0]));
  const cycles = grouping === "operation" ? costs.cycles : null;
  const total = chip ? costs.totals.total : costs.totals.flops;
  const sum = (r: Row, values: Float64Array) =>
    r.members.reduce((s, i) => s + (Number.isNaN(values[i]) ? 0 : values[i] * costs.runs[i]), 0);
  const cells = (r: Row) => {
    const i = r.members[0];
    const bound = costs.bound[i];
    const beside = chip ? sum(r, costs.seconds) - r.value : 0;
    const row: HTMLElement = h(
      "tr",
      { onclick: (event: Event) => open(event, row, i) },
      h("th", { scope: "row", title: model.label(i) }, ...nameCell(ctx, r, places.get(r) ?? null)),
      several && numberCell(r.members.length > 1 ? `×${format.count(r.members.length)}` : ""),
      chip &&
        h(
          "td",
          {
            class: "num",
            title:
              beside > 1e-9 * r.value ? `${format.seconds(beside)} more beside other work` : "",
          },
          r.unknown && !r.value ? "unknown" : format.seconds(r.value),
        ),
      numberCell(total > 0 ? percent(r.value / total) : ""),
      lines && h("td", null, lineCell(ctx, places.get(r) ?? null)),
      scopes && h("td", { class: "dim scope-cell", title: scopeOf(model, i) }, scopeOf(model, i)),
      chip &&
        single &&
        h(
          "td",
          null,
          bound !== UNKNOWN && h("span", { class: `bound ${BOUNDS[bound]}` }, BOUNDS[bound]),
        ),
      looped && numberCell(costs.runs[i] === 1 ? "" : `×${format.count(costs.runs[i])}`),
      numberCell(
        Number.isNaN(costs.flops[i]) ? "unknown" : format.quantity(sum(r, costs.flops), "FLOP"),
      ),
      numberCell(format.bytes(sum(r, costs.bytes))),
      cycles && numberCell(Number.isNaN(cycles[i]) ? "" : format.count(cycles[i])),
    );
    return row;
  };
  // Clicking a row shows below it what it is in Python.
  const open = (event: Event, row: HTMLElement, i: number) => {
    const on = event.target instanceof Element ? event.target : null;
    if (on?.closest("td .link")) return; // a link to a source line
    const below = row.nextElementSibling;
    if (below?.classList.contains("told")) return below.remove();
    for (const old of row.parentElement?.querySelectorAll(".told") ?? []) old.remove();
    const said = pythonSection(ctx, i);
    if (said instanceof Node) {
      row.after(h("tr", { class: "told" }, h("td", { colspan: row.childElementCount }, said)));
    }
  };
  const heads: Head[] = [
    [
      { operation: "Operation", alike: "Operation", line: "Line", scope: "Scope", kind: "Kind" }[
        grouping
      ],
      "text",
    ],
    several && ["Count", "number", "operations together"],
    chip && ["Time", "number", "modelled, all runs: what it adds to the step"],
    ["%", "number", chip ? "of the modelled step" : "of all FLOPs"],
    lines && ["Line", "text"],
    scopes && ["Scope", "text"],
    chip && single && ["Bound", "text", "what takes the time"],
    looped && ["Runs", "number", "of each, loops multiplied"],
    ["FLOPs", "number"],
    ["Bytes", "number"],
    cycles && ["Cycles", "number", "XLA's estimate of one run"],
  ];
  const body = h("tbody", null, ...first.map(cells));
  return [
    scrolled("Operations by cost", figuresTable(heads, body)),
    ...(rows.length > ROWS ? [note(`The first ${ROWS} of ${format.count(rows.length)}.`)] : []),
  ];
}

const percent = (part: number) =>
  part >= 0.1
    ? `${(100 * part).toFixed(0)} %`
    : part >= 0.0005
      ? `${(100 * part).toFixed(1)} %`
      : "";

function nameCell(ctx: PanelContext, row: Row, place: Place | null): HTMLElement[] {
  const { model, store, graph } = ctx;
  const i = row.members[0];
  if (row.members.length === 1 && (grouping === "operation" || grouping === "alike")) {
    return [
      selectionLink(ctx, { kind: "instruction", index: i }),
      h("span", { class: "what dim" }, labelOf(model, i)),
    ];
  }
  const text = {
    operation: "",
    alike: model.label(i) || model.name(i),
    line: place?.short ?? "no line",
    scope: scopeOf(model, i) || "no scope",
    kind: model.header.families[model.instruction.family[i]].label,
  }[grouping];
  const light = () => {
    store.highlight({ instructions: new Set(row.members), reason: text });
    graph.reveal(i);
  };
  return [
    h(
      "button",
      { class: "link", type: "button", title: "Show these operations", onclick: light },
      text,
    ),
    grouping === "alike" ? h("span", { class: "what dim" }, model.denseShape(i)) : h("span"),
  ];
}

function lineCell(ctx: PanelContext, place: Place | null): HTMLElement {
  if (!place) return h("span");
  const link = lineLink(ctx, place.text, { text: place.short });
  return place.inferred
    ? h("span", { title: `inferred: ${place.why}` }, link, h("span", { class: "dim" }, " inferred"))
    : link;
}

/** What the operation does, unless its name says so. */
function labelOf(model: ViewModel, i: number): string {
  const label = model.label(i);
  return model.name(i).startsWith(label) ? "" : label;
}
