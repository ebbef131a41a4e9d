/** One instruction through all passes: when it appeared, what it replaced, how it changed, when it went. */
import { type Child, fill, h } from "../../base/dom.ts";
import type { Partner, Passes } from "../../state/passes/passes.ts";
import type { PanelContext } from "../panel.ts";
import { longList, note, section } from "./parts.ts";

export interface HistoryLinks {
  /** Another instruction of the passes. */
  instruction(i: number, row: number): void;
  row(row: number): void;
}

export function history(passes: Passes, i: number, links: HistoryLinks): Child[] {
  const { model } = passes;
  const first = passes.first[i];
  const last = passes.last[i];
  const lines = passes.history(i);
  const { before, after } = passes.partners(i);
  const pass = (row: number): HTMLElement =>
    h(
      "button",
      { class: "link", type: "button", onclick: () => links.row(row) },
      passes.title(row),
    );
  const partner = (p: Partner): HTMLElement =>
    h(
      "li",
      null,
      h("span", { class: "dim" }, p.how),
      h(
        "button",
        { class: "link", type: "button", onclick: () => links.instruction(p.instruction, p.row) },
        `%${model.name(p.instruction)}`,
      ),
      h(
        "span",
        { class: "dim mono" },
        `${model.opcode(p.instruction)} ${model.denseShape(p.instruction)}`,
      ),
    );
  const { about } = passes.rows[first];
  const born =
    first === 0
      ? h("p", null, "It was there before any pass.")
      : h(
          "p",
          null,
          "It appeared in ",
          pass(first),
          `, pass ${first + 1} of ${passes.rows.length}.`,
        );
  const gone =
    last >= passes.rows.length
      ? h("p", null, "It is in the program that runs.")
      : h(
          "p",
          null,
          "It was gone after ",
          pass(last),
          after.length ? ":" : "; nothing took its place.",
        );
  const changes = lines.slice(1);
  return [
    section(
      "When it appeared, and why",
      born,
      first > 0 && about ? note(about) : null,
      before.length > 0 && longList(before, partner, 6),
      first > 0 && !before.length && note("What was there before it is unknown."),
    ),
    changes.length > 0 &&
      section(
        "What changed",
        longList(
          changes,
          (c) =>
            h(
              "li",
              null,
              pass(c.row),
              h("span", { class: "dim" }, c.changed.join(", ") || "text only"),
            ),
          8,
        ),
      ),
    section("What became of it", gone, after.length > 0 && longList(after, partner, 6)),
    section(
      "Its lines",
      ...lines.map((line) => h("pre", { class: "wrap", title: passes.title(line.row) }, line.line)),
    ),
  ];
}

/** The same in Details, for an instruction of the program, on request. */
export function passesSection(ctx: PanelContext, index: number): HTMLElement | null {
  const loader = ctx.passes;
  if (!loader.offered) return null;
  const box = h("div", null);
  const draw = () => {
    const { state } = loader;
    if (state.is === "ready") {
      const i = state.passes.fromFinal(index);
      const open = () => ctx.store.setOptions({ panel: "passes" });
      fill(
        box,
        ...(i < 0
          ? [
              section(
                "When it appeared",
                note("It has another name in the last dump of the passes."),
              ),
            ]
          : history(state.passes, i, { row: open, instruction: open }).slice(0, 2)),
      );
      return;
    }
    const words =
      state.is === "loading"
        ? `${state.words}…`
        : state.is === "failed"
          ? state.message
          : loader.price;
    const ask = h(
      "button",
      { class: "mini", type: "button", onclick: () => void loader.start() },
      "When did it appear?",
    );
    fill(
      box,
      section(
        "Passes",
        h("p", { class: "note" }, state.is !== "loading" && ask, words ? ` ${words}` : null),
      ),
    );
  };
  loader.on(draw, ctx.signal);
  draw();
  return box;
}
