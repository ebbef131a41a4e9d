/**
 * What every compiler pass did: the passes in a table, and over the graph the module as it was
 * after the chosen pass, laid out once for all passes, so that what stays does not move.
 */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Csr } from "../../base/model.ts";
import { Life, type Passes } from "../../state/passes/passes.ts";
import { NOTHING } from "../../state/store.ts";
import type { PanelContext, Stage } from "../panel.ts";
import { note } from "../parts/parts.ts";
import { history } from "../parts/pass-history.ts";
import { type DiffPane, diffPane } from "./diff.ts";
import { PassHeader } from "./header.ts";
import { figures, type Timeline, timeline } from "./timeline.ts";
import { compileTimes, type Times } from "./times.ts";

/** The row shown last, so that closing the panel does not lose the place. */
const lastRows = new WeakMap<Passes, number>();

const LEGEND: [Life, string, string][] = [
  [Life.Kept, "kept", ""],
  [Life.Added, "added", "+"],
  [Life.Removed, "removed", "−"],
  [Life.Changed, "changed", "~"],
];
/** Operands of this many rows are kept: a step needs those of two rows. */
const KEPT_OPERANDS = 3;
const ZOOM = 1.4; // as with the explorer's own keys

export class PassBrowser {
  private row: number;
  /** The lines that changed are shown instead of the graph. */
  private asText = false;
  private readonly stage: Stage;
  private readonly header: PassHeader;
  private readonly diff: DiffPane;
  private readonly table: Timeline;
  private readonly times: Times;
  private readonly undrawn = h("span", { class: "dim clip pass-undrawn", role: "status" });
  private readonly legend = h("div", { class: "pass-key", role: "group", "aria-label": "Colours" });
  /** Passes that are still to come. */
  private readonly rest = h("p", { class: "note pass-rest", role: "status" });
  private readonly stop: HTMLElement;
  /** The chosen instruction throughout its life, or the figures of the pass. */
  private readonly chosen = h("div", {
    class: "pass-life",
    role: "region",
    tabindex: "0",
    "aria-label": "The chosen instruction",
  });
  private operands: { row: number; values: Csr }[] = [];

  constructor(
    element: HTMLElement,
    private readonly ctx: PanelContext,
    private readonly passes: Passes,
  ) {
    const { store, signal } = ctx;
    this.row = Math.min(lastRows.get(passes) ?? passes.begin, passes.rows.length - 1);
    this.stage = ctx.stage(passes.model, signal);
    this.header = new PassHeader(passes, {
      step: (by) => this.step(by),
      showText: (text) => this.showText(text),
    });
    this.diff = diffPane(
      passes,
      (i) => this.stage.store.selectInstruction(i),
      () => this.selected,
      signal,
    );
    this.fillStage();
    this.table = timeline(passes, (row) => this.go(row), signal);
    this.stop = h(
      "button",
      { class: "mini", type: "button", onclick: () => ctx.passes.cancel() },
      "stop",
    );
    const about = passes.note ? note(passes.note) : null;
    this.times = compileTimes(passes, ctx.passes, (row) => this.go(row), signal);
    fill(
      element,
      h(
        "div",
        { class: "column" },
        about,
        this.times.element,
        this.rest,
        this.table.element,
        this.chosen,
      ),
    );
    this.stage.store.on("selection", () => this.selectedHere(), signal);
    store.on("selection", () => this.selectedElsewhere(), signal);
    this.bindKeys(signal);

    this.showText(false);
    this.describe();
    this.go(this.row);
    this.selectedElsewhere();
    this.takeFocus();
    // Wait until the panel has its width.
    requestAnimationFrame(() => this.selected < 0 && this.stage.pane.fit());
  }

  /** To be called when more passes or figures have arrived. */
  update(): void {
    const { state } = this.ctx.passes;
    const words = state.is === "ready" ? state.rest : "";
    fill(this.rest, words, state.is === "ready" && state.more ? this.stop : null);
    this.rest.hidden = !words;
    this.times.update();
    this.table.renew();
    if (this.selected < 0) this.describe();
  }

  private fillStage(): void {
    const entries = LEGEND.map(([life, word, sign]) =>
      h("span", { class: "key" }, h("i", { class: `life-${life}` }, sign), h("span", null, word)),
    );
    this.legend.append(...entries, this.undrawn);
    this.diff.element.hidden = true;
    this.stage.element.prepend(...this.header.elements);
    this.stage.element.append(this.legend, this.diff.element);
  }
  /** The chosen instruction; -1 for none. */
  private get selected(): number {
    const { kind, index } = this.stage.store.get("selection");
    return kind === "instruction" ? index : -1;
  }
  private showText(text: boolean): void {
    this.asText = text;
    this.stage.graph.hidden = text;
    this.legend.hidden = text;
    this.diff.element.hidden = !text;
    this.header.setText(text);
    if (text) this.diff.show(this.row);
  }

  private go(row: number): void {
    const { passes, table } = this;
    this.row = row;
    lastRows.set(passes, row);
    table.update(row);
    this.header.update(row, table.next(row, -1) === row, table.next(row, 1) === row);
    if (this.selected < 0) this.describe();
    this.stage.pane.setLife({
      state: passes.lives(row),
      operands: this.operandsAt(row),
      before: this.operandsAt(Math.max(0, row - 1)),
      onUndrawn: (arrows) => {
        const words = `${format.plural(arrows, "more arrow", "more arrows")} not drawn: close some boxes`;
        this.undrawn.textContent = arrows ? words : "";
        this.undrawn.title = this.undrawn.textContent;
      },
    });
    if (this.asText) this.diff.show(row);
  }
  private step(by: 1 | -1): void {
    this.go(this.table.next(this.row, by));
  }
  private toFirst(): void {
    this.go(this.table.next(-1, 1));
  }
  private toLast(): void {
    this.go(this.table.next(this.passes.rows.length, -1));
  }
  private operandsAt(row: number): Csr {
    const known = this.operands.find((entry) => entry.row === row);
    if (known) return known.values;
    const values = this.passes.operandsAt(row);
    this.operands = [{ row, values }, ...this.operands.slice(0, KEPT_OPERANDS - 1)];
    return values;
  }

  /** Writes about the chosen instruction, or about the pass. */
  private describe(): void {
    const { passes, row, stage, selected } = this;
    if (selected < 0) {
      fill(
        this.chosen,
        h("h2", { class: "title" }, passes.title(row)),
        figures(passes, row),
        note("Click a box or a line to see when it appeared, why, and what it was before."),
      );
      return;
    }
    fill(
      this.chosen,
      h("h2", { class: "title" }, `%${passes.model.name(selected)}`),
      ...history(passes, selected, {
        row: (to) => this.go(to),
        instruction: (other, at) => {
          this.go(at);
          stage.store.selectInstruction(other);
          stage.pane.reveal(other);
        },
      }),
    );
    this.chosen.scrollTop = 0;
    this.diff.reveal(selected);
  }
  private selectedHere(): void {
    this.describe();
    const { selected, passes } = this;
    if (selected < 0) return;
    // What still exists at the end is selected in the main picture as well.
    const final = passes.final[selected];
    if (final >= 0) this.ctx.store.selectInstruction(final);
    else this.ctx.store.select(NOTHING);
  }
  private selectedElsewhere(): void {
    const { kind, index } = this.ctx.store.get("selection");
    const instruction = kind === "instruction" ? this.passes.fromFinal(index) : -1;
    if (instruction < 0 || instruction === this.selected) return;
    this.stage.store.selectInstruction(instruction);
    this.stage.pane.reveal(instruction);
  }

  /** Keys take precedence over the explorer's, as its picture is covered. */
  private bindKeys(signal: AbortSignal): void {
    const { pane } = this.stage;
    const keys: Record<string, () => unknown> = {
      ArrowRight: () => this.step(1),
      j: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      k: () => this.step(-1),
      Home: () => this.toFirst(),
      End: () => this.toLast(),
      ArrowUp: () => pane.focusNext("operand"),
      ArrowDown: () => pane.focusNext("user"),
      Enter: () => pane.toggleSelected(),
      f: () => pane.fit(),
      "+": () => pane.zoom(ZOOM),
      "=": () => pane.zoom(ZOOM),
      "-": () => pane.zoom(1 / ZOOM),
      x: () => this.showText(!this.asText),
    };
    const pressed = (event: KeyboardEvent) => {
      const action = keys[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isForFocused(this.focused, event.key)) return;
      action();
      event.preventDefault();
      event.stopPropagation();
    };
    this.root.addEventListener("keydown", pressed, { signal, capture: true });
  }
  private get root(): HTMLElement {
    return this.stage.element.closest(".root") as HTMLElement;
  }
  private get focused(): Element | null {
    return (this.root.getRootNode() as ShadowRoot).activeElement;
  }
  /** A tab that was clicked passes the focus on, so that arrows step; reached by keyboard, it keeps it. */
  private takeFocus(): void {
    const at = this.focused;
    if (at?.matches(".tab") && !at.matches(":focus-visible")) this.table.focus();
  }
}

/** Whether the key belongs to the element that has the focus. */
function isForFocused(focused: Element | null, key: string): boolean {
  if (!focused) return false;
  const isLetter = key.length === 1;
  if (focused.matches("input, select, textarea")) return true;
  if (focused.closest(".popover, .sheet")) return true;
  if (!isLetter && focused.closest(".tabs, .grip")) return true;
  if (focused.closest(".code-pane") && /Up|Down|Enter|Home|End/.test(key)) return true;
  return key === "Enter" && focused.matches("button");
}
