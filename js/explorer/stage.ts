/** A separate picture that a panel puts over the graph: the same drawing code, for another View. */
import { h } from "../base/dom.ts";
import type { ViewModel } from "../base/model.ts";
import { createGraphPane, type GraphTheme } from "../draw/graph-pane.ts";
import type { Stage } from "../panels/panel.ts";
import { Store } from "../state/store.ts";

export class Stages {
  private open = new Set<(theme: GraphTheme) => void>();

  constructor(
    private over: HTMLElement,
    private theme: () => GraphTheme,
  ) {}

  make(model: ViewModel, signal: AbortSignal): Stage {
    const graph = h("div", { class: "stage-graph" });
    const element = h("div", { class: "stage" }, graph);
    this.over.append(element);
    const store = new Store(model);
    const pane = createGraphPane(graph, model, store, this.theme(), signal);
    pane.setMinimap(false);
    // Passes insert and remove copies and transposes, so draw asynchronous copies too.
    pane.setShown(false, true);
    const dress = (theme: GraphTheme) => pane.setTheme(theme);
    this.open.add(dress);
    signal.addEventListener(
      "abort",
      () => {
        this.open.delete(dress);
        pane.dispose();
        element.remove();
      },
      { once: true },
    );
    Object.assign(element, { hloscope: { pane, store, model } });
    return { element, graph, store, pane };
  }
  setTheme(theme: GraphTheme): void {
    for (const dress of this.open) dress(theme);
  }
}
