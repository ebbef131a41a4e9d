/** Every logical collective: totals, a table to sort and filter, and a card for the chosen one. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { type CollectiveRow, collectivesOf, totalsBy, totalWire } from "../../state/collectives.ts";
import type { Panel } from "../panel.ts";
import { bars, note, section } from "../parts/parts.ts";
import { virtualList } from "../parts/virtual.ts";
import { collectiveCard } from "./why.ts";

/** Of a row in one line, and in two where the panel is too narrow for nine columns. */
const ROW_HEIGHTS = [24, 42];
/** Letters of a cell at most; the rest is told on hover. */
const MOST_LETTERS = 22;

interface ColumnDef {
  label: string;
  title?: string;
  number?: boolean;
  /** Takes the room that is left. */
  grows?: boolean;
  text(row: CollectiveRow): string;
  order(row: CollectiveRow): number | string;
}

const times = (row: CollectiveRow) =>
  Number.isFinite(row.executions) ? `× ${format.count(row.executions)}` : "× ?";

const COLUMNS: ColumnDef[] = [
  { label: "Kind", text: (r) => r.kind, order: (r) => r.kind },
  { label: "Axes", text: (r) => r.axes, order: (r) => r.axes },
  {
    label: "Payload",
    title: "bytes of one execution",
    number: true,
    text: (r) => format.bytes(r.payload),
    order: (r) => r.payload,
  },
  {
    label: "Runs",
    title: "executions, loops multiplied",
    number: true,
    text: times,
    order: (r) => (Number.isFinite(r.executions) ? r.executions : -1),
  },
  {
    label: "Wire",
    title: "bytes sent per device over all executions, by ring formulas",
    number: true,
    text: (r) => format.bytes(totalWire(r)),
    order: (r) => (Number.isFinite(r.wire) ? totalWire(r) : -1),
  },
  { label: "Phase", text: (r) => r.phase, order: (r) => r.phase },
  { label: "Moves", grows: true, text: (r) => r.moves, order: (r) => r.moves },
  { label: "Line", text: (r) => shortLine(r.line), order: (r) => r.line },
  { label: "By", text: (r) => r.written, order: (r) => r.written },
];

const GROUPINGS: [id: string, label: string, key: (r: CollectiveRow) => string][] = [
  ["axes", "axes", (r) => r.axes],
  ["kind", "kind", (r) => r.kind],
  ["phase", "phase", (r) => r.phase],
  ["line", "source line", (r) => shortLine(r.line) || "unknown"],
  ["written", "who wrote it", (r) => r.written],
];

/** "dir/train.py:31" → "train.py:31". */
export function shortLine(line: string): string {
  return line.slice(Math.max(line.lastIndexOf("/"), line.lastIndexOf("\\")) + 1);
}

/** Rows that hold every word of the query in one of their texts. */
export function filterRows(rows: readonly CollectiveRow[], query: string): CollectiveRow[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((r) => {
    const all = [r.kind, r.axes, r.phase, r.moves, r.written, r.line, r.opName]
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
    let shown: CollectiveRow[] = [];
    let chosen: CollectiveRow | null = null;
    let sort = 4;
    let descending = true;
    const totals = h("div");
    const card = h("div", { class: "card", "aria-live": "polite" });
    const count = h("span", { class: "dim" });
    const filter = h("input", {
      type: "search",
      placeholder: "Filter: kind, axes, line, argument…",
      "aria-label": "Filter collectives",
      oninput: () => refresh(),
    });
    const grouping = h(
      "select",
      { "aria-label": "Totals by", onchange: () => showTotals() },
      ...GROUPINGS.map(([id, label]) => h("option", { value: id }, label)),
    );
    const choose = (row: CollectiveRow) => {
      chosen = row;
      ctx.store.selectInstruction(row.anchor);
      ctx.graph.reveal(row.anchor);
      ctx.store.highlight({
        instructions: new Set(row.members),
        reason: `${row.kind} over ${row.axes}`,
      });
      showCard();
    };
    const make = (k: number) => {
      const row = shown[k];
      return h(
        "button",
        {
          type: "button",
          class: "collective-row",
          "data-collective": row.index,
          onclick: () => {
            choose(row);
            list.update(shown.length);
          },
        },
        ...COLUMNS.map((c) =>
          h("span", { class: c.number ? "num" : "", title: c.text(row) }, c.text(row)),
        ),
      );
    };
    const table = h("div", { class: "collective-table" });
    // As wide as what is in them, so that nothing is cut that could have had the room.
    const columns = COLUMNS.map((c) => {
      const longest = found.rows.reduce((n, r) => Math.max(n, c.text(r).length), 0);
      const letters = Math.min(MOST_LETTERS, Math.max(longest, c.label.length + 2));
      // A letter is narrower than the digit that `ch` is.
      const width = (n: number) => `${(0.88 * n).toFixed(1)}ch`;
      return c.grows ? `minmax(${width(Math.min(12, letters))},1fr)` : width(letters);
    });
    table.style.setProperty("--columns", columns.join(" "));
    const rowHeight = () => ROW_HEIGHTS[table.classList.contains("two") ? 1 : 0];
    const list = virtualList(
      rowHeight,
      {
        key: (k) => shown[k].index,
        make,
        refresh(element, k) {
          const now = shown[k] === chosen;
          element.classList.toggle("chosen", now);
          element.setAttribute("aria-pressed", String(now));
        },
      },
      ctx.signal,
    );
    const heads = COLUMNS.map((c, k) =>
      h(
        "button",
        {
          type: "button",
          class: c.number ? "num" : "",
          title: c.title ?? `Sort by ${c.label.toLowerCase()}`,
          onclick: () => {
            descending = sort === k ? !descending : Boolean(c.number);
            sort = k;
            refresh();
          },
        },
        c.label,
      ),
    );
    const drawRows = () => {
      const rows = Math.min(12, Math.max(1, shown.length));
      list.element.style.height = `${rows * rowHeight() + 2}px`;
      list.update(shown.length);
    };
    const head = h("div", { class: "collective-row head" }, ...heads);
    table.append(head, list.element);
    const fit = () => {
      const before = table.classList.contains("two");
      table.classList.remove("two");
      const two = head.scrollWidth > table.clientWidth;
      table.classList.toggle("two", two);
      if (two !== before) drawRows();
    };
    const watch = new ResizeObserver(fit);
    watch.observe(table);
    ctx.signal.addEventListener("abort", () => watch.disconnect(), { once: true });
    const refresh = () => {
      const { order } = COLUMNS[sort];
      const sign = descending ? -1 : 1;
      shown = filterRows(found.rows, filter.value).sort((a, b) => {
        const x = order(a);
        const y = order(b);
        return sign * (x < y ? -1 : x > y ? 1 : 0) || a.index - b.index;
      });
      heads.forEach((head, k) => {
        head.textContent = COLUMNS[k].label + (k === sort ? (descending ? " ↓" : " ↑") : "");
        head.setAttribute("aria-pressed", k === sort ? "true" : "false");
      });
      count.textContent = `${format.count(shown.length)} of ${format.plural(found.rows.length, "collective")}`;
      drawRows();
      showTotals();
    };
    const showTotals = () => {
      const [, , key] = GROUPINGS.find(([id]) => id === grouping.value) ?? GROUPINGS[0];
      fill(totals, ...totalsTable(shown, key, (text) => pick(text)));
    };
    const pick = (text: string) => {
      filter.value = filter.value === text ? "" : text;
      refresh();
    };
    const showCard = () => {
      fill(card, chosen ? collectiveCard(ctx, chosen) : note("Choose a row to see its card."));
    };
    const follow = () => {
      const s = ctx.store.get("selection");
      const row = s.kind === "instruction" ? found.byInstruction.get(s.index) : undefined;
      if (!row || row === chosen) return;
      chosen = row;
      list.update(shown.length);
      const at = shown.indexOf(row);
      if (at >= 0) list.show(at);
      showCard();
    };
    ctx.store.on("selection", follow, ctx.signal);
    element.append(
      h(
        "div",
        { class: "collectives" },
        section(
          "Totals",
          h("label", { class: "field" }, "Group by", grouping),
          totals,
          note("Wire: bytes sent per device over all executions, assuming ring algorithms."),
        ),
        section("Collectives", h("div", { class: "controls" }, filter, count), table),
        card,
      ),
    );
    follow();
    refresh();
    showCard();
  },
};

function totalsTable(
  rows: readonly CollectiveRow[],
  key: (row: CollectiveRow) => string,
  pick: (text: string) => void,
): HTMLElement[] {
  const sums = totalsBy(rows, key);
  const shown = sums.slice(0, 12).map((t) => ({
    label: t.key,
    value: t.wire,
    text: `${t.atLeast ? "≥ " : ""}${format.bytes(t.wire)} · ${format.count(t.count)}`,
    title: `${format.plural(t.count, "collective")}, payload ${format.bytes(t.payload)}`,
    onclick: () => pick(t.key),
  }));
  const rest = sums.length - shown.length;
  return rest > 0 ? [bars(shown), note(`and ${rest} more`)] : [bars(shown)];
}
