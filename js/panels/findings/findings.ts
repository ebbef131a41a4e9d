/** What is worth acting on: ranked findings with their evidence, line, and what to try. */

import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { shortLine } from "../../base/lines.ts";
import { costsOf } from "../../state/cost/costs.ts";
import { findingsOf } from "../../state/findings.ts";
import type { Finding } from "../../view-extras.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { chipQuestion, editedNote } from "../parts/chips.ts";
import { copyButton, instructionRow, longList, note } from "../parts/parts.ts";
import { lineLink } from "../parts/source.ts";

export const findings: Panel = {
  id: "findings",
  title: "Findings",
  available: (model) => findingsOf(model) !== null,
  render(element, ctx) {
    const found = findingsOf(ctx.model);
    if (!found) return;
    element.append(
      h("h2", { class: "title" }, "Findings"),
      h("ul", { class: "headline" }, ...found.headline.map((part) => h("li", null, part))),
    );
    for (const more of [chipQuestion(ctx), editedNote(costsOf(ctx.model))]) {
      if (more) element.append(more);
    }
    if (found.rows.length) {
      element.append(
        h(
          "ol",
          { class: "findings" },
          ...found.rows.map((row, k) => h("li", null, card(ctx, row, k === 0))),
        ),
      );
    } else {
      element.append(
        note(`Nothing to report. ${format.count(found.rules)} rules ran, and none applied.`),
      );
    }
    for (const sentence of found.leftOut ?? []) element.append(note(sentence));
    for (const reason of found.failed) element.append(note(`Not worked out: ${reason}`));
  },
};

function card(ctx: PanelContext, row: Finding, first: boolean): HTMLElement {
  const { store, graph } = ctx;
  const show = () => {
    store.highlight({ instructions: new Set(row.instructions), reason: row.title });
    if (row.instructions.length) graph.reveal(row.instructions[0]);
  };
  const head = row.count
    ? h("button", { class: "finding-title", type: "button", onclick: show }, ...worded(row.title))
    : h("strong", { class: "finding-title" }, ...worded(row.title));
  const where =
    row.line || row.scope
      ? h(
          "div",
          { class: "finding-line" },
          row.scope ? h("span", null, row.scope) : null,
          row.line ? lineLink(ctx, row.line, { text: shortLine(row.line) }) : null,
          row.code ? h("code", null, row.code) : null,
          row.inferred
            ? h(
                "span",
                {
                  class: "dim",
                  title: "The compiler made it: this is the line of what it serves.",
                },
                "inferred",
              )
            : null,
        )
      : null;
  return h(
    "article",
    { class: "finding" },
    head,
    row.atStake ? h("div", { class: "dim" }, `At stake: ${row.atStake}`) : null,
    where,
    h(
      "details",
      { open: first },
      h("summary", null, row.advice ? "Why, and what to try" : "Why"),
      h("p", null, ...worded(row.evidence)),
      row.advice ? h("p", null, h("b", null, "Try: "), ...worded(row.advice)) : null,
    ),
    row.count
      ? h(
          "details",
          null,
          h("summary", null, format.plural(row.count, "operation")),
          longList(row.instructions, (i) => instructionRow(ctx, i)),
          row.count > row.instructions.length
            ? note(`and ${format.count(row.count - row.instructions.length)} more`)
            : null,
        )
      : null,
    copyButton(
      () =>
        [row.title, row.scope, row.line, row.evidence, row.advice && `Try: ${row.advice}`]
          .filter(Boolean)
          .join("\n"),
      "this finding",
    ),
  );
}

/** Text in which parts between backticks are code elements. */
function worded(text: string): Child[] {
  return text.split("`").map((part, k) => (k % 2 ? h("code", null, part) : part));
}
