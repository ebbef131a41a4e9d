/** Which texts are shown side by side, two or three at once, and whether the graph is beside them. */
import { h } from "../../base/dom.ts";
import type { StageText } from "../../view-extras.ts";
import type { PanelContext } from "../panel.ts";

export interface Choice {
  /** Ids of stages, in stage order. */
  texts: string[];
  graph: boolean;
}

/** With more at once, too little of each is visible. */
const MOST = 3;
/** Explorers narrower than the first, px, start with two texts; as wide as the second, with the graph. */
const ROOM_FOR_THREE = 1000;
const ROOM_FOR_GRAPH = 1250;

/** The previous choice, else source, StableHLO and the program, as far as there is room. */
export function startingPanes(
  ctx: PanelContext,
  stages: readonly StageText[],
  width: number,
): Choice {
  const asked = parsed(ctx.store.get("options").panes, stages);
  if (asked) return asked;
  const ids = stages.map((s) => s.id);
  const own = stages.find((s) => s.own)?.id ?? ids[ids.length - 1];
  const wanted = width < ROOM_FOR_THREE ? ["source", own] : ["source", "stablehlo", own];
  const texts = ids.filter((id) => wanted.includes(id));
  return { texts, graph: width >= ROOM_FOR_GRAPH || texts.length < 2 };
}

/** Parses Options.panes; null if it names none of the texts. */
export function parsed(panes: string, stages: readonly StageText[]): Choice | null {
  const names = panes.split(",").map((name) => name.trim());
  const texts = stages.map((s) => s.id).filter((id) => names.includes(id));
  return texts.length ? { texts: texts.slice(0, MOST), graph: names.includes("graph") } : null;
}

export interface Chooser {
  element: HTMLElement;
  now(): Choice;
  /** Applies Options.panes; false if it names no text, or what is already shown. */
  set(panes: string): boolean;
}

export function chooser(
  stages: readonly StageText[],
  start: Choice,
  changed: (choice: Choice) => void,
): Chooser {
  // In the order in which they were chosen: the first gives way to a fourth.
  let shown = [...start.texts];
  let { graph } = start;
  const now = (): Choice => ({
    texts: stages.map((s) => s.id).filter((id) => shown.includes(id)),
    graph,
  });
  const toggle = (id: string) => {
    if (!shown.includes(id)) shown = [...shown, id].slice(-MOST);
    else if (shown.length > 1) shown = shown.filter((s) => s !== id);
    else return;
    sync();
    changed(now());
  };
  const button = (id: string, title: string, onclick: () => void) =>
    h("button", { class: "pick", type: "button", "data-pane": id, onclick }, title);
  const buttons = stages.map((s) => button(s.id, s.title, () => toggle(s.id)));
  const beside = button("graph", "Graph", () => {
    graph = !graph;
    sync();
    changed(now());
  });
  const element = h(
    "div",
    { class: "picks", role: "group", "aria-label": "What is shown side by side" },
    ...buttons,
    beside,
  );
  const sync = () => {
    for (const b of buttons) {
      const on = shown.includes(b.dataset.pane ?? "");
      b.setAttribute("aria-pressed", String(on));
      b.disabled = on && shown.length === 1;
    }
    beside.setAttribute("aria-pressed", String(graph));
  };
  sync();
  return {
    element,
    now,
    set(panes) {
      const asked = parsed(panes, stages);
      const before = now();
      if (!asked || (asked.graph === before.graph && asked.texts.join() === before.texts.join())) {
        return false;
      }
      shown = asked.texts;
      graph = asked.graph;
      sync();
      return true;
    },
  };
}
