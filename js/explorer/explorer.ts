/** The graph and the parts around it, assembled for one decoded View. */
import { h } from "../base/dom.ts";
import type { TextModel, ViewModel } from "../base/model.ts";
import { decodeAnalyses, decodeText } from "../base/model.ts";
import { whenReleased } from "../base/press.ts";
import { decodeStages, type StagesModel } from "../base/stages.ts";
import { paintInstructions } from "../draw/coloring.ts";
import {
  createGraphPane,
  DARK,
  type GraphPane,
  type GraphTheme,
  LIGHT,
} from "../draw/graph-pane.ts";
import { header } from "../panels/chrome/header.ts";
import { help } from "../panels/chrome/help.ts";
import { legend } from "../panels/chrome/legend.ts";
import { emptyNote, highlightNote } from "../panels/chrome/notes.ts";
import { sidebar } from "../panels/chrome/sidebar.ts";
import { status } from "../panels/chrome/status.ts";
import { strip } from "../panels/chrome/strip.ts";
import { toolbar } from "../panels/chrome/toolbar.ts";
import { COLORINGS } from "../panels/colorings/colorings.ts";
import { ownColorings } from "../panels/colorings/own.ts";
import { edgeMarking } from "../panels/details/edge-marks.ts";
import { PANELS } from "../panels/index.ts";
import type { Paint, PanelContext } from "../panels/panel.ts";
import { reveal } from "../panels/parts/parts.ts";
import { costsOf } from "../state/cost/costs.ts";
import { nameOf } from "../state/members.ts";
import { PassLoader } from "../state/passes/loader.ts";
import { Search } from "../state/search/search.ts";
import { NOTHING, Store } from "../state/store.ts";
import type { Host, Options, Selection } from "../view.ts";
import { bindKeys } from "./keys.ts";
import { placesOf } from "./places.ts";
import { Stages } from "./stage.ts";

export interface Explorer {
  store: Store;
  select(selection: Selection): void;
  setTheme(dark: boolean): void;
  dispose(): void;
}

export function explorer(
  root: HTMLElement,
  model: ViewModel,
  host: Host,
  options: Options,
  signal: AbortSignal,
): Explorer {
  const store = new Store(model, options);
  const availableColorings = () =>
    [...COLORINGS, ...ownColorings(model)].filter((c) =>
      attempt(`colouring ${c.id}`, () => c.available(model)),
    );
  let colorings = availableColorings();

  // 1. The graph.
  const graphElement = h("div", { class: "graph" });
  const left = h("div", { class: "left" }, graphElement);
  const main = h("div", { class: "main" }, left);
  root.append(main);
  let dark = root.classList.contains("dark");
  const theme = (): GraphTheme => {
    const background = toHex(getComputedStyle(root).backgroundColor);
    const base = dark ? DARK : LIGHT;
    return background ? { ...base, background } : base;
  };
  let { background } = theme();
  let pane: GraphPane;
  try {
    pane = createGraphPane(graphElement, model, store, theme());
  } catch (error) {
    // Text, outline and search still work.
    console.warn("hloscope: the graph failed", error);
    graphElement.append(
      h("div", { class: "failed", role: "alert" }, `The graph failed: ${(error as Error).message}`),
    );
    pane = new Proxy({}, { get: () => () => null }) as GraphPane;
  }

  const isKnown = ({ kind, index }: Selection): boolean =>
    kind !== "none" && index >= 0 && index < (model[kind]?.count ?? 0);

  // 2. The context that every panel gets.
  const overlays = new Stages(left, theme);
  let textOnce: Promise<TextModel> | null = null;
  const text = () => {
    textOnce ??= host.text(signal).then(decodeText);
    // A failure is not cached: the next panel that asks tries again.
    textOnce.catch(() => {
      textOnce = null;
    });
    return textOnce;
  };
  let stagesOnce: Promise<StagesModel> | null = null;
  const stages = () => {
    stagesOnce ??= host.stages
      ? host.stages(signal).then((bytes) => decodeStages(bytes, model.instruction.count))
      : Promise.reject(new Error("this view was saved without them."));
    stagesOnce.catch(() => {
      stagesOnce = null;
    });
    return stagesOnce;
  };
  const ctx: PanelContext = {
    model,
    store,
    host,
    graph: pane,
    search: new Search(model),
    colorings: () => colorings,
    text,
    stages,
    alone: () => undefined, // set by the sidebar
    passes: new PassLoader(host, signal),
    stage: (shown, until) => overlays.make(shown, until),
    whenReleased: whenReleased(root, signal),
    signal,
  };

  // 3. The parts around the graph.
  const side = sidebar(ctx, PANELS);
  const places = placesOf(
    model,
    store,
    pane,
    host,
    (selection) => store.select(isKnown(selection) ? selection : NOTHING),
    signal,
  );
  const tools = toolbar(root, ctx, {
    fit: () => pane.fit(),
    zoom: (factor) => pane.zoom(factor),
    openAll: () => pane.openAll(),
    closeAll: () => pane.closeAll(),
    openDefault: () => pane.openDefault(),
    picture: pane,
    places,
    exportSvg: () => pane.exportSvg(),
    exportPng: () => pane.exportPng(),
    showPanel: (id) => side.open(id),
    fullscreen: () => fullscreen(root),
    help: () => showHelp(),
  });
  const active = () => (root.getRootNode() as ShadowRoot).activeElement as HTMLElement | null;
  const showHelp = () => help(root, active());
  const key = h("div", { class: "legend", role: "group", "aria-label": "Colours" });
  const order = attempt("schedule strip", () => strip(ctx));
  left.append(key);
  if (order) left.append(order.element);
  main.append(side.grip, side.element);
  const watch = new ResizeObserver(() => side.sized(root.clientWidth));
  watch.observe(root);
  signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  side.sized(root.clientWidth);
  tools.setColorings(colorings);
  let top = header(root, model, signal);
  root.prepend(top, tools.element);
  const line = status(ctx);
  root.append(line.element);
  if (!(pane.stats()?.boxes > 0)) emptyNote(graphElement);
  attempt("highlight note", () => highlightNote(graphElement, store, signal));

  const mark = edgeMarking(model, store, key, (notes) => pane.setMarks(notes));
  store.on("analyses", mark);
  let shownColoring = "";
  const recolour = () => {
    const coloring = colorings.find((c) => c.id === store.get("options").colorBy) ?? colorings[0];
    shownColoring = coloring.id;
    const colours = theme();
    model.header.families.forEach((f, k) => {
      root.style.setProperty(`--hlo-family-${k}`, colours.families[f.id] ?? colours.families.other);
    });
    attempt(`colouring ${coloring.id}`, () => {
      const { colors, legend: steps } = paintInstructions(model, coloring, colours);
      const painted: Paint = {
        coloring,
        index: colors.index,
        colors: colors.palette,
        numeric: colors.numeric,
        range:
          colors.numeric && steps.length
            ? [steps[0].value ?? 0, steps[steps.length - 1].value ?? 0]
            : null,
        clipped: steps[0]?.atMost ?? false,
      };
      legend(key, model, painted, (k) => {
        const reason = coloring.categories?.(model)[k] ?? coloring.rest ?? "unknown";
        if (store.get("highlight")?.reason === reason) return store.highlight(null);
        const found = new Set<number>();
        for (let i = 0; i < model.instruction.count; i++) {
          if (painted.index[i] === k) found.add(i);
        }
        store.highlight({ instructions: found, reason });
      });
      order?.setPaint(painted);
      pane.setColoring(coloring);
    });
    mark();
  };
  let colored = store.get("options").colorBy;
  store.on("options", () => {
    const { colorBy } = store.get("options");
    if (colorBy !== colored) {
      colored = colorBy;
      recolour();
    } else mark();
  });
  store.on("paint", recolour);
  recolour();

  // 4. Analyses, which take longer: requested once the first picture is shown.
  const extend = async () => {
    line.note("Computing cost, memory and collectives…");
    try {
      const bytes = await host.analyses?.(signal);
      const block = bytes ? await decodeAnalyses(bytes) : null;
      if (signal.aborted) return;
      line.note(block ? "" : "Cost, memory and collectives were not saved with this view.");
      if (block) model.extend(block);
    } catch (error) {
      if (signal.aborted) return;
      line.note(`No cost, memory and collectives: ${(error as Error).message}`);
    }
    ctx.whenReleased(extended);
  };
  // The chip that the options name, once there are costs. Panels are redrawn if it is changed
  // from outside rather than by the Cost panel, which sets the chip first.
  let hardware: string | null = null;
  const useHardware = () => {
    const wanted = store.get("options").hardware ?? null;
    const costs = costsOf(model);
    if (!costs || wanted === hardware) return false;
    hardware = wanted;
    if (wanted !== null && wanted === costs.chip?.id) return false;
    const { chip } = costs;
    if (!costs.choose(wanted)) {
      const on = costs.chip ? `time is modelled on ${costs.chip.label}` : "no time is modelled";
      line.note(`Unknown chip ${wanted}; ${on}.`);
    }
    return costs.chip !== chip;
  };
  store.on("options", () => {
    if (!useHardware()) return;
    ctx.whenReleased(() => {
      store.extended();
      store.repaint();
    });
  });
  const extended = () => {
    useHardware();
    colorings = availableColorings();
    tools.setColorings(colorings);
    const fresh = header(root, model, signal);
    top.replaceWith(fresh);
    top = fresh;
    store.extended();
    const { colorBy } = store.get("options");
    if (!colorings.some((c) => c.id === colorBy)) store.setOptions({ colorBy: "family" });
    else if (colorBy !== shownColoring) recolour();
  };
  if (host.analyses) afterPaint(() => void extend(), signal);
  else if (!colorings.some((c) => c.id === options.colorBy)) {
    store.setOptions({ colorBy: "family" });
  }

  // 5. Reports to the host, and the keyboard.
  store.on("selection", () => {
    const selection = store.get("selection");
    host.onSelect?.({ ...selection, name: nameOf(model, selection) });
  });
  bindKeys(root, { ctx, pane, side, tools, help: showHelp, active }, signal);

  attempt("place", () => places.begin());

  // For automation and tests: where things are on the canvas, and how long drawing took.
  Object.assign(root, { hloscope: { model, store, pane } });

  return {
    store,
    select(selection) {
      const known = isKnown(selection);
      const before = store.get("selection");
      ctx.whenReleased(() => {
        if (store.get("selection") !== before) return; // the user has clicked since
        store.select(known ? selection : NOTHING);
        if (known) reveal(ctx, selection);
      });
    },
    setTheme(next) {
      const was = dark;
      dark = next;
      const now = theme();
      if (was === next && now.background === background) return; // already drawn like that
      background = now.background;
      pane.setTheme(now);
      overlays.setTheme(theme());
      ctx.whenReleased(recolour);
    },
    dispose: () => pane.dispose(),
  };
}

/** Runs `work` once a picture has been painted; in a hidden tab, after a short while. */
function afterPaint(work: () => void, signal: AbortSignal): void {
  let begun = false;
  const begin = () => {
    if (!begun && !signal.aborted) work();
    begun = true;
  };
  requestAnimationFrame(() => setTimeout(begin, 0));
  setTimeout(begin, 300);
}

/** Runs a part; an exception becomes a warning that names the part, and the result null. */
function attempt<T>(part: string, work: () => T): T | null {
  try {
    return work();
  } catch (error) {
    console.warn(`hloscope: ${part} failed`, error);
    return null;
  }
}

/** An opaque rgb() colour as hex, for the canvas; null for anything else. */
function toHex(color: string): string | null {
  const parts = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(color);
  if (!parts) return null;
  return `#${parts
    .slice(1)
    .map((v) => Number(v).toString(16).padStart(2, "0"))
    .join("")}`;
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
