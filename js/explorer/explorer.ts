/** The graph and the parts around it, assembled for one decoded View. */
import { h } from "../base/dom.ts";
import type { ViewModel } from "../base/model.ts";
import { decodeText } from "../base/model.ts";
import { whenReleased } from "../base/press.ts";
import { decodeStages } from "../base/stages.ts";
import {
  createGraphPane,
  DARK,
  type GraphPane,
  type GraphTheme,
  LIGHT,
} from "../draw/graph-pane.ts";
import { boxMenu, isolationNote } from "../panels/chrome/box-menu.ts";
import { copyMenu } from "../panels/chrome/copy-menu.ts";
import { header } from "../panels/chrome/header.ts";
import { help } from "../panels/chrome/help.ts";
import { emptyNote, highlightNote } from "../panels/chrome/notes.ts";
import { type Sidebar, sidebar } from "../panels/chrome/sidebar.ts";
import { type StatusLine, status } from "../panels/chrome/status.ts";
import { strip } from "../panels/chrome/strip.ts";
import { type Toolbar, toolbar } from "../panels/chrome/toolbar.ts";
import { tooltip } from "../panels/chrome/tooltip.ts";
import { edgeMarking } from "../panels/details/edge-marks.ts";
import { PANELS } from "../panels/index.ts";
import type { Coloring, PanelContext } from "../panels/panel.ts";
import { reveal } from "../panels/parts/parts.ts";
import { nameOf } from "../state/members.ts";
import { PassLoader } from "../state/passes/loader.ts";
import { Search } from "../state/search/search.ts";
import { NOTHING, Store } from "../state/store.ts";
import type { Host, Options, Selection } from "../view.ts";
import { Analyses } from "./analyses.ts";
import { afterPaint, attempt, once } from "./attempt.ts";
import { availableColorings, Colours } from "./colours.ts";
import { bindKeys } from "./keys.ts";
import { placesOf } from "./places.ts";
import { Stages } from "./stage.ts";

/** All of it lives in `root`, and ends with `signal`. */
export class Explorer {
  readonly store: Store;
  private dark: boolean;
  private background: string;
  private top: HTMLElement;
  private colorings: readonly Coloring[];
  private readonly pane: GraphPane;
  private readonly stages: Stages;
  private readonly ctx: PanelContext;
  private readonly colours: Colours;
  private readonly side: Sidebar;
  private readonly tools: Toolbar;
  private readonly line: StatusLine;

  constructor(
    private readonly root: HTMLElement,
    private readonly model: ViewModel,
    private readonly host: Host,
    options: Options,
    private readonly signal: AbortSignal,
  ) {
    this.store = new Store(model, options);
    root.classList.toggle("bare", host.bare ?? false);
    this.colorings = availableColorings(model);

    // 1. The graph.
    const graph = h("div", { class: "graph" });
    const left = h("div", { class: "left" }, graph);
    const main = h("div", { class: "main" }, left);
    root.append(main);
    this.dark = root.classList.contains("dark");
    this.background = this.theme.background;
    this.pane = this.makePane(graph);
    this.stages = new Stages(left, () => this.theme);
    this.ctx = this.makeContext();

    // 2. The parts around it.
    this.side = sidebar(this.ctx, PANELS);
    const places = this.makePlaces();
    this.tools = this.makeToolbar(places);
    const legend = h("div", { class: "legend", role: "group", "aria-label": "Colours" });
    const order = attempt("schedule strip", () => strip(this.ctx));
    left.append(legend);
    if (order) left.append(order.element);
    main.append(this.side.grip, this.side.element);
    this.followWidth();
    this.tools.setColorings(this.colorings);
    this.top = this.makeHeader();
    root.prepend(this.top, this.tools.element);
    this.line = status(this.ctx);
    root.append(this.line.element);
    if (!(this.pane.stats()?.boxes > 0)) emptyNote(graph);
    const { pane, ctx } = this;
    attempt("copying", () => copyMenu(root, this.side.element, signal));
    attempt("tooltip", () => tooltip(graph, ctx));
    attempt("menu of boxes", () => {
      const showPanel = (id: string) => this.side.open(id);
      boxMenu({ root, graph, ctx, boxes: pane, showPanel });
      isolationNote(graph, ctx, pane);
    });
    attempt("highlight note", () => highlightNote(graph, this.store, signal));

    // 3. Colours.
    const mark = edgeMarking(model, this.store, legend, (notes) => this.pane.setMarks(notes));
    this.store.on("analyses", mark);
    this.colours = new Colours({
      root,
      model,
      store: this.store,
      pane: this.pane,
      available: () => this.colorings,
      legend,
      strip: order,
      theme: () => this.theme,
      mark,
    });
    this.colours.paint();

    // 4. Analyses, the keyboard, and reports to the host.
    const analyses = new Analyses({
      model,
      store: this.store,
      host,
      signal,
      whenReleased: this.ctx.whenReleased,
      note: (words) => this.line.note(words),
      extended: () => this.extended(),
    });
    if (host.analyses) afterPaint(() => void analyses.request(), signal);
    else this.colours.settle();
    this.store.on("selection", () => {
      const selection = this.store.get("selection");
      host.onSelect?.({ ...selection, name: nameOf(model, selection) });
    });
    const { side, tools } = this;
    const showHelp = () => this.showHelp();
    const active = () => this.active;
    bindKeys(root, { ctx, pane, side, tools, help: showHelp, active }, signal);
    attempt("place", () => places.begin());

    // For automation and tests: where things are on the canvas, and how long drawing took.
    Object.assign(root, { hloscope: { model, store: this.store, pane } });
  }

  select(selection: Selection): void {
    const known = this.knows(selection);
    const before = this.store.get("selection");
    this.ctx.whenReleased(() => {
      if (this.store.get("selection") !== before) return; // the user has clicked since
      this.store.select(known ? selection : NOTHING);
      if (known) reveal(this.ctx, selection);
    });
  }
  setTheme(dark: boolean): void {
    const was = this.dark;
    this.dark = dark;
    const { theme } = this;
    if (was === dark && theme.background === this.background) return; // already drawn like that
    this.background = theme.background;
    this.pane.setTheme(theme);
    this.stages.setTheme(theme);
    this.ctx.whenReleased(() => this.colours.paint());
  }
  dispose(): void {
    this.pane.dispose();
  }

  private get theme(): GraphTheme {
    const base = this.dark ? DARK : LIGHT;
    const background = toHex(getComputedStyle(this.root).backgroundColor);
    return background ? { ...base, background } : base;
  }
  private get otherTheme(): GraphTheme {
    return this.dark ? LIGHT : DARK;
  }
  private get active(): HTMLElement | null {
    return (this.root.getRootNode() as ShadowRoot).activeElement as HTMLElement | null;
  }
  private knows({ kind, index }: Selection): boolean {
    return kind !== "none" && index >= 0 && index < (this.model[kind]?.count ?? 0);
  }
  private showHelp(): void {
    help(this.root, this.active);
  }
  /** To be called when the model has more columns. */
  private extended(): void {
    this.colorings = availableColorings(this.model);
    this.tools.setColorings(this.colorings);
    const fresh = this.makeHeader();
    this.top.replaceWith(fresh);
    this.top = fresh;
    this.store.extended();
    this.colours.settle();
  }

  private makeHeader(): HTMLElement {
    const { root, model, store, host, signal } = this;
    return header({ root, model, store, host, signal });
  }
  private makePane(graph: HTMLElement): GraphPane {
    try {
      return createGraphPane(graph, this.model, this.store, this.theme);
    } catch (error) {
      // Text, outline and search still work.
      console.warn("hloscope: the graph failed", error);
      const words = `The graph failed: ${(error as Error).message}`;
      graph.append(h("div", { class: "failed", role: "alert" }, words));
      return new Proxy({}, { get: () => () => null }) as GraphPane;
    }
  }
  /** The context that every panel gets. */
  private makeContext(): PanelContext {
    const { root, model, store, host, signal } = this;
    return {
      model,
      store,
      host,
      graph: this.pane,
      search: new Search(model),
      colorings: () => this.colorings,
      text: once(() => host.text(signal).then(decodeText)),
      stages: once(() =>
        host.stages
          ? host.stages(signal).then((bytes) => decodeStages(bytes, model.instruction.count))
          : Promise.reject(new Error("this view was saved without them.")),
      ),
      alone: () => undefined, // set by the sidebar
      passes: new PassLoader(host, signal),
      stage: (shown, until) => this.stages.make(shown, until),
      whenReleased: whenReleased(root, signal),
      note: (words) => this.line?.note(words),
      signal,
    };
  }
  private makePlaces() {
    const { model, store, pane, host, signal } = this;
    const select = (selection: Selection) =>
      store.select(this.knows(selection) ? selection : NOTHING);
    return placesOf(model, store, pane, host, select, signal);
  }
  private makeToolbar(places: ReturnType<typeof placesOf>): Toolbar {
    const { root, pane } = this;
    return toolbar(root, this.ctx, {
      fit: () => pane.fit(),
      zoom: (factor) => pane.zoom(factor),
      openAll: () => pane.openAll(),
      closeAll: () => pane.closeAll(),
      openDefault: () => pane.openDefault(),
      picture: pane,
      places,
      exportSvg: (other) => pane.exportSvg(other ? this.otherTheme : undefined),
      exportPng: (scale, other) => pane.exportPng(scale, other ? this.otherTheme : undefined),
      showPanel: (id) => this.side.open(id),
      fullscreen: () => fullscreen(root),
      help: () => this.showHelp(),
    });
  }
  private followWidth(): void {
    const { root, side, signal } = this;
    const watch = new ResizeObserver(() => side.sized(root.clientWidth));
    watch.observe(root);
    signal.addEventListener("abort", () => watch.disconnect(), { once: true });
    side.sized(root.clientWidth);
  }
}

/** An opaque rgb() colour as hex, for the canvas; null for anything else. */
function toHex(color: string): string | null {
  const parts = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(color);
  if (!parts) return null;
  const digits = parts.slice(1).map((part) => Number(part).toString(16).padStart(2, "0"));
  return `#${digits.join("")}`;
}

function fullscreen(root: HTMLElement): void {
  if (document.fullscreenElement) void document.exitFullscreen();
  else if (root.classList.contains("full")) root.classList.remove("full");
  else {
    const asked = root.requestFullscreen?.();
    // Frames without the permission refuse; fill the frame instead.
    if (asked) asked.catch(() => root.classList.add("full"));
    else root.classList.add("full");
  }
}
