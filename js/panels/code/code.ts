/**
 * Source, jaxpr, StableHLO, this program and the graph side by side: pointing at a line in one
 * highlights what belongs to it in the others and brings it into view; a click pins it.
 *
 *     [Source] [jaxpr] [StableHLO] [Optimised HLO] [Graph]        two or three at once
 *     `x @ w` in `layer` (call 3 of 6, line 4) became one matmul in `fusion.12`.
 *     ┌ Source ────────┬ StableHLO ─────────┬ Optimised HLO ───┐
 *     │ h = x @ w      │ %1 = dot_general … │ %dot.7 = dot(…)  │
 */
import { fill, h } from "../../base/dom.ts";
import type { StagesModel } from "../../base/stages.ts";
import { entryComputation } from "../../state/members.ts";
import { Links } from "../../state/source/links.ts";
import type { StageText } from "../../view-extras.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { note } from "../parts/parts.ts";
import { TextLines } from "../parts/text/lines.ts";
import { type Choice, chooser, startingPanes } from "./choice.ts";
import { linkUp } from "./linking.ts";
import { type CodePane, codePane, type Shared } from "./pane.ts";
import { told } from "./told.ts";

export const code: Panel = {
  id: "code",
  title: "Code",
  ofNoChip: true,
  fills: true,
  width: 0.72,
  available: (model) => model.frame.count > 0,
  render(element, ctx) {
    fill(element, note("Loading the texts of all stages…"));
    ctx
      .stages()
      .then((stages) => {
        if (!ctx.signal.aborted) show(element, ctx, stages);
      })
      .catch((error: Error) => {
        if (ctx.signal.aborted) return;
        fill(
          element,
          h(
            "div",
            { class: "empty" },
            note(`The texts are missing: ${error.message}`),
            h(
              "button",
              { class: "mini", type: "button", onclick: () => code.render(element, ctx) },
              "Try again",
            ),
          ),
        );
      });
  },
};

function show(element: HTMLElement, ctx: PanelContext, stages: StagesModel): void {
  const links = new Links(stages);
  const shared: Shared = linkUp(ctx, links);
  const panes = new Map<string, CodePane>();
  const life = new Map<string, AbortController>();
  const place = h("div", { class: "panes" });
  const foot = told(() => shared.unpin(), ctx.signal);
  const idle = [stages.header.how, absentWords(stages)].filter(Boolean).join(" ");
  const tell = () => {
    const words = shared.sentence();
    const other = shared.pinned ? "Nothing is known about this line." : idle;
    foot.say(words || other, !words, shared.pinned);
  };

  const open = (choice: Choice) => {
    ctx.alone(!choice.graph);
    for (const [id, pane] of panes) {
      if (choice.texts.includes(id)) continue;
      life.get(id)?.abort();
      pane.element.remove();
      panes.delete(id);
    }
    for (const stage of stages.stages) {
      if (!choice.texts.includes(stage.id)) continue;
      let pane = panes.get(stage.id);
      if (!pane) {
        const own = new AbortController();
        ctx.signal.addEventListener("abort", () => own.abort(), { once: true, signal: own.signal });
        life.set(stage.id, own);
        pane = codePane(stages, stage, shared, own.signal);
        panes.set(stage.id, pane);
        void filled(ctx, stages, stage, pane, own.signal);
      }
      place.append(pane.element);
    }
    shared.panes = stages.stages.flatMap((s) => panes.get(s.id) ?? []);
    shared.refresh();
  };
  const choose = chooser(
    stages.stages,
    startingPanes(ctx, stages.stages, widthOf(element)),
    (now) => {
      ctx.store.setOptions({ panes: [...now.texts, ...(now.graph ? ["graph"] : [])].join() });
      open(now);
    },
  );
  fill(
    element,
    h(
      "div",
      { class: "code-panel" },
      h("div", { class: "bar-row" }, choose.element, inferredTag(stages)),
      foot.element,
      place,
    ),
  );
  shared.onChange = tell;
  // Arrow keys move the focus from pane to pane; Escape first releases what is pinned here.
  place.addEventListener("keydown", (event) => {
    const at = shared.panes.findIndex((p) => p.element.contains(event.target as Node));
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by && at >= 0 && !event.shiftKey) {
      const to = shared.panes[(at + by + shared.panes.length) % shared.panes.length];
      to.focus();
    } else if (event.key === "Escape" && shared.pinned) shared.unpin();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  ctx.store.on(
    "options",
    () => {
      const wanted = ctx.store.get("options").panes;
      if (wanted && choose.set(wanted)) open(choose.now());
    },
    ctx.signal,
  );
  open(choose.now());
  shared.start();
  tell();
}

/** Gives a pane its text; that of the View's own stage comes with the text block. */
async function filled(
  ctx: PanelContext,
  stages: StagesModel,
  stage: StageText,
  pane: CodePane,
  signal: AbortSignal,
): Promise<void> {
  if (!stage.own) {
    const lines = stages.linesOf(stage);
    const numbers = stage.id === "source" ? stages.sourceNumber : null;
    pane.set(
      {
        count: lines.length,
        text: (k) => lines[k],
        number: numbers ? (k) => (numbers[k] ? String(numbers[k]) : "") : undefined,
        heading: numbers ? (k) => numbers[k] === 0 : undefined,
      },
      (k) => k,
      (place) => stages.line[place],
    );
    return;
  }
  try {
    const text = new TextLines(await ctx.text());
    if (signal.aborted) return;
    pane.set(
      { count: text.count, text: (k) => text.line(k) },
      (k) => text.instruction(k),
      (place) => text.lineOfInstruction(stages.line[place]),
      entryLine(ctx, text),
    );
  } catch (error) {
    if (!signal.aborted) pane.fail(`Its text is missing: ${(error as Error).message}`);
  }
}

/** The line to start at: ENTRY, which follows the file tables and the computations it calls. */
function entryLine({ model }: PanelContext, text: TextLines): number {
  const offset = text.text.computationBegin[entryComputation(model)];
  return offset === undefined || offset === 0xffffffff ? 0 : text.lineOf(offset);
}

const widthOf = (element: HTMLElement): number =>
  element.closest<HTMLElement>(".root")?.clientWidth ?? 0;

/** Says which texts are missing that a captured program would have; "" if none. */
function absentWords({ stages, header }: StagesModel): string {
  if (header.exact) return "";
  const own = stages.find((s) => s.own)?.id;
  const missing = ["jaxpr", "StableHLO"].filter((title) => {
    const id = title.toLowerCase();
    return own !== "stablehlo" && own !== "jaxpr" && !stages.some((s) => s.id === id);
  });
  if (!missing.length) return "";
  return `There is no ${missing.join(" and no ")}: a dump does not hold them, hs.capture of the function does.`;
}

function inferredTag({ header }: StagesModel): HTMLElement | null {
  if (header.exact) return null;
  return h("span", { class: "tag", title: header.how }, "inferred links");
}
