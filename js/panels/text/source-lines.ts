/** The user's own Python with a heat bar per line; clicking a line highlights its operations. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { baseName, shortPlace, wholePlace } from "../../base/lines.ts";
import { instructionsOf, withFused } from "../../state/members.ts";
import { FIGURES, type Figure, type LineFigures, sourcesOf } from "../../state/source/sources.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { note } from "../parts/parts.ts";

const LABELS: Record<Figure, string> = {
  flops: "FLOPs",
  measured: "Measured time",
  seconds: "Modelled time",
  bytes: "Bytes accessed",
  wire: "Wire bytes",
  live: "Live bytes at peak",
};
const text = (figure: Figure, value: number) =>
  figure === "flops"
    ? format.quantity(value, "FLOP")
    : figure === "seconds" || figure === "measured"
      ? format.seconds(value)
      : format.bytes(value);

export const sourceLines: Panel = {
  id: "source",
  title: "Source",
  width: 0.42,
  fills: true,
  available: (model) => sourcesOf(model) !== null,
  render(element, ctx) {
    const sources = sourcesOf(ctx.model);
    if (!sources) return;
    sources.work(); // the chip or a trip count may have changed while the panel was closed
    const known = FIGURES.filter((f) => sources.has(f));
    let figure: Figure = known.find((f) => f === "measured" || f === "seconds") ?? "flops";
    let libraries = false;
    const body = h("div", {
      class: "source-files",
      tabindex: "0",
      role: "region",
      "aria-label": "Source lines",
    });
    const choose = h(
      "select",
      {
        onchange: () => {
          figure = choose.value as Figure;
          show();
        },
      },
      ...known.map((f) => h("option", { value: f }, LABELS[f])),
    );
    choose.value = figure;
    const folded = h("input", {
      type: "checkbox",
      onchange: () => {
        libraries = folded.checked;
        show();
      },
    });
    const show = () => {
      const files = sources.files(libraries);
      const most = Math.max(1e-300, ...files.flatMap((f) => f.lines.map((l) => l.own[figure])));
      body.replaceChildren(
        ...files.map((file) => fileSection(ctx, file.file, file.text, file.lines, figure, most)),
      );
      const lost = sources.unattributed[figure];
      const whose =
        figure === "live" ? "arguments and values without a line" : "operations that name no line";
      const said = lost > 0 ? `${text(figure, lost)} of ${whose}.` : "All of it has a line.";
      const unknown = sources.unknown[figure];
      const what = figure === "flops" ? "FLOPs" : LABELS[figure].toLowerCase();
      const lacking = unknown
        ? ` Left out: ${format.plural(unknown, "operation")} of unknown ${what}.`
        : "";
      if (files.length) body.append(h("p", { class: "note unattributed" }, said + lacking));
      follow();
      point();
    };
    /** Marks the lines of what is selected and, more faintly, those that call them. */
    const follow = (showFirst = false) => {
      const chosen = withFused(ctx.model, instructionsOf(ctx.model, ctx.store.get("selection")));
      const { own, around } = sources.linesOf(chosen);
      let first: HTMLElement | null = null;
      for (const section of body.querySelectorAll<HTMLElement>("[data-file]")) {
        for (const row of section.querySelectorAll<HTMLElement>("[data-line]")) {
          const key = `${section.dataset.file}:${row.dataset.line}`;
          row.classList.toggle("of-selection", own.has(key));
          row.classList.toggle("calls-selection", around.has(key));
          if (own.has(key)) {
            row.setAttribute("aria-current", "true");
            first ??= row;
          } else row.removeAttribute("aria-current");
        }
      }
      if (showFirst && first) bring(first);
    };
    const bring = (row: HTMLElement) => {
      const above = row.getBoundingClientRect().top - body.getBoundingClientRect().top;
      if (above < 30 || above > body.clientHeight - 30) {
        body.scrollTop += above - body.clientHeight / 3;
      }
    };
    /** Marks the line that another panel points at, and brings it into view. */
    const point = () => {
      const at = ctx.store.get("line");
      if (!at) return;
      const file = [...body.querySelectorAll<HTMLElement>("[data-file]")].find(
        (f) => f.dataset.file === at.file,
      );
      if (!file && !libraries && sources.isLibrary(at.file)) {
        libraries = folded.checked = true;
        show(); // calls point() again
        return;
      }
      const row = () => file?.querySelector<HTMLElement>(`[data-line="${at.line}"]`);
      if (file && !row()) file.querySelector<HTMLElement>("button.whole")?.click();
      for (const old of body.querySelectorAll(".pointed")) old.classList.remove("pointed");
      const found = row();
      if (!found) return;
      found.classList.add("pointed");
      bring(found);
    };
    const take = () => {
      const asked = known.find((f) => f === ctx.store.get("line")?.figure);
      if (!asked || asked === figure) return point();
      figure = choose.value = asked;
      show();
    };
    ctx.store.on("line", take, ctx.signal);
    const chosen = () => {
      for (const old of body.querySelectorAll(".pointed")) old.classList.remove("pointed");
      follow(true);
    };
    ctx.store.on("selection", chosen, ctx.signal);
    sources.costs.on(() => {
      sources.work();
      show();
    }, ctx.signal);
    element.append(
      h(
        "div",
        { class: "column" },
        h(
          "div",
          { class: "bar-row" },
          h("label", { class: "field" }, "Heat by ", choose),
          h("label", { class: "field" }, folded, "libraries"),
        ),
        body,
      ),
    );
    const asked = known.find((f) => f === ctx.store.get("line")?.figure);
    if (asked) figure = choose.value = asked;
    show();
    if (!ctx.store.get("line")) follow(true);
  },
};

/** A file: its lines with costs and some around them; all lines on request. */
function fileSection(
  ctx: PanelContext,
  file: string,
  source: string | null,
  lines: LineFigures[],
  figure: Figure,
  most: number,
): HTMLElement {
  const byLine = new Map(lines.map((l) => [l.line, l]));
  const total = lines.reduce((sum, l) => sum + l.own[figure], 0);
  const list = h("div", { class: "source-list" });
  const texts = source?.split("\n") ?? null;
  const row = (number: number) =>
    lineRow(ctx, file, number, texts, byLine.get(number), figure, most);
  const near = () => {
    let before = 0;
    for (const line of [...byLine.keys()].sort((a, b) => a - b)) {
      const from = Math.max(before + 1, texts ? line - 2 : line);
      const to = texts ? Math.min(texts.length, line + 1) : line;
      if (before && from > before + 1) list.append(h("div", { class: "cut" }, "⋯"));
      for (let n = from; n <= to; n++) list.append(row(n));
      before = Math.max(before, to);
    }
  };
  near();
  const whole =
    texts &&
    h(
      "button",
      {
        class: "mini whole",
        type: "button",
        onclick: (event: MouseEvent) => {
          list.replaceChildren(...texts.map((_, k) => row(k + 1)));
          (event.currentTarget as HTMLElement).remove();
        },
      },
      "whole file",
    );
  return h(
    "section",
    { class: "source-file", "data-file": file },
    h(
      "h3",
      { title: file },
      h("span", { class: "mono" }, baseName(file)),
      total > 0 ? h("span", { class: "dim" }, text(figure, total)) : null,
      whole,
    ),
    texts ? null : note("Not readable at capture: lines only."),
    h(
      "div",
      { class: "source-line source-head", "aria-hidden": "true" },
      h("span", { class: "number" }),
      h("span", { class: "heat" }, "itself"),
      h("span", { class: "heat with-called" }, "with calls"),
      h("span", { class: "code" }),
    ),
    list,
  );
}

function lineRow(
  ctx: PanelContext,
  file: string,
  number: number,
  texts: string[] | null,
  found: LineFigures | undefined,
  figure: Figure,
  most: number,
): HTMLElement {
  const own = found?.own[figure] ?? 0;
  const total = found?.total[figure] ?? 0;
  const guess = found?.inferred[figure] ?? 0;
  const heat = own > 0 ? Math.max(4, Math.round((100 * own) / most)) : 0;
  const children = [
    h("span", { class: "number" }, String(number)),
    h("span", { class: "heat" }, own > 0 ? text(figure, own) : ""),
    h("span", { class: "heat with-called" }, total > own ? text(figure, total) : ""),
    h("span", { class: "code" }, texts?.[number - 1] ?? (found?.function || "")),
    guess >= 0.005 * own && guess > 0
      ? h("span", { class: "tag" }, `${Math.round((100 * guess) / own)} % inferred`)
      : null,
  ];
  const style: Record<string, string> = heat ? { "--heat": `${heat}%` } : {};
  if (!found) return h("div", { class: "source-line", "data-line": number }, ...children);
  return h(
    "button",
    {
      class: `source-line hot${own > 0 ? " own" : ""}`,
      type: "button",
      "data-line": number,
      style,
      title: `${wholePlace(`${file}:${number}`)}\n${LABELS[figure]}: ${text(figure, total)}, itself ${text(figure, own)}${guess > 0 ? `, ${text(figure, guess)} of it inferred: by operations that name no line, for those that name this one` : ""}\n${format.plural(found.instructions.length, "operation")}`,
      onclick: () => {
        const reason = shortPlace(file, number);
        const same = ctx.store.get("highlight")?.reason === reason;
        ctx.store.highlight(same ? null : { instructions: new Set(found.instructions), reason });
        if (!same && found.instructions.length) ctx.graph.reveal(found.instructions[0]);
      },
      ondblclick: () => ctx.host.openSource?.(file, number),
    },
    ...children,
  );
}
