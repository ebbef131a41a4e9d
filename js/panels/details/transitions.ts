/** Sharding changes: when they are marked in the graph, their key, and their part of Details. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import type { Store } from "../../state/store.ts";
import { type Transition, transitionsOf, transitionText } from "../../state/transitions.ts";
import type { Options } from "../../view.ts";
import type { PanelContext } from "../panel.ts";
import { section, selectionLink } from "../parts/parts.ts";

const PANELS = ["devices", "collectives"];
const COLORINGS = ["sharding", "collectives"];

/** The changes to mark: those of the View while what is looked at is about shardings. */
export function markedTransitions(model: ViewModel, options: Options): readonly Transition[] {
  const wanted = PANELS.includes(options.panel) || COLORINGS.includes(options.colorBy);
  return wanted ? transitionsOf(model).rows : [];
}

/** Keeps the graph's marks and their entry in the key to the colours as the options want them. */
export function transitionMarks(
  model: ViewModel,
  store: Store,
  key: HTMLElement,
  setMarks: (notes: (Transition & { text: string })[]) => void,
): () => void {
  let shown: readonly Transition[] = [];
  let entry: HTMLElement | null = null;
  return () => {
    const rows = markedTransitions(model, store.get("options"));
    if (rows.length || shown.length) {
      setMarks(rows.map((t) => ({ ...t, text: transitionText(t) })));
    }
    shown = rows;
    entry?.remove();
    entry = rows.length ? keyEntry(store, rows) : null;
    if (entry) key.append(entry);
  };
}

function keyEntry(store: Store, rows: readonly Transition[]): HTMLElement {
  const reason = "sharding changes";
  const light = () => {
    const same = store.get("highlight")?.reason === reason;
    const ends = new Set(rows.flatMap((t) => [t.source, t.target]));
    store.highlight(same ? null : { instructions: ends, reason });
  };
  return h(
    "button",
    { class: "key reshard", type: "button", title: "Light what changes sharding", onclick: light },
    h("b", { "aria-hidden": "true" }, "◆"),
    reason,
    h("span", { class: "n" }, format.count(new Set(rows.map((t) => t.target)).size)),
  );
}

/** Changes that begin or end at an instruction. */
export function transitionSection(ctx: PanelContext, i: number): HTMLElement | null {
  const rows = transitionsOf(ctx.model).byInstruction.get(i);
  if (!rows) return null;
  return section(
    "Sharding changes",
    h(
      "ul",
      { class: "list" },
      ...rows.map((t) => {
        const other = t.source === i ? t.target : t.source;
        const link = selectionLink(ctx, { kind: "instruction", index: other });
        return h(
          "li",
          null,
          h("span", { class: "wrap" }, transitionText(t)),
          h("span", { class: "dim" }, t.source === i ? " at " : " of "),
          link,
        );
      }),
    ),
  );
}
