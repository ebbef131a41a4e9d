/** The groups as a tree: the module's own table of contents. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { childGroups, foldMembers, groupPath, nameOf } from "../../state/members.ts";
import type { Selection } from "../../view.ts";
import type { Panel } from "../panel.ts";
import { reveal } from "../parts/parts.ts";
import { virtualList } from "../parts/virtual.ts";

interface Row {
  key: string; // "g12", "f3"
  selection: Selection;
  depth: number;
  size: number;
  position: number;
  siblings: number;
  children: Selection[];
}

const keyOf = (s: Selection) => `${s.kind[0]}${s.index}`;

export const outline: Panel = {
  id: "outline",
  title: "Outline",
  fills: true,
  available: (model) => model.group.count > 1,
  render(element, ctx) {
    const { model, store, signal } = ctx;
    const children = childGroups(model);
    const open = new Set<string>();
    let rows: Row[] = [];
    let focus = "";
    // Hundreds of fusions and reducers hide the few groups that tell the program.
    const small = (g: number) => {
      const kind = model.groupKind(g);
      return kind === "fusion" || kind === "reducer";
    };
    let telling = 0;
    for (let g = 0; g < model.group.count; g++) if (!small(g)) telling++;
    let detail = telling < 8;

    /** Child groups with runs of equal ones replaced by their fold. */
    const inside = (s: Selection): Selection[] => {
      if (s.kind === "fold") {
        return foldMembers(model, s.index).map((index) => ({ kind: "group", index }));
      }
      const out: Selection[] = [];
      const seen = new Set<number>();
      for (const g of children[s.index]) {
        const fold = model.group.fold[g];
        if (small(g) && !detail) continue;
        if (fold < 0) out.push({ kind: "group", index: g });
        else if (!seen.has(fold)) {
          seen.add(fold);
          out.push({ kind: "fold", index: fold });
        }
      }
      return out;
    };
    const sizeOf = (s: Selection) =>
      s.kind === "fold"
        ? foldMembers(model, s.index).reduce((sum, g) => sum + model.group.size[g], 0)
        : model.group.size[s.index];

    const flatten = () => {
      rows = [];
      const walk = (list: Selection[], depth: number) => {
        list.forEach((selection, k) => {
          const kids = inside(selection);
          const key = keyOf(selection);
          rows.push({
            key,
            selection,
            depth,
            size: sizeOf(selection),
            position: k + 1,
            siblings: list.length,
            children: kids,
          });
          if (open.has(key)) walk(kids, depth + 1);
        });
      };
      walk(inside({ kind: "group", index: 0 }), 0);
    };
    const go = (s: Selection) => {
      store.select(s);
      reveal(ctx, s);
    };
    const toggle = (row: Row, to = !open.has(row.key)) => {
      if (to) open.add(row.key);
      else open.delete(row.key);
      draw();
    };
    const refresh = (element: HTMLElement, k: number) => {
      const row = rows[k];
      const now = store.get("selection");
      // The group around a selected instruction counts: it is where the reader is.
      const selected = row.key === (now.kind === "instruction" ? focus : keyOf(now));
      element.classList.toggle("chosen", selected);
      element.classList.toggle("focus", row.key === focus);
      element.setAttribute("aria-selected", String(selected));
      if (!row.children.length) return;
      const expanded = open.has(row.key);
      element.setAttribute("aria-expanded", String(expanded));
      const twist = element.querySelector(".twist");
      if (twist) twist.textContent = expanded ? "▾" : "▸";
    };
    const make = (k: number) => {
      const row = rows[k];
      const kind = row.selection.kind === "group" ? model.groupKind(row.selection.index) : "fold";
      return h(
        "div",
        {
          class: "tree-row",
          id: `tree-${row.key}`,
          role: "treeitem",
          "aria-level": row.depth + 1,
          "aria-posinset": row.position,
          "aria-setsize": row.siblings,
          style: { "padding-left": `${8 + row.depth * 14}px` },
          onclick: () => {
            focus = row.key;
            go(row.selection);
            draw();
          },
          ondblclick: () => toggle(row),
        },
        h("span", {
          class: "twist",
          "aria-hidden": "true",
          onclick: (event) => {
            event.stopPropagation();
            focus = row.key;
            toggle(row);
          },
        }),
        h("span", { class: "clip" }, nameOf(model, row.selection) || "(unnamed)"),
        kind !== "scope" && kind !== "fold" && h("span", { class: "tag" }, kind),
        h("span", { class: "figure" }, format.count(row.size)),
      );
    };
    /** A row in another place of the tree, or with other rows beside it, is drawn anew. */
    const key = (k: number) => {
      const { key: own, depth, size, position, siblings, children: inner } = rows[k];
      return [own, depth, size, position, siblings, inner.length > 0].join(" ");
    };
    const list = virtualList(26, { key, make, refresh }, signal);
    list.element.setAttribute("role", "tree");
    list.element.setAttribute("aria-label", "Groups of the module, with their instructions");
    list.element.tabIndex = 0;
    const check = h("input", {
      type: "checkbox",
      checked: detail,
      onchange: () => {
        detail = check.checked;
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
        if (row.children.length && !open.has(row.key)) toggle(row, true);
        else if (row.children.length) to(at + 1);
      } else if (event.key === "ArrowLeft") {
        if (open.has(row.key)) toggle(row, false);
        else {
          let up = at;
          while (up > 0 && rows[up].depth >= row.depth) up--;
          to(up);
        }
      } else if (event.key === "Enter" || event.key === " ") go(row.selection);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    /** Opens the tree down to what is selected elsewhere. */
    const follow = () => {
      const selection = store.get("selection");
      const path = groupPath(model, selection);
      while (!detail && path.length && small(path[path.length - 1])) path.pop();
      if (path.length) {
        for (const g of path.slice(0, -1)) open.add(`g${g}`);
        for (const g of path) if (model.group.fold[g] >= 0) open.add(`f${model.group.fold[g]}`);
        focus = selection.kind === "fold" ? `f${selection.index}` : `g${path[path.length - 1]}`;
      }
      draw(true);
    };
    store.on("selection", follow, signal);
    // The first levels open until a screenful is shown.
    let front = inside({ kind: "group", index: 0 });
    for (let shown = front.length; front.length && shown < 24; shown += front.length) {
      for (const s of front) if (s.kind === "group") open.add(keyOf(s));
      front = front.flatMap((s) => (s.kind === "group" ? inside(s) : []));
      if (shown + front.length > 40) break;
    }
    follow();
  },
};
