/** Notes over the graph: what is highlighted, or that there is nothing to draw. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Store } from "../../state/store.ts";

export function emptyNote(graph: HTMLElement): void {
  const words = "Nothing is computed here: only parameters, constants and plumbing.";
  graph.append(h("p", { class: "nothing note" }, words));
}

export function highlightNote(graph: HTMLElement, store: Store, signal: AbortSignal): void {
  const words = h("span", { class: "clip" });
  const chip = h(
    "div",
    { class: "chip-note", role: "status" },
    words,
    h(
      "button",
      {
        class: "tool",
        type: "button",
        "aria-label": "Clear highlights",
        onclick: () => store.highlight(null),
      },
      "×",
    ),
  );
  chip.hidden = true;
  graph.append(chip);
  store.on(
    "highlight",
    () => {
      const lit = store.get("highlight");
      chip.hidden = !lit;
      if (lit)
        words.textContent = `${lit.reason}: ${format.count(lit.instructions.size)} highlighted`;
    },
    signal,
  );
}
