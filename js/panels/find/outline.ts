/**
 * The groups as a tree with the cost of each: a table of contents of the module, and an op
 * profile. Grouped by scope, source line or kind; ordered by any column.
 */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { GROUPINGS, type Grouping, type ProfileRow } from "../../state/cost/op-profile.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { reveal } from "../parts/parts.ts";
import { type VirtualList, virtualList } from "../parts/virtual.ts";
import { metricsOf, OutlineTree } from "./tree.ts";

const ROW_HEIGHT = 26; // px, as in the style sheet
const INDENT = 14; // px for each level
const GROUPING_WORDS: Record<Grouping, string> = {
  scope: "scope",
  line: "source line",
  kind: "kind",
};

export const outline: Panel = {
  id: "outline",
  title: "Outline",
  ofNoChip: true,
  width: 0.4,
  fills: true,
  available: (model) => model.group.count > 1,
  render(element, ctx) {
    new Outline(ctx).show(element);
  },
};

class Outline {
  private readonly tree: OutlineTree;
  private readonly list: VirtualList;

  constructor(private readonly ctx: PanelContext) {
    const { model, store, signal } = ctx;
    this.tree = new OutlineTree(model, metricsOf(model, ctx.colorings()));
    this.list = virtualList(
      ROW_HEIGHT,
      {
        key: (k) => this.identity(k),
        make: (k) => this.row(k),
        refresh: (element, k) => this.mark(element, k),
      },
      signal,
    );
    const { element } = this.list;
    element.setAttribute("role", "tree");
    element.setAttribute("aria-label", "Parts of the module, with what they cost");
    element.tabIndex = 0;
    element.addEventListener("keydown", (event) => {
      if (!this.key(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    store.on("selection", () => this.follow(), signal);
  }

  show(element: HTMLElement): void {
    element.append(h("div", { class: "column" }, this.controls(), this.list.element));
    this.follow();
  }

  /** What the tree is grouped by, its column, its order. */
  private controls(): HTMLElement {
    const { tree } = this;
    const groupings = h(
      "select",
      {
        "aria-label": "Grouped by",
        onchange: () => {
          tree.grouping = groupings.value as Grouping;
          if (tree.grouping !== "scope") tree.sorted = true;
          orders.value = tree.sorted ? "cost" : "program";
          detail.disabled = tree.grouping !== "scope";
          this.rebuild();
        },
      },
      ...GROUPINGS.map((g) => h("option", { value: g }, `By ${GROUPING_WORDS[g]}`)),
    );
    const columns = h(
      "select",
      {
        "aria-label": "Column",
        onchange: () => {
          tree.metric = Number(columns.value);
          this.rebuild();
        },
      },
      ...tree.metrics.map((metric, k) => h("option", { value: String(k) }, metric.label)),
    );
    columns.value = String(tree.metric);
    const orders = h(
      "select",
      {
        "aria-label": "Order",
        onchange: () => {
          tree.sorted = orders.value === "cost";
          this.draw();
        },
      },
      h("option", { value: "program" }, "in program order"),
      h("option", { value: "cost" }, "most first"),
    );
    const detail = h("input", {
      type: "checkbox",
      checked: tree.detail,
      onchange: () => {
        tree.detail = detail.checked;
        this.rebuild();
      },
    });
    return h(
      "div",
      { class: "bar-row" },
      groupings,
      ...(tree.metrics.length ? [columns, orders] : []),
      h("label", { class: "field" }, detail, "Fusions and reducers"),
    );
  }

  /** A row whose place in the tree, or whose siblings, have changed is rendered again. */
  private identity(k: number): string {
    const { metric, grouping } = this.tree;
    const { key, depth, count, position, siblings, inside } = this.tree.rows[k];
    return [key, depth, count, position, siblings, inside !== null, metric, grouping].join(" ");
  }
  private row(k: number): HTMLElement {
    const { metrics } = this.tree;
    const row = this.tree.rows[k];
    return h(
      "div",
      {
        class: "tree-row",
        id: `tree-${row.key}`,
        role: "treeitem",
        title: metrics
          .map(({ label, unit }, n) => `${label}: ${format.quantity(row.sums[n], unit)}`)
          .join("\n"),
        "aria-level": row.depth + 1,
        "aria-posinset": row.position,
        "aria-setsize": row.siblings,
        style: { "padding-left": `${8 + row.depth * INDENT}px` },
        onclick: () => {
          this.tree.focus = row.key;
          this.select(row);
          this.draw();
        },
        ondblclick: () => this.toggle(row),
      },
      h("span", {
        class: "twist",
        "aria-hidden": "true",
        onclick: (event) => {
          if (!row.inside) return; // nothing to open: treat it as a click on the row
          event.stopPropagation();
          this.tree.focus = row.key;
          this.toggle(row);
        },
      }),
      h("span", { class: "clip" }, row.label),
      row.tag && h("span", { class: "tag" }, row.tag),
      h("span", { class: "figure" }, row.count > 1 ? format.count(row.count) : ""),
      ...this.cells(row),
    );
  }
  /** The row's amount, and its share of the whole. */
  private cells(row: ProfileRow): HTMLElement[] {
    const { metric, metrics } = this.tree;
    if (metric < 0) return [];
    const value = row.sums[metric];
    const percent = 100 * this.tree.share(value);
    const share =
      percent >= 10 ? `${percent.toFixed(0)} %` : percent >= 0.1 ? `${percent.toFixed(1)} %` : "";
    return [
      h("span", { class: "cell" }, value > 0 ? format.quantity(value, metrics[metric].unit) : ""),
      h("span", { class: "cell share" }, share),
    ];
  }
  /** Sets what changes while a row stays: whether it is selected, focused, open. */
  private mark(element: HTMLElement, k: number): void {
    const row = this.tree.rows[k];
    const { kind, index } = this.ctx.store.get("selection");
    const focused = row.key === this.tree.focus;
    // The group around a selected instruction is marked too: it is where the user is.
    const selected =
      kind === "instruction"
        ? focused || row.key === `i${index}`
        : row.key === `${kind[0]}${index}`;
    element.classList.toggle("chosen", selected);
    element.classList.toggle("focus", focused);
    element.setAttribute("aria-selected", String(selected));
    if (!row.inside) return;
    const expanded = this.tree.isOpen(row);
    element.setAttribute("aria-expanded", String(expanded));
    const twist = element.querySelector(".twist");
    if (twist) twist.textContent = expanded ? "▾" : "▸";
  }

  private rebuild(): void {
    this.tree.build();
    this.draw();
  }
  private draw(scroll = false): void {
    const { tree, list } = this;
    tree.flatten();
    list.update(tree.rows.length);
    list.element.setAttribute("aria-activedescendant", `tree-${tree.focus}`);
    if (scroll) list.show(tree.at);
  }
  private follow(): void {
    this.tree.follow(this.ctx.store.get("selection"));
    this.draw(true);
  }
  /** Selects the row's group, or highlights its instructions. */
  private select(row: ProfileRow): void {
    const { store, graph } = this.ctx;
    if (row.selection) {
      store.select(row.selection);
      reveal(this.ctx, row.selection);
      return;
    }
    const instructions = row.instructions();
    store.highlight({ instructions: new Set(instructions), reason: row.label });
    if (instructions.length) graph.reveal(instructions[0]);
  }
  private toggle(row: ProfileRow): void {
    this.tree.setOpen(row, !this.tree.isOpen(row));
    this.draw();
  }
  private focusRow(k: number): void {
    const { tree } = this;
    tree.focus = tree.rows[Math.min(tree.rows.length - 1, Math.max(0, k))].key;
    this.draw(true);
  }
  /** Returns whether the key means something in a tree. */
  private key(key: string): boolean {
    const { tree } = this;
    const { at } = tree;
    const row = tree.rows[at];
    if (!row) return false;
    const actions: Record<string, () => void> = {
      ArrowDown: () => this.focusRow(at + 1),
      ArrowUp: () => this.focusRow(at - 1),
      Home: () => this.focusRow(0),
      End: () => this.focusRow(tree.rows.length - 1),
      ArrowRight: () => {
        if (!row.inside) return;
        if (tree.isOpen(row)) this.focusRow(at + 1);
        else this.toggle(row);
      },
      ArrowLeft: () => {
        if (tree.isOpen(row)) this.toggle(row);
        else this.focusRow(tree.parentOf(at));
      },
      Enter: () => this.select(row),
      " ": () => this.select(row),
    };
    actions[key]?.();
    return key in actions;
  }
}
