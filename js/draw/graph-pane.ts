/**
 * The drawing of the graph: `createGraphPane` and the types that its callers need.
 *
 *     View ─▶ projection ─▶ layout ─▶ scene ─▶ canvas
 *             (engine.ts does these)           (renderer.ts)
 */
import type { ViewModel } from "../base/model.ts";
import type { Opened } from "../graph/project/opened.ts";
import { ItemKind } from "../graph/project/projection.ts";
import { type EdgeNote, edgeMarks } from "../scene/marks.ts";
import type { Store } from "../state/store.ts";
import type { GraphTheme } from "../theme/graph.ts";
import type { Selection } from "../view.ts";
import type { BoxColoring, Direction, GraphPane, ScreenRect, Target } from "./api.ts";
import { paintInstructions } from "./coloring.ts";
import { Engine } from "./engine.ts";
import { History } from "./history.ts";
import { handlePointer } from "./input/pointer.ts";
import { type Links, neighbourhood, nextItem, pathBetween, usersOf } from "./input/walk.ts";
import { colorOfLife, Flows, type LifeStep, lifeOf } from "./life.ts";
import { measured } from "./paint/measure.ts";
import { touched } from "./paint/overlay.ts";
import { look, readPlace, type Sight, sightOf, writePlace } from "./place.ts";
import { Renderer } from "./renderer.ts";

export { DARK, familyColor, type GraphTheme, LIGHT } from "../theme/graph.ts";
export type {
  BoxColoring,
  Direction,
  GraphPane,
  GraphStats,
  LegendEntry,
  ScreenRect,
  Target,
} from "./api.ts";

/** Size assumed for a pane that is not on the page yet. */
const UNSEEN = { width: 960, height: 560 };

export function createGraphPane(
  element: HTMLElement,
  model: ViewModel,
  store: Store,
  theme: GraphTheme,
  outer?: AbortSignal,
): GraphPane {
  const life = new AbortController();
  const { signal } = life;
  outer?.addEventListener("abort", () => life.abort(), { once: true, signal });
  if (getComputedStyle(element).position === "static") element.style.position = "relative";
  element.style.overflow = "hidden";

  // 1. The initial picture.
  const engine = new Engine(
    model,
    measured(theme.font),
    element.clientWidth || UNSEEN.width,
    element.clientHeight || UNSEEN.height,
  );
  let coloring: BoxColoring | null = null;
  let painted = paintInstructions(model, coloring, theme);
  /** Users through plumbing, computed on first use. */
  let users: Links | null = null;
  /** The pass that is shown if the picture is of many; see life.ts. */
  let step: LifeStep | null = null;
  const counted = (i: number): boolean =>
    engine.flow.hidden[i] === 0 && (step === null || step.state[i] > 0);
  const renderer = new Renderer(
    element,
    engine.openDefault(),
    engine.metrics,
    theme,
    painted.colors,
    counted,
    signal,
  );
  renderer.canvas.setAttribute("role", "application");
  renderer.canvas.setAttribute(
    "aria-label",
    `Graph of ${model.header.title}. Arrow keys follow the data, Enter opens, Escape clears.`,
  );
  // Until the user opens or moves something, a new size gets a new initial picture.
  let touchedByHand = false;
  /** What is open came from a link and is not replaced by an initial picture. */
  let linked = false;
  const callbacks = new Set<() => void>();
  const movers = new Set<() => void>();
  const byHand = (): void => {
    touchedByHand = true;
    for (const callback of [...movers]) callback();
  };

  // 2. Selection, hover and highlight, from the store.
  const projection = () => renderer.scene.picture.projection;
  const usersNow = (): Links => {
    users ??= usersOf(engine.flow, model.instruction.count);
    return users;
  };
  let marked: unknown = null;
  let notes: readonly EdgeNote[] = [];
  const refresh = (): void => {
    const selection = store.get("selection");
    renderer.selected = engine.itemOf(projection(), selection);
    renderer.hovered = engine.itemOf(projection(), store.get("hover"));
    renderer.lines =
      renderer.selected > 0
        ? touched(renderer.scene, engine.flow, usersNow(), renderer.selected, selection)
        : null;
    renderer.pointed = pointedItems(store.get("pointed"));
    const highlight = store.get("highlight");
    renderer.lit = highlight ? litItems(highlight.instructions) : null;
    if (marked !== renderer.scene) {
      marked = renderer.scene;
      renderer.marks = edgeMarks(renderer.scene, notes);
    }
    renderer.invalidate();
  };
  const pointedItems = (instructions: ReadonlySet<number> | null): number[] => {
    const { itemOfInstruction } = projection();
    const found = new Set<number>();
    for (const i of instructions ?? [])
      if (itemOfInstruction[i] > 0) found.add(itemOfInstruction[i]);
    return [...found];
  };
  const litItems = (instructions: ReadonlySet<number>): Uint8Array => {
    const lit = new Uint8Array(renderer.scene.count);
    const { itemOfInstruction, parent } = projection();
    for (const i of instructions) {
      for (let k = itemOfInstruction[i] ?? -1; k > 0 && !lit[k]; k = parent[k]) lit[k] = 1;
    }
    return lit;
  };
  store.on("selection", refresh, signal);
  store.on("hover", refresh, signal);
  store.on("highlight", refresh, signal);
  store.on("pointed", refresh, signal);

  // 3. Opening and closing.

  let flows: Flows | null = null;
  const live = (): void => {
    if (!step) {
      renderer.life = null;
      return;
    }
    flows ??= new Flows(model);
    renderer.life = lifeOf(renderer.scene, step, flows, engine);
    step.onUndrawn?.(renderer.life.undrawn);
    renderer.invalidate();
  };
  const rebuild = (anchor: number): void => {
    renderer.setScene(engine.rebuild(), anchor, counted);
    live();
    refresh();
    for (const callback of [...callbacks]) callback();
  };
  const history = new History();
  /** Everything that opens, closes or shows goes through here, so that it can be undone. */
  const changing = <T>(change: () => T): T => {
    const before = engine.opened;
    const out = change();
    history.changed(before, engine.opened);
    return out;
  };
  const set = (target: Target, open: boolean): void => {
    if (!changing(() => engine.set(target, open))) return;
    touchedByHand = true;
    const node = engine.node(target);
    rebuild(target.kind === "fold" && !open ? engine.tree.parent[memberNode(target.index)] : node);
    const item = engine.itemOf(projection(), target as Selection);
    if (item > 0) renderer.show(renderer.scene.rect(item));
  };
  const memberNode = (fold: number): number => {
    const { members } = model.fold;
    return engine.tree.node(members.values[members.offsets[fold]]);
  };
  const toggle = (target: Target): void => set(target, !engine.isOpen(target));
  const reveal = (selection: Selection, node: number): void => {
    if (node < 0 || node >= engine.tree.stacks) return;
    touchedByHand = true;
    if (changing(() => engine.openness.uncover(node))) rebuild(-1);
    let item = engine.itemOf(projection(), selection);
    // What is drawn as text on its users is revealed at the first of them.
    if (item <= 0 && selection.kind === "instruction") {
      for (let e = model.users.offsets[node]; e < model.users.offsets[node + 1]; e++) {
        item = projection().itemOfInstruction[model.users.values[e]];
        if (item > 0) break;
      }
    }
    if (item > 0) renderer.show(renderer.scene.rect(item));
  };
  const whole = (change: () => void): void => {
    changing(change);
    touchedByHand = true;
    rebuild(-1);
    renderer.fit();
  };
  const reopen = (to: Opened): void => {
    const before = engine.opened;
    users = null;
    engine.reopen(to);
    touchedByHand = true;
    // What was opened or closed stays in place on screen.
    const { nodes } = projection();
    const [was, is] = [new Set(before.open), new Set(to.open)];
    const anchor = nodes.find((v) => was.has(v) !== is.has(v)) ?? -1;
    rebuild(anchor);
    const item = anchor < 0 ? -1 : projection().nodes.indexOf(anchor);
    if (item > 0) renderer.show(renderer.scene.rect(item));
  };

  // 4. The pointer; see pointer.ts.
  // 5. Its place on the page.
  const place = (): void => {
    // A selection that is in view stays in view when a panel opens beside it.
    const box = renderer.selected > 0 ? renderer.scene.rect(renderer.selected) : null;
    const { x, y, w, h } = renderer.camera.view;
    const seen = box && box.x < x + w && box.x + box.w > x && box.y < y + h && box.y + box.h > y;
    if (!renderer.resize()) return;
    const size = outerSize();
    const another = size !== laidFor;
    laidFor = size;
    if (sight) {
      look(renderer.camera, sight);
      renderer.moved();
      return;
    }
    if (touchedByHand) {
      if (box && seen) renderer.show(box);
      return;
    }
    // Panels and the legend take and give space; the same picture is then fitted again.
    if ((another || !settled) && !linked) {
      engine.setPane(element.clientWidth, element.clientHeight);
      renderer.setScene(engine.openDefault(), -1, counted);
      live();
      refresh();
    }
    renderer.fit(!settled, true);
    if (!settled) requestAnimationFrame(() => requestAnimationFrame(settle));
  };
  const outerSize = (): string => {
    const outer = element.closest(".root") ?? element;
    return `${outer.clientWidth}×${outer.clientHeight}`;
  };
  let laidFor = outerSize();
  /** Whether everything around the pane has its size; until then the initial picture is remade. */
  let settled = false;
  const settle = (): void => {
    settled = true;
    sight = null;
  };
  /** What a link shows, until the pane has its size. */
  let sight: Sight | null = null;
  renderer.resize();
  renderer.fit(true, true);
  new ResizeWatcher(element, place, signal);

  const pane: GraphPane = {
    fit: () => renderer.fit(),
    zoom(factor) {
      byHand();
      renderer.camera.zoomAt(renderer.camera.width / 2, renderer.camera.height / 2, factor);
      renderer.moved();
    },
    reveal: (i) => reveal({ kind: "instruction", index: i }, i),
    revealGroup: (g) => reveal({ kind: "group", index: g }, engine.tree.node(g)),
    open: (target) => set(target, true),
    close: (target) => set(target, false),
    toggle,
    canOpen: (target) => engine.canOpen(target),
    isOpen: (target) => engine.isOpen(target),
    toggleSelected() {
      const { kind, index } = store.get("selection");
      if (kind === "none" || kind === "computation") return false;
      if (!engine.canOpen({ kind, index })) return false;
      toggle({ kind, index });
      return true;
    },
    openAll: (limit = 5000) => whole(() => engine.openAll(limit)),
    closeAll: () => whole(() => engine.closeAll()),
    openDefault() {
      touchedByHand = false;
      linked = false;
      engine.setPane(element.clientWidth, element.clientHeight);
      renderer.setScene(
        changing(() => engine.openDefault()),
        -1,
        counted,
      );
      live();
      refresh();
      renderer.fit(true);
      for (const callback of [...callbacks]) callback();
    },
    get shown() {
      return { plumbing: engine.plumbing, moves: engine.moves };
    },
    setShown(plumbing, moves) {
      changing(() => engine.setShown(plumbing, moves));
      users = null;
      rebuild(-1);
    },
    get canUndo() {
      return history.canUndo;
    },
    get canRedo() {
      return history.canRedo;
    },
    undo() {
      const to = history.undo(engine.opened);
      if (to) reopen(to);
      return to !== null;
    },
    redo() {
      const to = history.redo(engine.opened);
      if (to) reopen(to);
      return to !== null;
    },
    place: () =>
      writePlace(engine.tree, engine.opened, touchedByHand ? sightOf(renderer.camera) : null),
    setPlace(words) {
      const to = readPlace(engine.tree, words);
      if (!to) return false;
      changing(() => reopen(to.opened));
      if (to.sight) {
        look(renderer.camera, to.sight);
        renderer.moved();
        sight = settled ? null : to.sight;
      } else {
        touchedByHand = false;
        linked = true;
        renderer.fit(true, true);
      }
      return true;
    },
    setColoring(next) {
      coloring = next;
      painted = paintInstructions(model, coloring, theme);
      renderer.setColors(painted.colors);
    },
    setTheme(next) {
      theme = next;
      painted = paintInstructions(model, coloring, theme);
      renderer.setTheme(theme, painted.colors);
      if (step) pane.setLife(step);
    },
    setLife(next) {
      step = next;
      if (step) {
        const { kept, added, removed, changed } = theme.steps;
        painted = {
          colors: {
            index: colorOfLife(step.state),
            palette: [kept, added, removed, changed],
            numeric: false,
          },
          legend: [],
        };
      } else painted = paintInstructions(model, coloring, theme);
      renderer.setColors(painted.colors);
      live();
    },
    boxes() {
      const { picture } = renderer.scene;
      return picture.projection.kind.length
        ? Array.from(picture.projection.kind, (_, item) => ({
            selection: engine.selectionOf(projection(), item),
            x: picture.x[item],
            y: picture.y[item],
            w: picture.w[item],
            h: picture.h[item],
            life: renderer.life?.items[item] ?? 1,
          })).slice(1)
        : [];
    },
    setMarks(next) {
      notes = next;
      renderer.marks = edgeMarks(renderer.scene, notes);
      renderer.invalidate();
    },
    legend: () => painted.legend,
    neighbourhood(instruction, hops) {
      const found = neighbourhood(model, instruction, hops);
      store.highlight({
        instructions: found,
        reason: `within ${hops} of %${model.name(instruction)}`,
      });
      return found.size;
    },
    path(a, b) {
      const found = pathBetween(model, a, b);
      if (found.size === 0) return 0;
      store.highlight({
        instructions: found,
        reason: `paths from %${model.name(a)} to %${model.name(b)}`,
      });
      return found.size;
    },
    clearHighlight: () => store.highlight(null),
    exportSvg: () => renderer.svg(model.header.title),
    exportPng: () => renderer.png(),
    setMinimap(shown) {
      renderer.minimap.wanted = shown;
      renderer.invalidate();
    },
    stats() {
      const { picture } = renderer.scene;
      const { kind } = picture.projection;
      let containers = 0;
      for (const k of kind) if (k === ItemKind.Open) containers++;
      return {
        boxes: kind.length - containers,
        containers,
        edges: picture.edges.count,
        chips: picture.text.reduce((sum, t) => sum + t.chips.length, 0),
        projectMs: engine.projectMs,
        layoutMs: engine.layoutMs,
        sceneMs: engine.sceneMs,
        frameMs: renderer.frameMs,
        frames: renderer.frames,
        scale: renderer.camera.scale,
        worldWidth: picture.width,
        worldHeight: picture.height,
      };
    },
    locate(selection): ScreenRect | null {
      const item = engine.itemOf(projection(), selection);
      if (item <= 0) return null;
      const r = renderer.scene.rect(item);
      const { camera } = renderer;
      return {
        x: (r.x - camera.x) * camera.scale,
        y: (r.y - camera.y) * camera.scale,
        width: r.w * camera.scale,
        height: r.h * camera.scale,
      };
    },
    onOpenChange(callback) {
      callbacks.add(callback);
      return () => void callbacks.delete(callback);
    },
    onMove(callback) {
      movers.add(callback);
      return () => void movers.delete(callback);
    },
    focusNext(direction: Direction) {
      let next = nextItem(renderer.scene, renderer.selected, direction);
      // Skip what does not exist at this pass.
      for (let turn = 0; next > 0 && renderer.life && !renderer.life.items[next]; turn++) {
        next = turn < 200 ? nextItem(renderer.scene, next, direction) : -1;
      }
      if (next <= 0) return false;
      store.select(engine.selectionOf(projection(), next));
      renderer.show(renderer.scene.rect(next));
      return true;
    },
    dispose() {
      life.abort();
      renderer.canvas.remove();
      renderer.minimap.canvas.remove();
    },
  };
  handlePointer(
    {
      renderer,
      engine,
      store,
      toggle,
      path: pane.path,
      reveal: pane.reveal,
      byHand,
    },
    signal,
  );
  return pane;
}

/** Calls back on every change of the element's size. */
class ResizeWatcher {
  constructor(element: HTMLElement, changed: () => void, signal: AbortSignal) {
    const observer = new ResizeObserver(changed);
    observer.observe(element);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  }
}
