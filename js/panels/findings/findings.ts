/** What is worth acting on: ranked findings with their evidence, line, and what to try. */

import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { shortLine } from "../../base/lines.ts";
import { costsOf } from "../../state/cost/costs.ts";
import { findingsOf } from "../../state/findings.ts";
import type { Finding, Findings, Proof } from "../../view-extras.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { chipQuestion, editedNote } from "../parts/chips.ts";
import { copyButton, instructionRow, longList, note } from "../parts/parts.ts";
import { lineLink } from "../parts/source.ts";

export const findings: Panel = {
  id: "findings",
  title: "Findings",
  available: (model) => findingsOf(model) !== null,
  render(element, ctx) {
    draw(element, ctx);
  },
};

function draw(element: HTMLElement, ctx: PanelContext): void {
  const found = findingsOf(ctx.model);
  if (!found) return;
  element.replaceChildren();
  const again = (made: Findings, tried: Finding) => {
    ctx.model.header.extras.findings = made;
    draw(element, ctx);
    // what gained nothing is last now
    const at = made.rows.findIndex((r) => r.rule === tried.rule && r.title === tried.title);
    element.querySelectorAll(".finding")[at]?.scrollIntoView({ block: "nearest" });
  };
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
        ...found.rows.map((row, k) => h("li", null, card(ctx, row, k === 0, again))),
      ),
    );
  } else {
    element.append(
      note(`Nothing to report. ${format.count(found.rules)} rules ran, and none applied.`),
    );
  }
  for (const sentence of found.leftOut ?? []) element.append(note(sentence));
  for (const reason of found.failed) element.append(note(`Not worked out: ${reason}`));
}

/** What trying the advice gave: each way, its figures, and the code to put into the source. */
function proofs(ctx: PanelContext, row: Finding): HTMLElement | null {
  if (!row.proofs?.length) return null;
  return h(
    "ul",
    { class: "proofs" },
    ...row.proofs.map((proof, way) => tried(ctx, row, proof, way)),
  );
}

function tried(ctx: PanelContext, row: Finding, proof: Proof, way: number): HTMLElement {
  const difference = h("div", null);
  const differs = (text: string) =>
    difference.replaceChildren(
      h("details", null, h("summary", null, "What differs"), h("pre", { class: "wrap" }, text)),
    );
  if (proof.diff) differs(proof.diff);
  return h(
    "li",
    { class: proof.isProved ? "proved" : "dim" },
    proof.words,
    // the sentence has the one figure that it is about
    proof.figures && proof.figures.length > 1 ? beforeAndAfter(proof.figures) : null,
    ...proof.code.map((code, k) => codeToPaste(code, proof.lines[k], proof.isProved)),
    difference,
    proof.compiled ? opened(ctx, row, way, differs) : null,
  );
}

/** The figures that differ, a line each. */
function beforeAndAfter(figures: readonly string[][]): HTMLElement {
  return h(
    "ul",
    { class: "before-after" },
    ...figures.map(([name, before, after, change]) =>
      h(
        "li",
        null,
        h("span", { class: "dim" }, name),
        h("span", null, `${before} → ${after}`),
        change ? h("span", null, change) : null,
      ),
    ),
  );
}

/** The code of one change: open where it is known to gain something. */
function codeToPaste(code: string, line: string, open: boolean): HTMLElement {
  return h(
    "details",
    { open },
    h("summary", null, line ? `Code to paste, ${shortLine(line)}` : "Code to paste"),
    h("pre", { class: "wrap" }, code),
    copyButton(() => code, "this code"),
  );
}

/** Buttons that show the program of a change that was tried, alone or beside this one. */
function opened(
  ctx: PanelContext,
  row: Finding,
  way: number,
  differs: (text: string) => void,
): HTMLElement | null {
  const { host } = ctx;
  if (!host.tried) return null;
  const at = h("div", { class: "finding-try", "aria-live": "polite" });
  const offer = (...said: HTMLElement[]) => at.replaceChildren(...both(), ...said);
  const both = () =>
    (["program", "diff"] as const).map((as) =>
      h(
        "button",
        {
          class: "mini",
          type: "button",
          title:
            as === "diff"
              ? "This program and the changed one side by side, in a new tab"
              : "The changed program in a new tab",
          onclick: () => void run(as),
        },
        as === "diff" ? "Diff" : "Open",
      ),
    );
  const run = async (as: "program" | "diff") => {
    const stop = new AbortController();
    const cancel = () => stop.abort();
    ctx.signal.addEventListener("abort", cancel, { once: true });
    at.replaceChildren(
      h("span", null, "Compiling…"),
      h("button", { class: "mini", type: "button", onclick: cancel }, "Cancel"),
    );
    try {
      const made = await host.tried?.({ rule: row.rule, title: row.title, way, as }, stop.signal);
      if (!made || ctx.signal.aborted) return;
      if (made.findings) {
        ctx.model.header.extras.findings = made.findings;
        const same = made.findings.rows.find((r) => r.rule === row.rule && r.title === row.title);
        const text = same?.proofs?.[way]?.diff;
        if (text) differs(text);
      }
      const url = URL.createObjectURL(new Blob([made.page as BlobPart], { type: "text/html" }));
      ctx.signal.addEventListener("abort", () => URL.revokeObjectURL(url), { once: true });
      window.open(url, "_blank");
      // a browser may block what opens long after a click
      const text = as === "diff" ? "both programs" : "the changed program";
      offer(h("a", { class: "link", href: url, target: "_blank", rel: "noopener" }, text));
    } catch (error) {
      offer(note(`Not opened: ${(error as Error).message}`));
    } finally {
      ctx.signal.removeEventListener("abort", cancel);
    }
  };
  offer();
  return at;
}

/** Tries what a finding advises, in the kernel: a button, then progress that can be cancelled. */
function tryIt(
  ctx: PanelContext,
  row: Finding,
  done: (found: Findings) => void,
): HTMLElement | null {
  const { host } = ctx;
  if (!host.prove || !row.ways?.length) return null;
  const at = h("div", { class: "finding-try", "aria-live": "polite" });
  const offer = (failed = "") => {
    const start = () => void run();
    const title = "Compiles the program with this change, and says what it gains";
    at.replaceChildren(
      h(
        "button",
        { class: "mini", type: "button", onclick: start, title },
        row.proofs ? "Try again" : "Try it",
      ),
      h("span", { class: "dim" }, row.ways?.join("; or ") ?? ""),
      failed ? note(failed) : "",
    );
  };
  const run = async () => {
    const stop = new AbortController();
    const said = h("span", null, "Compiling…");
    const cancel = () => stop.abort();
    ctx.signal.addEventListener("abort", cancel, { once: true });
    at.replaceChildren(
      said,
      h("button", { class: "mini", type: "button", onclick: cancel }, "Cancel"),
    );
    try {
      const show = (words: string) => said.replaceChildren(words);
      const key = { rule: row.rule, title: row.title };
      const found = await host.prove?.(key, show, stop.signal);
      if (found && !ctx.signal.aborted) done(found);
    } catch (error) {
      offer(`Not tried: ${(error as Error).message}`);
    } finally {
      ctx.signal.removeEventListener("abort", cancel);
    }
  };
  offer();
  return at;
}

function card(
  ctx: PanelContext,
  row: Finding,
  first: boolean,
  again: (found: Findings, tried: Finding) => void,
): HTMLElement {
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
    proofs(ctx, row),
    tryIt(ctx, row, (found) => again(found, row)),
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
        [
          row.title,
          row.scope,
          row.line,
          row.evidence,
          row.advice && `Try: ${row.advice}`,
          ...(row.proofs ?? []).map((proof) => proof.words),
        ]
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
