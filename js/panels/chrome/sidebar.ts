/**
 * The side panel: a rail of tabs at the outer edge, the open panel, and the grip that resizes it.
 *
 *     wide   graph │ panel │ rail        narrow   graph
 *                                                 rail ── ── ──
 *                                                 panel
 *
 * The panel folds away to the rail; small explorers start like that, until the user chooses.
 */
import { fill, h } from "../../base/dom.ts";
import { DEFAULT_OPTIONS, type Store } from "../../state/store.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { note } from "../parts/parts.ts";
import { icon, panelIcon } from "./icons.ts";

export interface Sidebar {
  grip: HTMLElement;
  element: HTMLElement;
  open(id: string, focus?: boolean): void;
  toggle(): void;
  /** Reports the width of the explorer: a narrow one starts with its panel folded away. */
  sized(width: number): void;
}

/** Below this width the graph needs the space more than a panel that nobody asked for. */
const ROOM_FOR_BOTH = 960;
const RAIL = 68; // px, as in the style sheet

export function sidebar(ctx: PanelContext, panels: readonly Panel[]): Sidebar {
  const { store, model } = ctx;
  let offered: Panel[] = [];
  const tabs = h("div", {
    class: "tabs",
    role: "tablist",
    "aria-label": "Panels",
    "aria-orientation": "vertical",
  });
  const body = h("div", { class: "panel", id: "panel", role: "tabpanel", tabindex: "0" });
  const fold = h("button", { class: "fold", type: "button", onclick: () => toggle() });
  const rail = h("div", { class: "rail" }, tabs, fold);
  const element = h("aside", { class: "side", "aria-label": "Side panel" }, rail, body);
  let chosen = false; // the user opened or closed it
  let dragged = false;
  const made = new Map<string, HTMLButtonElement>();
  const buttons = new Map<string, HTMLButtonElement>();
  const button = (panel: Panel) => {
    let found = made.get(panel.id);
    if (!found) {
      found = h(
        "button",
        {
          class: "tab",
          type: "button",
          role: "tab",
          id: `tab-${panel.id}`,
          "aria-controls": "panel",
          "aria-selected": "false",
          tabindex: "-1",
          onclick: () => open(panel.id),
        },
        panelIcon(panel.id),
        h("span", null, panel.title),
      );
      made.set(panel.id, found);
    }
    return found;
  };
  /** Adds the tabs of panels that this View has data for; existing tabs stay as they are. */
  const offer = () => {
    offered = panels.filter((p) => {
      try {
        return p.available(model, ctx.host);
      } catch {
        return true; // its render will report what is wrong
      }
    });
    buttons.clear();
    for (const panel of offered) buttons.set(panel.id, button(panel));
    let before: Element | null = tabs.firstElementChild;
    for (const tab of buttons.values()) {
      if (tab === before) before = before.nextElementSibling;
      else tabs.insertBefore(tab, before);
    }
  };
  offer();

  const alone = (on: boolean) => element.closest(".main")?.classList.toggle("alone", on);
  let current: AbortController | null = null;
  let shown = "";
  let figures = model.figures;
  let widest = 0;
  const show = (id: string) => {
    const panel =
      offered.find((p) => p.id === id) ?? offered.find((p) => p.id === "details") ?? offered[0];
    if (!panel || panel.id === shown) return;
    current?.abort();
    current = new AbortController();
    shown = panel.id;
    for (const [key, button] of buttons) {
      button.setAttribute("aria-selected", String(key === panel.id));
      button.tabIndex = key === panel.id ? 0 : -1;
    }
    body.setAttribute("aria-labelledby", `tab-${panel.id}`);
    body.classList.toggle("flush", panel.fills ?? false);
    fill(body);
    body.scrollTop = 0;
    alone(false);
    // A panel that needs more room widens the sidebar; going back to another one moves nothing.
    widest = Math.max(widest, panel.width ?? 0);
    if (!dragged)
      element.style.width = widest
        ? `min(${widest * 100}% + ${RAIL}px, 100% - 320px)`
        : "clamp(310px, 31%, 440px)";
    const { signal } = current;
    const failed = (error: unknown) => {
      fill(
        body,
        h("h2", { class: "title" }, panel.title),
        note(`This panel failed: ${(error as Error).message}`),
      );
      console.warn(`hloscope: panel ${panel.id} failed`, error);
    };
    try {
      panel.render(body, { ...ctx, signal, alone, store: guarded(store, failed) });
    } catch (error) {
      failed(error);
    }
  };
  const open = (id: string, focus = false) => {
    chosen = true;
    setHidden(false);
    if (store.get("options").panel !== id) store.setOptions({ panel: id });
    show(id);
    if (focus) buttons.get(id)?.focus();
  };
  tabs.addEventListener("keydown", (event) => {
    const ids = [...buttons.keys()];
    const at = ids.indexOf(shown);
    const steps: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowRight: at + 1,
      ArrowUp: at - 1,
      ArrowLeft: at - 1,
      Home: 0,
      End: ids.length - 1,
    };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    open(ids[(to + ids.length) % ids.length], true);
  });

  const grip = h("div", {
    class: "grip",
    role: "separator",
    tabindex: "0",
    "aria-orientation": "vertical",
    "aria-label": "Width of the side panel",
    "aria-valuemin": 15,
    "aria-valuemax": 80,
    "aria-valuenow": 30,
  });
  const narrow = () => element.closest(".root")?.classList.contains("narrow") ?? false;
  const resize = (share: number) => {
    const part = Math.min(0.8, Math.max(0.15, share));
    grip.setAttribute("aria-valuenow", String(Math.round(part * 100)));
    const size = `${(part * 100).toFixed(1)}%`;
    if (narrow()) element.style.height = size;
    else {
      dragged = true;
      element.style.width = size;
    }
  };
  grip.addEventListener("pointerdown", (event) => {
    grip.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  grip.addEventListener("pointermove", (event) => {
    if (!grip.hasPointerCapture(event.pointerId)) return;
    const box = (element.parentElement as HTMLElement).getBoundingClientRect();
    resize(
      narrow()
        ? (box.bottom - event.clientY) / box.height
        : (box.right - event.clientX) / box.width,
    );
  });
  grip.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: 4, ArrowUp: 4, ArrowRight: -4, ArrowDown: -4 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    resize((Number(grip.getAttribute("aria-valuenow")) + by) / 100);
  });
  const setHidden = (hidden: boolean) => {
    body.hidden = hidden;
    grip.hidden = hidden;
    element.classList.toggle("folded", hidden);
    element.closest(".main")?.classList.toggle("folded", hidden);
    const words = hidden ? "Show the panel" : "Hide the panel";
    fold.title = words;
    fold.setAttribute("aria-label", words);
    fold.setAttribute("aria-expanded", String(!hidden));
    fill(fold, icon(hidden ? "show" : "hide"));
  };
  const toggle = () => {
    chosen = true;
    setHidden(!body.hidden);
  };
  const sized = (width: number) => {
    const wide = width >= 700;
    tabs.setAttribute("aria-orientation", wide ? "vertical" : "horizontal");
    // A panel that was requested by name is shown however little space there is.
    if (chosen || width === 0 || store.get("options").panel !== DEFAULT_OPTIONS.panel) return;
    setHidden(width < ROOM_FOR_BOTH);
  };
  setHidden(false);

  store.on("options", () => show(store.get("options").panel), ctx.signal);
  store.on(
    "analyses",
    () => {
      offer();
      const now = offered.find((p) => p.id === shown);
      const isOld = figures !== model.figures && !now?.ofNoChip;
      figures = model.figures;
      const at = body.scrollTop;
      if (isOld) shown = "";
      show(store.get("options").panel);
      if (isOld) body.scrollTop = at;
    },
    ctx.signal,
  );
  // Selecting something opens Details, unless the user has chosen a panel.
  store.on(
    "selection",
    () => {
      const untouched = !chosen && store.get("options").panel === DEFAULT_OPTIONS.panel;
      if (untouched && store.get("selection").kind !== "none") show("details");
    },
    ctx.signal,
  );
  ctx.signal.addEventListener("abort", () => current?.abort(), { once: true });
  show(store.get("options").panel);
  return { grip, element, open, toggle, sized };
}

/** The store for one panel: what its listeners throw is shown in that panel. */
function guarded(store: Store, failed: (error: unknown) => void): Store {
  const on: Store["on"] = (key, listener, signal) =>
    store.on(
      key,
      () => {
        try {
          listener();
        } catch (error) {
          failed(error);
        }
      },
      signal,
    );
  return new Proxy(store, {
    get(target, key) {
      if (key === "on") return on;
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
