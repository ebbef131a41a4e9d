/** Sharding changes: when they are marked in the graph, and their section in Details. */
import { h } from "../../base/dom.ts";
import type { ViewModel } from "../../base/model.ts";
import { type Transition, transitionsOf, transitionText } from "../../state/devices/transitions.ts";
import type { Options } from "../../view.ts";
import type { PanelContext } from "../panel.ts";
import { section, selectionLink } from "../parts/parts.ts";

const PANELS = ["devices", "collectives"];
const COLORINGS = ["sharding", "collectives"];
const NONE: readonly Transition[] = [];

/** The changes to mark: those of the View while a panel or colouring about shardings is shown. */
export function markedTransitions(model: ViewModel, options: Options): readonly Transition[] {
  const wanted = PANELS.includes(options.panel) || COLORINGS.includes(options.colorBy);
  return wanted ? transitionsOf(model).rows : NONE;
}

/** Changes that start or end at an instruction. */
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
