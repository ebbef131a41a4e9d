/** Parts of a panel, one shown at a time: every answer is one click away, none below the fold. */
import { type Child, h } from "../../base/dom.ts";
import type { ViewModel } from "../../base/model.ts";
import type { PanelContext } from "../panel.ts";

export interface Chapter {
  title: string;
  /** Shown on hover. */
  about?: string;
  /** Called each time it is shown, as plots depend on the theme and the width. */
  build(): Child[];
}

/** The chapter last shown in each panel, remembered until the explorer is closed. */
const chosen = new WeakMap<ViewModel, Map<string, string>>();

export function chapters(ctx: PanelContext, panel: string, list: readonly Chapter[]): HTMLElement {
  let memory = chosen.get(ctx.model);
  if (!memory) {
    memory = new Map();
    chosen.set(ctx.model, memory);
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
