/** The toolbar: search, colouring, opening and closing, zoom, history, theme, saving. */
import { copyText, fill, h, saveFile } from "../../base/dom.ts";
import type { ViewModel } from "../../base/model.ts";
import { instructionsOf, nameOf } from "../../state/members.ts";
import { Flag } from "../../view.ts";
import type { Coloring, PanelContext } from "../panel.ts";
import { reveal } from "../parts/parts.ts";
import { bookmarkList, type Places } from "./bookmarks.ts";
import { type Icon, icon } from "./icons.ts";
import { menu, popover } from "./popover.ts";

/** What the toolbar needs from the graph pane and from the explorer around it. */
export interface Commands {
  fit(): void;
  zoom(factor: number): void;
  openAll(): void;
  closeAll(): void;
  openDefault(): void;
  picture: Picture;
  places: Places;
  exportSvg(other: boolean): string;
  /** `other`: in the other theme, dark for light. */
  exportPng(scale: number, other: boolean): string;
  showPanel(id: string): void;
  fullscreen(): void;
  help(): void;
}

/** What the toolbar shows and changes of what is open. */
export interface Picture {
  readonly shown: { plumbing: boolean; moves: boolean };
  setShown(plumbing: boolean, moves: boolean): void;
  readonly canUndo: boolean;
  readonly canRedo: boolean;
  undo(): boolean;
  redo(): boolean;
  onOpenChange(callback: () => void): () => void;
}

export interface Toolbar {
  element: HTMLElement;
  setColorings(colorings: readonly Coloring[]): void;
  focusSearch(): void;
  clearSearch(): boolean;
}

export function toolbar(root: HTMLElement, ctx: PanelContext, commands: Commands): Toolbar {
  const { store, search, model, graph, signal } = ctx;
  const tool = (name: Icon, label: string, run: (() => void) | null, word?: string) =>
    h(
      "button",
      {
        class: name === "zoomIn" || name === "zoomOut" ? "tool zoom" : "tool",
        type: "button",
        title: label,
        "aria-label": label,
        onclick: run ?? undefined,
      },
      icon(name),
      word && h("span", { class: "word" }, word),
    );
  const rule = () => h("span", { class: "rule", "aria-hidden": "true" });

  const input = h("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search instructions: name, opcode, scope, box, shape or source line",
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => later(),
    onkeydown: (event) => {
      const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
      if (event.key === "Enter" || by) {
        event.preventDefault();
        if (search.query !== input.value) run();
        const i = search.step(event.shiftKey || by < 0 ? -1 : 1);
        if (i >= 0) {
          store.selectInstruction(i);
          graph.reveal(i);
        }
      }
    },
  });
  let timer = 0;
  let before = "details"; // the panel that Esc returns to
  const run = () => {
    clearTimeout(timer);
    search.set(input.value);
    if (!search.query.trim()) return;
    const { panel } = store.get("options");
    if (panel !== "search") before = panel;
    commands.showPanel("search");
  };
  // With 100,000 instructions a keystroke costs up to 50 ms, so wait for a pause in typing.
  const later = () => {
    clearTimeout(timer);
    timer = window.setTimeout(
      () => ctx.whenReleased(run),
      model.instruction.count > 20_000 ? 160 : 60,
    );
  };
  let lit = "";
  search.on(() => {
    if (input.value !== search.query) input.value = search.query;
    const reason = `search “${search.query.trim()}”`;
    if (reason === lit) return;
    lit = reason;
    // If nothing is found, the picture stays as it was.
    if (search.query.trim() && search.results.length) {
      store.highlight({ instructions: new Set(search.results), reason });
    } else if (store.get("highlight")?.reason.startsWith("search “")) store.highlight(null);
  }, signal);

  const select = h("select", {
    "aria-label": "Colour by",
    onchange: () => store.setOptions({ colorBy: select.value }),
  });
  const moved = (did: boolean) => did && reveal(ctx, store.get("selection"));
  const back = tool("back", "Back  [", () => moved(store.back()));
  const forward = tool("forward", "Forward  ]", () => moved(store.forward()));
  const { picture } = commands;
  const plumbing = tool("plumbing", "Show tuples, bitcasts and other plumbing", () =>
    picture.setShown(!picture.shown.plumbing, picture.shown.moves),
  );
  const moves = tool("moves", "Show asynchronous copies as boxes", () =>
    picture.setShown(picture.shown.plumbing, !picture.shown.moves),
  );
  moves.hidden = !hasMoves(model);
  const undo = tool("undo", "Undo opening and closing  Ctrl+Z", () => void picture.undo());
  const redo = tool("redo", "Redo  Ctrl+Shift+Z", () => void picture.redo());
  const bookmarks = tool("bookmark", "Bookmarks and link", null);
  popover(root, bookmarks, (close) => bookmarkList(commands.places, close), signal);
  const pictured = () => {
    plumbing.setAttribute("aria-pressed", String(picture.shown?.plumbing ?? false));
    moves.setAttribute("aria-pressed", String(picture.shown?.moves ?? false));
    undo.disabled = !picture.canUndo;
    redo.disabled = !picture.canRedo;
  };
  picture.onOpenChange(pictured);
  pictured();
  const theme = tool("theme", "", () => {
    const order = ["auto", "light", "dark"] as const;
    const now = order.indexOf(store.get("options").theme);
    store.setOptions({ theme: order[(now + 1) % order.length] });
  });
  const save = tool("save", "Save or copy", null);
  const name = () => `${model.header.title.replace(/[^\w.-]+/g, "_") || "module"}`;
  popover(
    root,
    save,
    (close) => {
      const selection = store.get("selection");
      const none = selection.kind === "none";
      const other = h("input", { type: "checkbox" });
      const dark = root.classList.contains("dark");
      const made = menu(
        [
          {
            label: "Save graph as SVG",
            run: () =>
              saveFile(`${name()}.svg`, commands.exportSvg(other.checked), "image/svg+xml"),
          },
          ...SCALES.map((scale) => ({
            label: scale === 1 ? "Save graph as PNG" : `Save graph as PNG, ${scale} × as sharp`,
            run: () => {
              const url = commands.exportPng(scale, other.checked);
              const size = scale === 1 ? "" : `@${scale}x`;
              if (url) savePng(`${name()}${size}.png`, url);
              else ctx.note("The graph is too large for a PNG at that scale: save it as SVG.");
            },
          })),
          {
            label: "Save HLO text",
            run: async () => {
              const text = await ctx.text().catch(() => null);
              if (text) saveFile(`${name()}.hlo`, text.bytes as BlobPart, "text/plain");
              else commands.showPanel("text"); // which says why
            },
          },
          {
            label: "Copy name of selection",
            disabled: none,
            run: () => void copyText(nameOf(model, selection)),
          },
          {
            label: "Copy names of what is highlighted or selected",
            disabled: none && !store.get("highlight"),
            run: () => {
              const all = store.get("highlight")?.instructions ?? instructionsOf(model, selection);
              void copyText(Array.from(all, (i) => model.name(i)).join("\n"));
            },
          },
        ],
        close,
      );
      return h(
        "div",
        null,
        made,
        h("label", { class: "field" }, other, `graph in ${dark ? "light" : "dark"} colours`),
      );
    },
    signal,
  );
  const full = tool("full", "Fullscreen", () => commands.fullscreen());

  const sync = () => {
    const { theme: now, colorBy } = store.get("options");
    const known = [...select.options].some((o) => o.value === colorBy);
    select.value = known ? colorBy : "family"; // its analysis may not have arrived yet
    theme.title = `Theme: ${now}`;
    theme.setAttribute("aria-label", `Theme: ${now}`);
  };
  store.on("options", sync, signal);
  const history = () => {
    back.disabled = !store.canBack;
    forward.disabled = !store.canForward;
  };
  store.on("selection", history, signal);
  history();
  sync();

  const element = h(
    "div",
    { class: "toolbar", role: "toolbar", "aria-label": "Explorer" },
    h("span", { class: "search" }, input, h("kbd", { "aria-hidden": "true" }, "/")),
    back,
    forward,
    rule(),
    h("label", { class: "field" }, h("span", { class: "word" }, "Colour"), select),
    rule(),
    tool("openAll", "Open all groups", commands.openAll, "Open"),
    tool("closeAll", "Close all groups", commands.closeAll, "Close"),
    tool("reset", "First picture again", commands.openDefault),
    undo,
    redo,
    plumbing,
    moves,
    rule(),
    tool("fit", "Fit  f", commands.fit),
    tool("zoomOut", "Zoom out  −", () => commands.zoom(1 / 1.4)),
    tool("zoomIn", "Zoom in  +", () => commands.zoom(1.4)),
    h("span", { class: "gap" }),
    bookmarks,
    save,
    theme,
    full,
    h(
      "button",
      {
        class: "tool",
        type: "button",
        title: "Keys  ?",
        "aria-label": "Keys and gestures",
        onclick: commands.help,
      },
      "?",
    ),
  );
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  return {
    element,
    setColorings(colorings) {
      fill(select, ...colorings.map((c) => h("option", { value: c.id }, c.label)));
      sync();
    },
    focusSearch: () => {
      input.focus();
      input.select();
    },
    clearSearch: () => {
      if (!search.query && !input.value) return false;
      clearTimeout(timer);
      search.set("");
      input.value = "";
      if (store.get("options").panel === "search") commands.showPanel(before);
      return true;
    },
  };
}

/** Pixels of a saved PNG for each pixel of the graph. */
const SCALES = [1, 2, 4];

/** Whether the module has asynchronous copies or collectives. */
function hasMoves(model: ViewModel): boolean {
  const { count, flags } = model.instruction;
  for (let i = 0; i < count; i++) if (flags[i] & Flag.Move) return true;
  return false;
}

function savePng(file: string, url: string): void {
  const data = atob(url.slice(url.indexOf(",") + 1));
  saveFile(
    file,
    Uint8Array.from(data, (c) => c.charCodeAt(0)),
    "image/png",
  );
}
