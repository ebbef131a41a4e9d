/** Status line: what is under the pointer, and the path to what is selected. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { groupPath, nameOf } from "../../state/members.ts";
import type { Selection } from "../../view.ts";
import type { PanelContext } from "../panel.ts";
import { selectionLink } from "../parts/parts.ts";

function describe(model: ViewModel, s: Selection): string {
  if (s.kind === "none") return "";
  if (s.kind === "instruction") {
    const i = s.index;
    return `%${model.name(i)} · ${model.opcode(i)} · ${model.denseShape(i)} · ${format.bytes(model.instruction.bytes[i])}`;
  }
  const name = nameOf(model, s) || "(unnamed)";
  if (s.kind === "group")
    return `${name} · ${model.groupKind(s.index)} · ${format.plural(model.group.size[s.index], "instruction")}`;
  return name;
}

export interface StatusLine {
  element: HTMLElement;
  /** Shows what is in progress, or went wrong; "" shows nothing. */
  note(text: string): void;
}

export function status(ctx: PanelContext): StatusLine {
  const { model, store, signal } = ctx;
  const hover = h("div", { class: "hover" });
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Where the selection is" });
  const onHover = () => {
    const now = store.get("hover");
    hover.textContent =
      describe(model, now.kind === "none" ? store.get("selection") : now) ||
      "Click a box for details, double-click to open it, ? for the keys";
  };
  // For screen readers; the hover text would be read out at every move of the pointer.
  const told = h("span", { class: "visually-hidden", role: "status" });
  const onSelect = () => {
    const selection = store.get("selection");
    const path = groupPath(model, selection);
    if (selection.kind === "group") path.pop();
    const links = path
      .filter((g) => model.groupKind(g) !== "entry" || path.length === 1)
      .map((index) => selectionLink(ctx, { kind: "group", index }));
    if (selection.kind !== "none") links.push(h("strong", null, nameOf(model, selection)));
    fill(crumbs, ...links.flatMap((link, k) => [k > 0 && " › ", link]));
    told.textContent = describe(model, selection);
    onHover();
  };
  store.on("hover", onHover, signal);
  store.on("selection", onSelect, signal);
  onSelect();
  const work = h("span", { class: "work", role: "status" });
  work.hidden = true;
  return {
    element: h("div", { class: "status" }, hover, work, crumbs, told),
    note(text) {
      work.textContent = text;
      work.title = text;
      work.hidden = !text;
    },
  };
}
