/** Parts of a panel of which one is shown: every answer is a press away, none below the fold. */
import { type Child, h } from "../../base/dom.ts";
import type { Store } from "../../state/store.ts";
import type { PanelContext } from "../panel.ts";

export interface Chapter {
  title: string;
  /** Said on hover. */
  about?: string;
  /** Made when it is shown, each time: plots follow the theme and the width. */
  build(): Child[];
}

/** Which chapter of a panel a person chose, until the explorer is closed. */
const chosen = new WeakMap<Store, Map<string, string>>();

export function chapters(ctx: PanelContext, panel: string, list: readonly Chapter[]): HTMLElement {
  let memory = chosen.get(ctx.store);
  if (!memory) {
    memory = new Map();
    chosen.set(ctx.store, memory);
  }
  const kept = memory;
  const body = h("div", { class: "chapter" });
  const buttons = list.map((c) =>
    h("button", { type: "button", title: c.about, onclick: () => show(c) }, c.title),
  );
  const show = (c: Chapter) => {
    kept.set(panel, c.title);
    buttons.forEach((b, k) => {
      b.setAttribute("aria-pressed", String(list[k] === c));
    });
    body.replaceChildren(h("div", null, ...c.build()));
  };
  const first = list.find((c) => c.title === kept.get(panel)) ?? list[0];
  if (first) show(first);
  if (list.length < 2) return body;
  return h(
    "div",
    null,
    h("div", { class: "chapters", role: "group", "aria-label": "Parts of this panel" }, ...buttons),
    body,
  );
}
