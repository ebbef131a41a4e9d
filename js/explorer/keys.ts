/** The keyboard, for the whole explorer; `panels/chrome/help.ts` shows the table. */
import type { Direction, GraphPane } from "../draw/graph-pane.ts";
import type { Sidebar } from "../panels/chrome/sidebar.ts";
import type { Toolbar } from "../panels/chrome/toolbar.ts";
import type { PanelContext } from "../panels/panel.ts";
import { reveal } from "../panels/parts/parts.ts";
import { NOTHING } from "../state/store.ts";

interface Parts {
  ctx: PanelContext;
  pane: GraphPane;
  side: Sidebar;
  tools: Toolbar;
  help(): void;
  active(): HTMLElement | null;
}

const ARROWS: Record<string, Direction> = {
  ArrowUp: "operand",
  ArrowDown: "user",
  ArrowLeft: "previous",
  ArrowRight: "next",
};

export function bindKeys(root: HTMLElement, parts: Parts, signal: AbortSignal): void {
  const { ctx, pane, side, tools, help, active } = parts;
  const { store } = ctx;
  const clear = () => {
    if (tools.clearSearch()) return;
    if (store.get("highlight")) store.highlight(null);
    else store.select(NOTHING);
  };
  const selected = () => {
    const { kind, index } = store.get("selection");
    return kind === "instruction" ? index : -1;
  };
  const neighbourhood = () => {
    if (selected() >= 0) pane.neighbourhood(selected(), 2);
  };
  const path = () => {
    const from = store.previousInstruction;
    const to = selected();
    if (from < 0 || to < 0) return;
    if (!pane.path(from, to)) pane.path(to, from);
  };
  // Going back selects without revealing, so bring the selection into view.
  const history = (moved: boolean) => {
    if (moved) reveal(ctx, store.get("selection"));
  };
  const actions: Record<string, () => void> = {
    "/": () => tools.focusSearch(),
    "?": help,
    "[": () => history(store.back()),
    "]": () => history(store.forward()),
    f: () => pane.fit(),
    "+": () => pane.zoom(1.4),
    "=": () => pane.zoom(1.4),
    "-": () => pane.zoom(1 / 1.4),
    n: neighbourhood,
    p: path,
    d: () => side.open("details"),
    t: () => side.open("text"),
    c: () => side.open("code"),
    o: () => side.open("outline"),
  };
  root.addEventListener(
    "keydown",
    (event) => {
      if (event.defaultPrevented || event.altKey) return;
      const at = active();
      if (event.ctrlKey || event.metaKey) {
        // Ctrl+Z, and both usual shortcuts for redo; in a text field they belong to the field.
        const key = event.key.toLowerCase();
        if (at?.matches("input, textarea")) return;
        if (key === "z" && !event.shiftKey) pane.undo();
        else if (key === "z" || key === "y") pane.redo();
        else return;
        event.preventDefault();
        return;
      }
      const typing = at?.matches("input, select, textarea") ?? false;
      if (event.key === "Escape") {
        if (typing && at?.matches(".find")) return;
        clear();
        if (typing)
          (root.querySelector(".graph canvas, .graph [tabindex]") as HTMLElement)?.focus();
        event.preventDefault();
        return;
      }
      if (typing) return;
      const inGraph = !at || at === root || !!at.closest(".graph");
      if (inGraph && event.key in ARROWS) pane.focusNext(ARROWS[event.key]);
      else if (inGraph && event.key === "Enter" && !at?.matches("button")) pane.toggleSelected();
      else if (actions[event.key]) actions[event.key]();
      else return;
      event.preventDefault();
    },
    { signal },
  );
}
