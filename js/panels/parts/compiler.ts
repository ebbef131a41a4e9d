/** Compiler warnings about what is shown, with their line and XLA's own text. */
import { h } from "../../base/dom.ts";
import { compilerMessages } from "../../state/devices/compiler.ts";
import type { PanelContext } from "../panel.ts";
import { facts, section } from "./parts.ts";
import { lineLink } from "./source.ts";

/** One section per message. */
export function compilerSections(ctx: PanelContext, instructions: Iterable<number>): HTMLElement[] {
  return compilerMessages(ctx.model, instructions).map((m) => {
    const what = m.operation ? [h("code", null, `%${m.operation}`), ` ${m.shape}`] : "a value";
    const rows: [string, string | HTMLElement | (string | HTMLElement)[]][] = [
      ["Of", what],
      ["From", m.had],
      ["To", m.needs],
    ];
    if (m.line) rows.push(["At", lineLink(ctx, m.line)]);
    return section(
      `XLA warns: ${m.kind}`,
      facts(rows),
      h(
        "p",
        { class: "note" },
        "It knows no direct way between these two shardings: each device gathers the whole value, then cuts its part out.",
      ),
      h(
        "details",
        null,
        h("summary", null, "XLA's own words"),
        h("pre", { class: "wrap", tabindex: "0" }, m.text),
      ),
    );
  });
}
