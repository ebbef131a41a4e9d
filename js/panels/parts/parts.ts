/** Elements that panels share: sections, links to instructions and groups, copy buttons, bars. */

import { type Child, copyText, h } from "../../base/dom.ts";
import { count } from "../../base/format.ts";
import { foldMembers, nameOf } from "../../state/members.ts";
import { NOTHING } from "../../state/store.ts";
import type { Selection } from "../../view.ts";
import type { PanelContext } from "../panel.ts";

export function section(title: string, ...children: Child[]): HTMLElement {
  return h("section", { class: "section" }, h("h3", null, title), ...children);
}

/** "name  value" rows. */
export function facts(rows: [name: string, value: Child | Child[]][]): HTMLElement {
  return h(
    "dl",
    { class: "facts" },
    ...rows.flatMap(([name, value]) => [
      h("dt", null, name),
      h("dd", null, ...(Array.isArray(value) ? value : [value])),
    ]),
  );
}

/** The head of a column; false or null is no column. */
export type Head = [label: string, kind: "text" | "number", title?: string] | false | null;

export function figuresTable(heads: Head[], body: HTMLElement): HTMLElement {
  const cells = heads.map(
    (head) =>
      head &&
      h("th", { scope: "col", class: head[1] === "number" ? "num" : "", title: head[2] }, head[0]),
  );
  return h(
    "table",
    { class: "table figures-table" },
    h("thead", null, h("tr", null, ...cells)),
    body,
  );
}

/** A box in which a wide table scrolls sideways, with a name for screen readers. */
export function scrolled(name: string, table: HTMLElement): HTMLElement {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, table);
}

export const numberCell = (text: string): HTMLElement => h("td", { class: "num" }, text);

export function note(text: string): HTMLElement {
  return h("p", { class: "note" }, text);
}

export function copyButton(text: () => string | Promise<string>, what: string): HTMLButtonElement {
  const button = h(
    "button",
    {
      class: "mini",
      type: "button",
      title: `Copy ${what}`,
      "aria-label": `Copy ${what}`,
      onclick: async () => {
        const done = await copyText(await text());
        button.textContent = done ? "copied" : "failed";
        setTimeout(() => {
          button.textContent = "copy";
        }, 1200);
      },
    },
    "copy",
  );
  return button;
}

/** Opens what hides the selection and brings it into view. */
export function reveal({ model, graph }: PanelContext, { kind, index }: Selection): void {
  if (kind === "instruction") graph.reveal(index);
  else if (kind === "group") graph.revealGroup(index);
  else if (kind === "fold") graph.revealGroup(foldMembers(model, index)[0]);
  else if (kind === "computation" && model.computation.group[index] >= 0) {
    graph.revealGroup(model.computation.group[index]);
  }
}

/** A link that selects and reveals; hovering over it highlights the box. */
export function selectionLink(ctx: PanelContext, selection: Selection, text?: Child): HTMLElement {
  const { model, store } = ctx;
  return h(
    "button",
    {
      class: "link",
      type: "button",
      onclick: () => {
        store.select(selection);
        reveal(ctx, selection);
      },
      onpointerenter: () => store.hover(selection),
      onpointerleave: () => store.hover(NOTHING),
    },
    text ?? (nameOf(model, selection) || "(unnamed)"),
  );
}

/** The name as a link, with the dense shape beside it. */
export function instructionRow(ctx: PanelContext, i: number, more?: Child): HTMLElement {
  const { model } = ctx;
  return h(
    "li",
    null,
    selectionLink(ctx, { kind: "instruction", index: i }),
    h("span", { class: "dim mono" }, model.denseShape(i)),
    more ?? null,
  );
}

/** A list that shows `limit` rows and a button for the rest. */
export function longList<T>(items: readonly T[], row: (item: T) => Node, limit = 12): HTMLElement {
  const list = h("ul", { class: "list" }, ...items.slice(0, limit).map(row));
  if (items.length <= limit) return list;
  let shown = limit;
  const more = h("button", {
    class: "mini",
    type: "button",
    onclick: () => {
      // In steps: a hub can have tens of thousands of users.
      const next = Math.min(items.length, shown + 500);
      list.append(...items.slice(shown, next).map(row));
      shown = next;
      label();
    },
  });
  const label = () => {
    const left = items.length - shown;
    more.textContent =
      left > 500 ? `show 500 of ${count(left)} more` : `show all ${count(items.length)}`;
    more.hidden = left === 0;
  };
  label();
  return h("div", null, list, more);
}

export interface Bar {
  label: string;
  value: number;
  text: string;
  color?: string;
  onclick?: () => void;
  title?: string;
}

/** Horizontal bars with their figures; those with `onclick` are buttons. */
export function bars(rows: readonly Bar[]): HTMLElement {
  const most = Math.max(1e-300, ...rows.map((r) => r.value));
  return h(
    "div",
    { class: "bars" },
    ...rows.map((row) =>
      h(
        row.onclick ? "button" : "div",
        { class: "bar", type: row.onclick && "button", title: row.title, onclick: row.onclick },
        h("span", { class: "bar-label" }, row.label),
        h(
          "span",
          { class: "bar-track", "aria-hidden": "true" },
          h("span", {
            class: row.color ? "bar-fill" : "bar-fill plain",
            style: {
              width: `${Math.max(1, (100 * row.value) / most).toFixed(1)}%`,
              ...(row.color ? { background: row.color } : {}),
            },
          }),
        ),
        h("span", { class: "bar-text" }, row.text),
      ),
    ),
  );
}

/** Width for a plot in `element`, px: drawn at its final size, its text stays legible. */
export function plotWidth(element: HTMLElement): number {
  const inside = (element.clientWidth || 560) - 24; // the panel's padding
  return Math.min(760, Math.max(280, inside));
}

/** Long text, initially folded if it is longer than `limit` characters. */
export function longText(text: string, what: string, limit = 160): HTMLElement {
  if (text.length <= limit) {
    return h(
      "span",
      { class: "value" },
      h("code", null, text),
      copyButton(() => text, what),
    );
  }
  return h(
    "details",
    null,
    h("summary", { class: "mono" }, `${text.slice(0, limit)}…`),
    h("pre", { class: "wrap", tabindex: "0" }, text),
    copyButton(() => text, what),
  );
}
