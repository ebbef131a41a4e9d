/**
 * The groups as a tree with the cost of each: a table of contents of the module, and an op
 * profile. Grouped by scope, source line or kind; ordered by any column.
 */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import {
  GROUPINGS,
  type Grouping,
  type Metric,
  type ProfileRow,
  profileRows,
} from "../../state/cost/op-profile.ts";
import { groupPath } from "../../state/members.ts";
import type { Panel } from "../panel.ts";
import { reveal } from "../parts/parts.ts";
import { virtualList } from "../parts/virtual.ts";

interface Row extends ProfileRow {
  depth: number;
  position: number;
  siblings: number;
}

const WORDS: Record<Grouping, string> = { scope: "scope", line: "source line", kind: "kind" };

export const outline: Panel = {
  id: "outline",
  title: "Outline",
  width: 0.4,
  fills: true,
  available: (model) => model.group.count > 1,
  render(element, ctx) {
    const { model, store, graph, signal } = ctx;
    const metrics: Metric[] = ctx.colorings().flatMap((c) => {
      const values = c.amounts?.(model);
      if (!values || !Array.prototype.some.call(values, (v: number) => v > 0)) return [];
      return [{ id: c.id, label: c.label, unit: c.unit ?? "", values }];
    });
    let metric = metrics.findIndex((m) => m.id === "measured");
    if (metric < 0) metric = metrics.findIndex((m) => m.id === "seconds");
    if (metric < 0) metric = metrics.length ? 0 : -1;
    let grouping: Grouping = "scope";
    let sorted = false;
    let telling = 0;
    for (let g = 0; g < model.group.count; g++) {
      if (!["fusion", "reducer"].includes(model.groupKind(g))) telling++;
    }
    let detail = telling < 8;
    let roots: ProfileRow[] = [];
    let whole = 0;
    const open = new Set<string>();
    const inner = new Map<string, ProfileRow[]>();
    let rows: Row[] = [];
    let focus = "";

    const arranged = (list: ProfileRow[]) =>
      sorted && metric >= 0 ? [...list].sort((a, b) => b.sums[metric] - a.sums[metric]) : list;
    const inside = (row: ProfileRow) => {
      let found = inner.get(row.key);
      if (!found) {
        found = row.inside?.() ?? [];
        inner.set(row.key, found);
      }
      return found;
    };
    const rebuild = () => {
      inner.clear();
      roots = profileRows(model, metrics, grouping, detail);
      whole = metric < 0 ? 0 : roots.reduce((sum, r) => sum + r.sums[metric], 0);
    };
    const flatten = () => {
      rows = [];
      const walk = (list: ProfileRow[], depth: number) => {
        list.forEach((row, k) => {
          rows.push({ ...row, depth, position: k + 1, siblings: list.length });
          if (open.has(row.key)) walk(arranged(inside(row)), depth + 1);
        });
      };
      walk(arranged(roots), 0);
    };
    const go = (row: ProfileRow) => {
      if (row.selection) {
        store.select(row.selection);
        reveal(ctx, row.selection);
        return;
      }
      const instructions = row.instructions();
      store.highlight({ instructions: new Set(instructions), reason: row.label });
      if (instructions.length) graph.reveal(instructions[0]);
    };
    const toggle = (row: ProfileRow, to = !open.has(row.key)) => {
      if (to) open.add(row.key);
      else open.delete(row.key);
      draw();
    };
    const refresh = (element: HTMLElement, k: number) => {
      const row = rows[k];
      const now = store.get("selection");
      // The group around a selected instruction is marked too: it is where the user is.
      const here = now.kind !== "none" ? `${now.kind[0]}${now.index}` : "";
      const selected = row.key === here || (now.kind === "instruction" && row.key === focus);
      element.classList.toggle("chosen", selected);
      element.classList.toggle("focus", row.key === focus);
      element.setAttribute("aria-selected", String(selected));
      if (!row.inside) return;
      const expanded = open.has(row.key);
      element.setAttribute("aria-expanded", String(expanded));
      const twist = element.querySelector(".twist");
      if (twist) twist.textContent = expanded ? "▾" : "▸";
    };
    const share = (value: number) => {
      const part = whole > 0 ? (100 * value) / whole : 0;
      return part >= 10 ? `${part.toFixed(0)} %` : part >= 0.1 ? `${part.toFixed(1)} %` : "";
    };
    const words = (value: number) => format.quantity(value, metrics[metric].unit);
    const make = (k: number) => {
      const row = rows[k];
      const value = metric < 0 ? 0 : row.sums[metric];
      return h(
        "div",
        {
          class: "tree-row",
          id: `tree-${row.key}`,
          role: "treeitem",
          title: metrics
            .map((m, n) => `${m.label}: ${format.quantity(row.sums[n], m.unit)}`)
            .join("\n"),
          "aria-level": row.depth + 1,
          "aria-posinset": row.position,
          "aria-setsize": row.siblings,
          style: { "padding-left": `${8 + row.depth * 14}px` },
          onclick: () => {
            focus = row.key;
            go(row);
            draw();
          },
          ondblclick: () => toggle(row),
        },
        h("span", {
          class: "twist",
          "aria-hidden": "true",
          onclick: (event) => {
            if (!row.inside) return; // nothing to open: treat it as a click on the row
            event.stopPropagation();
            focus = row.key;
            toggle(row);
          },
        }),
        h("span", { class: "clip" }, row.label),
        row.tag && h("span", { class: "tag" }, row.tag),
        h("span", { class: "figure" }, row.count > 1 ? format.count(row.count) : ""),
        ...(metric < 0
          ? []
          : [
              h("span", { class: "cell" }, value > 0 ? words(value) : ""),
              h("span", { class: "cell share" }, share(value)),
            ]),
      );
    };
    /** A row whose place in the tree, or whose siblings, have changed is rendered again. */
    const key = (k: number) => {
      const { key: own, depth, count, position, siblings, inside: inner } = rows[k];
      return [own, depth, count, position, siblings, inner !== null, metric, grouping].join(" ");
    };
    const list = virtualList(26, { key, make, refresh }, signal);
    list.element.setAttribute("role", "tree");
    list.element.setAttribute("aria-label", "Parts of the module, with what they cost");
    list.element.tabIndex = 0;

    const by = h(
      "select",
      {
        "aria-label": "Grouped by",
        onchange: () => {
          grouping = by.value as Grouping;
          if (grouping !== "scope") sorted = true;
          order.value = sorted ? "cost" : "program";
          check.disabled = grouping !== "scope";
          rebuild();
          draw();
        },
      },
      ...GROUPINGS.map((g) => h("option", { value: g }, `By ${WORDS[g]}`)),
    );
    const column = h(
      "select",
      {
        "aria-label": "Column",
        onchange: () => {
          metric = Number(column.value);
          rebuild();
          draw();
        },
      },
      ...metrics.map((m, n) => h("option", { value: String(n) }, m.label)),
    );
    column.value = String(metric);
    const order = h(
      "select",
      {
        "aria-label": "Order",
        onchange: () => {
          sorted = order.value === "cost";
          draw();
        },
      },
      h("option", { value: "program" }, "in program order"),
      h("option", { value: "cost" }, "most first"),
    );
    const check = h("input", {
      type: "checkbox",
      checked: detail,
      onchange: () => {
        detail = check.checked;
        rebuild();
        draw();
      },
    });
    element.append(
      h(
        "div",
        { class: "column" },
        h(
          "div",
          { class: "bar-row" },
          by,
          ...(metrics.length ? [column, order] : []),
          h("label", { class: "field" }, check, "Fusions and reducers"),
        ),
        list.element,
      ),
    );

    const draw = (show = false) => {
      flatten();
      if (!rows.some((r) => r.key === focus)) focus = rows[0]?.key ?? "";
      list.update(rows.length);
      list.element.setAttribute("aria-activedescendant", `tree-${focus}`);
      if (show) list.show(rows.findIndex((r) => r.key === focus));
    };
    list.element.addEventListener("keydown", (event) => {
      const at = rows.findIndex((r) => r.key === focus);
      const row = rows[at];
      if (!row) return;
      const to = (k: number) => {
        focus = rows[Math.min(rows.length - 1, Math.max(0, k))].key;
        draw(true);
      };
      if (event.key === "ArrowDown") to(at + 1);
      else if (event.key === "ArrowUp") to(at - 1);
      else if (event.key === "Home") to(0);
      else if (event.key === "End") to(rows.length - 1);
      else if (event.key === "ArrowRight") {
        if (row.inside && !open.has(row.key)) toggle(row, true);
        else if (row.inside) to(at + 1);
      } else if (event.key === "ArrowLeft") {
        if (open.has(row.key)) toggle(row, false);
        else {
          let up = at;
          while (up > 0 && rows[up].depth >= row.depth) up--;
          to(up);
        }
      } else if (event.key === "Enter" || event.key === " ") go(row);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    /** Opens the tree down to what was selected elsewhere. */
    const follow = () => {
      const selection = store.get("selection");
      const path = grouping === "scope" ? groupPath(model, selection) : [];
      const small = (g: number) => ["fusion", "reducer"].includes(model.groupKind(g));
      while (!detail && path.length && small(path[path.length - 1])) path.pop();
      if (path.length) {
        for (const g of path.slice(0, -1)) open.add(`g${g}`);
        for (const g of path) if (model.group.fold[g] >= 0) open.add(`f${model.group.fold[g]}`);
        focus = selection.kind === "fold" ? `f${selection.index}` : `g${path[path.length - 1]}`;
      }
      draw(true);
    };
    store.on("selection", follow, signal);
    rebuild();
    // Open the top levels until a screenful is shown.
    let front = roots;
    for (let shown = front.length; front.length && shown < 24; shown += front.length) {
      for (const r of front) if (r.selection?.kind === "group") open.add(r.key);
      front = front.flatMap((r) =>
        r.selection?.kind === "group" ? inside(r).filter((x) => x.inside) : [],
      );
      if (shown + front.length > 40) break;
    }
    follow();
  },
};
