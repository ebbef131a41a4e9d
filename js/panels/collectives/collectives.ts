/** All logical collectives: a table to sort and filter, a card for the chosen one, and totals. */
import { type Child, fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { costsOf } from "../../state/cost/costs.ts";
import {
  type CollectiveRow,
  collectivesOf,
  span,
  spanned,
  totalsBy,
  totalWire,
  wireText,
} from "../../state/devices/collectives.ts";
import { shortLine } from "../../state/source/places.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { chapters } from "../parts/chapters.ts";
import { bars, note, section } from "../parts/parts.ts";
import { virtualList } from "../parts/virtual.ts";
import { type Alike, type ColumnDef, FIGURES, foldAlike, PLACES, TIMES } from "./columns.ts";
import { collectiveCard } from "./why.ts";

const ROW_HEIGHT = 42;
/** Rows visible at once; the card of the chosen one is below them. */
const SHOWN = 8;

const GROUPINGS: [id: string, label: string, key: (r: CollectiveRow) => string][] = [
  ["axes", "axes", (r) => r.axes],
  ["kind", "kind", (r) => r.kind],
  ["types", "element type", (r) => r.types || "unknown"],
  ["reduced", "kind and type", (r) => `${r.kind} ${r.types || "of unknown type"}`],
  ["phase", "phase", (r) => r.phase],
  ["line", "source line", (r) => shortLine(r.line) || "unknown"],
  ["written", "who wrote it", (r) => r.written],
];

/** Rows in whose texts every word of the query occurs. */
export function filterRows(rows: readonly CollectiveRow[], query: string): CollectiveRow[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((r) => {
    const all = [r.kind, r.axes, r.types, r.phase, r.moves, r.written, r.line, r.opName]
      .join("\n")
      .toLowerCase();
    return words.every((w) => all.includes(w));
  });
}

export const collectives: Panel = {
  id: "collectives",
  title: "Collectives",
  width: 0.5,
  available: (model) => collectivesOf(model) !== null,
  render(element, ctx) {
    const found = collectivesOf(ctx.model);
    if (!found) return;
    const costs = costsOf(ctx.model);
    let query = "";
    const table = collectiveTable(ctx, found.rows, () => query);
    const totals = h("div");
    const grouping = h(
      "select",
      { "aria-label": "Totals by", onchange: () => showTotals() },
      ...GROUPINGS.map(([id, label]) => h("option", { value: id }, label)),
    );
    const showTotals = () => {
      const [, , key] = GROUPINGS.find(([id]) => id === grouping.value) ?? GROUPINGS[0];
      fill(totals, ...totalsTable(found.rows, key, pick));
    };
    const filter = h("input", {
      type: "search",
      placeholder: "Filter: kind, axes, line, argument…",
      "aria-label": "Filter collectives",
      oninput: () => {
        query = filter.value;
        table.refresh();
      },
    });
    const pick = (text: string) => {
      filter.value = filter.value === text ? "" : text;
      query = filter.value;
      table.refresh();
      parts.querySelector("button")?.click(); // show the rows that remain
    };
    const parts = chapters(ctx, "collectives", [
      {
        title: "One by one",
        build: (): Child[] => [
          h("div", { class: "controls" }, filter, table.count, table.fold),
          table.element,
          table.card,
        ],
      },
      {
        title: "Totals",
        build: () => [
          section(
            "Totals",
            h("label", { class: "field" }, "Group by", grouping),
            totals,
            note("Wire: bytes sent per device over all executions, assuming ring algorithms."),
          ),
        ],
      },
    ]);
    const head = h("p", { class: "collective-sum" });
    const sum = () => {
      const [least, most] = span(found.rows, totalWire);
      const timeless = !most && found.rows.some((r) => Number.isNaN(r.wire));
      const t = costs?.totals;
      const part = t && t.collective > 0 ? Math.round((100 * t.exposed) / t.collective) : 0;
      const time =
        costs?.chip && t && !timeless
          ? ` · ${format.seconds(t.collective)} modelled, ${format.seconds(t.exposed)} of it exposed (${part} %), ${format.seconds(Math.max(0, t.collective - t.exposed))} hidden`
          : "";
      head.textContent = `${format.plural(found.rows.length, "collective")} · ${wireText(found.rows)} on the wire per device${least === most ? "" : " depending on which branches run"}${time}`;
    };
    costs?.on(() => {
      sum();
      table.refresh();
    }, ctx.signal);
    element.append(h("div", { class: "collectives" }, head, parts));
    sum();
    showTotals();
    table.refresh();
    table.follow();
  },
};

function collectiveTable(ctx: PanelContext, all: readonly CollectiveRow[], query: () => string) {
  const costs = costsOf(ctx.model);
  const byInstruction = collectivesOf(ctx.model)?.byInstruction;
  let shown: Alike[] = [];
  let chosen: Alike | null = null;
  let descending = true;
  const figures = costs?.chip ? [...FIGURES, ...TIMES] : [...FIGURES];
  let sort: ColumnDef = figures.find((c) => c.label === "Exposed") ?? figures[4];
  const card = h("div", { class: "card", "aria-live": "polite" });
  const count = h("span", { class: "dim" });
  const check = h("input", { type: "checkbox", checked: true, onchange: () => refresh() });
  const fold = h("label", { class: "field" }, check, "alike as one");
  const choose = (row: Alike) => {
    chosen = row;
    const { first } = row;
    ctx.store.selectInstruction(first.anchor);
    ctx.graph.reveal(first.anchor);
    const members = row.rows.flatMap((r) => [...r.members]);
    const many = row.rows.length > 1 ? `${row.rows.length} × ` : "";
    ctx.store.highlight({
      instructions: new Set(members),
      reason: `${many}${first.kind} over ${first.axes}`,
    });
    showCard();
  };
  const cells = (columns: readonly ColumnDef[], row: Alike) =>
    columns.map((c) => {
      const text = c.text(row);
      return h("span", { class: c.number ? "num" : "", title: text }, text);
    });
  const make = (k: number) => {
    const row = shown[k];
    return h(
      "button",
      {
        type: "button",
        class: "collective-row",
        "data-collective": row.first.index,
        onclick: () => {
          choose(row);
          list.update(shown.length);
        },
      },
      h("span", { class: "first" }, ...cells(figures, row)),
      h("span", { class: "second" }, ...cells(PLACES, row)),
    );
  };
  const element = h("div", { class: "collective-table" });
  // Columns are as wide as their contents; only the program's names for values are ever cut.
  const widths = (columns: readonly ColumnDef[], rows: readonly Alike[], gap: number) => {
    let least = 0; // width of the line, in characters
    const tracks = columns.map((c) => {
      const cells = rows.reduce((n, r) => Math.max(n, c.text(r).length), 0);
      const longest = Math.max(cells, c.label.length + 3);
      // Letters in words are narrower than digits; those in units are not.
      const words = 0.9 * longest + 1;
      const room = c.most ? 4 : c.number ? Math.max(cells + 0.4, 0.85 * longest) : words;
      const share = c.most ? Math.min(c.most, longest) : c.number ? 1 : Math.ceil(words / 8);
      least += room;
      return `minmax(${room.toFixed(1)}ch,${share}fr)`;
    });
    return {
      tracks: tracks.join(" "),
      least: `calc(${least.toFixed(1)}ch + ${gap * (columns.length - 1) + 16}px)`,
    };
  };
  const list = virtualList(
    () => ROW_HEIGHT,
    {
      key: (k) => `${shown[k].first.index} ${shown[k].rows.length} ${shown[k].seconds}`,
      make,
      refresh(element, k) {
        const now = shown[k] === chosen;
        element.classList.toggle("chosen", now);
        element.setAttribute("aria-pressed", String(now));
      },
    },
    ctx.signal,
  );
  const heads = new Map<ColumnDef, HTMLElement>();
  const headOf = (c: ColumnDef) => {
    const head = h(
      "button",
      {
        type: "button",
        class: c.number ? "num" : "",
        title: c.title ?? `Sort by ${c.label.toLowerCase()}`,
        onclick: () => {
          descending = sort === c ? !descending : Boolean(c.number);
          sort = c;
          refresh();
        },
      },
      c.label,
    );
    heads.set(c, head);
    return head;
  };
  element.append(
    h(
      "div",
      { class: "collective-row head" },
      h("span", { class: "first" }, ...figures.map(headOf)),
      h("span", { class: "second" }, ...PLACES.map(headOf)),
    ),
    list.element,
  );
  const refresh = () => {
    const sign = descending ? -1 : 1;
    const left = filterRows(all, query());
    shown = foldAlike(left, costs, check.checked).sort((a, b) => {
      const x = sort.order(a);
      const y = sort.order(b);
      return (
        sign * (x < y ? -1 : x > y ? 1 : 0) || b.wire - a.wire || a.first.index - b.first.index
      );
    });
    for (const [c, head] of heads) {
      head.textContent = c.label + (c === sort ? (descending ? " ↓" : " ↑") : "");
      head.setAttribute("aria-pressed", c === sort ? "true" : "false");
    }
    const [first, second] = [widths(figures, shown, 8), widths(PLACES, shown, 10)];
    element.style.setProperty("--figures", first.tracks);
    element.style.setProperty("--places", second.tracks);
    element.style.setProperty("--least", `max(${first.least}, ${second.least})`);
    const rows = format.plural(shown.length, "row");
    count.textContent = `${format.count(left.length)} of ${format.plural(all.length, "collective")}${shown.length < left.length ? ` in ${rows}` : ""}`;
    fold.hidden = all.length < 2;
    const now = chosen?.first;
    chosen = shown.find((r) => r.rows.some((x) => x === now)) ?? shown[0] ?? null;
    list.element.style.height = `${Math.min(SHOWN, Math.max(1, shown.length)) * ROW_HEIGHT + 2}px`;
    list.update(shown.length);
    showCard();
  };
  const showCard = () => {
    fill(
      card,
      chosen ? collectiveCard(ctx, chosen.first, chosen.rows) : note("No collective matches."),
    );
  };
  const follow = () => {
    const s = ctx.store.get("selection");
    const row = s.kind === "instruction" ? byInstruction?.get(s.index) : undefined;
    const at = row ? shown.findIndex((a) => a.rows.includes(row)) : -1;
    if (at < 0 || shown[at] === chosen) return;
    chosen = shown[at];
    list.update(shown.length);
    list.show(at);
    showCard();
  };
  ctx.store.on("selection", follow, ctx.signal);
  return { element, card, count, fold, refresh, follow };
}

function totalsTable(
  rows: readonly CollectiveRow[],
  key: (row: CollectiveRow) => string,
  pick: (text: string) => void,
): HTMLElement[] {
  const sums = totalsBy(rows, key);
  const shown = sums.slice(0, 24).map((t) => ({
    label: t.key,
    value: t.wire,
    text: `${t.sent} · ${format.count(t.count)}`,
    title: `${format.plural(t.count, "collective")}, payload ${spanned(t.leastPayload, t.payload)}`,
    onclick: () => pick(t.key),
  }));
  const rest = sums.length - shown.length;
  return rest > 0 ? [bars(shown), note(`and ${rest} more`)] : [bars(shown)];
}
