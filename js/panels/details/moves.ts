/** Asynchronous moves, in the Details of the instructions that send or read them. */
import { h } from "../../base/dom.ts";
import { movesOf, moveText } from "../../state/devices/moves.ts";
import type { PanelContext } from "../panel.ts";
import { section, selectionLink } from "../parts/parts.ts";

const LISTED = 12;

export function moveSection(ctx: PanelContext, i: number): HTMLElement | null {
  const moves = movesOf(ctx.model);
  const rows = moves?.byInstruction.get(i);
  if (!moves || !rows) return null;
  const link = (index: number) => selectionLink(ctx, { kind: "instruction", index });
  return section(
    "Moved beside the computation",
    h(
      "ul",
      { class: "list" },
      ...rows
        .slice(0, LISTED)
        .map((m) =>
          h(
            "li",
            null,
            h("span", { class: "wrap" }, moveText(m)),
            h("span", { class: "dim" }, m.source === i ? " for " : " of "),
            m.source === i
              ? m.users.length
                ? link(m.users[0])
                : "an instruction that is not drawn"
              : link(m.source),
          ),
        ),
    ),
    rows.length > LISTED && h("p", { class: "dim" }, `and ${rows.length - LISTED} more`),
    moves.hardware !== null &&
      h(
        "p",
        { class: "dim" },
        `Modelled on ${moves.hardware}: hidden where work between start and done covers it.`,
      ),
  );
}
