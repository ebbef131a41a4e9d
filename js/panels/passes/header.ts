/** Above the picture of a pass: its name and what it changed, and buttons to step and to read lines. */
import { h } from "../../base/dom.ts";
import type { Passes } from "../../state/passes/passes.ts";

export interface HeaderActions {
  step(by: 1 | -1): void;
  /** Shows the lines that changed instead of the graph. */
  showText(text: boolean): void;
}

const tool = (label: string, title: string | undefined, onclick: () => void) =>
  h("button", { class: "tool", type: "button", title, onclick }, label);

export class PassHeader {
  private readonly title = h("strong", { class: "clip" });
  private readonly where = h("span", { class: "dim clip where" });
  // Its line is kept for passes without a description too, as the picture below must not move.
  private readonly about = h("p", { class: "note clip pass-about" });
  private readonly changes = h("span", { class: "pass-did", role: "status" });
  private readonly back: HTMLButtonElement;
  private readonly forward: HTMLButtonElement;
  private readonly graph: HTMLButtonElement;
  private readonly text: HTMLButtonElement;
  readonly elements: HTMLElement[];

  constructor(
    private readonly passes: Passes,
    actions: HeaderActions,
  ) {
    this.about.hidden = !passes.rows.some((row) => row.about);
    this.back = tool("←", "Previous pass (← or k)", () => actions.step(-1));
    this.forward = tool("→", "Next pass (→ or j)", () => actions.step(1));
    this.graph = tool("Graph", undefined, () => actions.showText(false));
    this.text = tool("Text", "Lines that changed (x)", () => actions.showText(true));
    const bar = h(
      "div",
      { class: "pass-bar" },
      this.back,
      this.forward,
      h("div", { class: "pass-title" }, this.title, this.where),
      this.changes,
      h("span", { class: "gap" }),
      this.graph,
      this.text,
    );
    this.elements = [bar, this.about];
  }

  update(row: number, isFirst: boolean, isLast: boolean): void {
    const { title: pass, pipeline, about } = this.passes.rows[row];
    this.title.textContent = pass;
    const position = `${row + 1} of ${this.passes.rows.length}`;
    this.where.textContent = pipeline ? `${pipeline} · ${position}` : position;
    this.about.textContent = about;
    this.about.title = about;
    this.changes.textContent = changesOf(this.passes, row);
    this.back.disabled = isFirst;
    this.forward.disabled = isLast;
  }
  setText(text: boolean): void {
    this.graph.setAttribute("aria-pressed", String(!text));
    this.text.setAttribute("aria-pressed", String(text));
  }
}

/** "+3  −1  ~2" */
function changesOf(passes: Passes, row: number): string {
  if (row === 0) return "the beginning";
  const { added, removed, changed, renamed } = passes.rows[row];
  const words: string[] = [];
  const say = (amount: number, sign: string, after = "") => {
    if (amount > 0) words.push(`${sign}${amount.toLocaleString("en-US")}${after}`);
  };
  say(added, "+");
  say(removed, "−");
  say(changed, "~");
  say(renamed, "", " renamed (inferred)");
  return words.join("  ") || "only metadata, order or names";
}
