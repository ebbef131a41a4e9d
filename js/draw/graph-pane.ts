/**
 * The drawing of the graph: `createGraphPane` and the types that its callers need.
 *
 *     View ─▶ projection ─▶ layout ─▶ scene ─▶ canvas
 *             (engine.ts does these)           (renderer.ts)
 */
import type { ViewModel } from "../base/model.ts";
import type { Opened } from "../graph/project/opened.ts";
import { ItemKind, type Projection } from "../graph/project/projection.ts";
import type { EdgeNote } from "../scene/marks.ts";
import type { Store } from "../state/store.ts";
import type { GraphTheme } from "../theme/graph.ts";
import type { Selection } from "../view.ts";
import type {
  BoxColoring,
  Direction,
  GraphPane,
  GraphStats,
  LegendEntry,
  ScreenRect,
  Target,
} from "./api.ts";
import { type Painted, paintInstructions } from "./coloring.ts";
import { Emphasis } from "./emphasis.ts";
import { Engine } from "./engine.ts";
import { History } from "./history.ts";
import { handlePointer } from "./input/pointer.ts";
import { neighbourhood, nextItem, pathBetween } from "./input/walk.ts";
import { colorOfLife, Flows, type LifeStep, lifeOf } from "./life.ts";
import { measured } from "./paint/measure.ts";
import { readPlace, type Sight, writePlace } from "./place.ts";
import { Renderer } from "./renderer.ts";
import { Sizing } from "./sizing.ts";

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
/** Boxes that `openAll` shows at most, unless the caller says otherwise. */
const MOST_BOXES = 5000;
/** Items that the keyboard passes over because they do not exist at the pass that is shown. */
const MOST_SKIPPED = 200;

export function createGraphPane(
  element: HTMLElement,
  model: ViewModel,
  store: Store,
  theme: GraphTheme,
  outer?: AbortSignal,
): GraphPane {
  return new CanvasPane(element, model, store, theme, outer);
}

class CanvasPane implements GraphPane {
  private readonly life = new AbortController();
  private readonly engine: Engine;
  private readonly renderer: Renderer;
  private readonly emphasis: Emphasis;
  private readonly sizing: Sizing;
  private readonly history = new History();
  private readonly flows: Flows;
  private readonly openListeners = new Set<() => void>();
  private readonly moveListeners = new Set<() => void>();
  private coloring: BoxColoring | null = null;
  private painted: Painted;
  /** The pass that is shown if the picture is of many; see life.ts. */
  private step: LifeStep | null = null;

  constructor(
    private readonly element: HTMLElement,
    private readonly model: ViewModel,
    private readonly store: Store,
    private theme: GraphTheme,
    outer?: AbortSignal,
  ) {
    const { signal } = this.life;
    outer?.addEventListener("abort", () => this.life.abort(), { once: true, signal });
    if (getComputedStyle(element).position === "static") element.style.position = "relative";
    element.style.overflow = "hidden";
    this.engine = new Engine(
      model,
      measured(theme.font),
      element.clientWidth || UNSEEN.width,
      element.clientHeight || UNSEEN.height,
    );
    this.flows = new Flows(model);
    this.painted = paintInstructions(model, null, theme);
    this.renderer = new Renderer(
      element,
      this.engine.openDefault(),
      this.engine.metrics,
      theme,
      this.painted.colors,
      this.counted,
      signal,
    );
    const { canvas } = this.renderer;
    canvas.setAttribute("role", "application");
    canvas.setAttribute(
      "aria-label",
      `Graph of ${model.header.title}. Arrow keys follow the data, Enter opens, Escape clears.`,
    );
    this.emphasis = new Emphasis(this.engine, this.renderer, store, signal);
    this.sizing = new Sizing(element, this.renderer, () => this.showDefault());
    this.sizing.watch(signal);
    handlePointer(
      {
        renderer: this.renderer,
        engine: this.engine,
        store,
        toggle: (target) => this.toggle(target),
        path: (from, to) => this.path(from, to),
        reveal: (instruction) => this.reveal(instruction),
        byHand: () => this.byHand(),
      },
      signal,
    );
  }

  private get projection(): Projection {
    return this.renderer.scene.picture.projection;
  }
  /** Whether an instruction counts in the colour of the box that it is in. */
  private readonly counted = (i: number): boolean =>
    this.engine.flow.hidden[i] === 0 && (this.step === null || this.step.state[i] > 0);

  // 1. Opening and closing.

  open(target: Target): void {
    this.set(target, true);
  }
  close(target: Target): void {
    this.set(target, false);
  }
  toggle(target: Target): void {
    this.set(target, !this.engine.isOpen(target));
  }
  canOpen(target: Target): boolean {
    return this.engine.canOpen(target);
  }
  isOpen(target: Target): boolean {
    return this.engine.isOpen(target);
  }
  isApart(fold: number): boolean {
    return this.engine.isApart(fold);
  }
  setApart(fold: number, apart: boolean): void {
    this.recorded(() => this.engine.setApart(fold, apart));
    this.sizing.touched = true;
    this.rebuild(this.aroundFold(fold));
  }
  toggleSelected(): boolean {
    const { kind, index } = this.store.get("selection");
    if (kind === "none" || kind === "computation") return false;
    if (!this.engine.canOpen({ kind, index })) return false;
    this.toggle({ kind, index });
    return true;
  }
  isolate(target: Target | null): void {
    this.recorded(() => this.engine.isolate(target));
    this.sizing.touched = true;
    this.rebuild(-1);
    this.renderer.fit();
  }
  get isolated(): Selection | null {
    return this.engine.isolated;
  }
  at(x: number, y: number): Selection | null {
    const { camera, scene } = this.renderer;
    const item = scene.itemAt(camera.toWorldX(x), camera.toWorldY(y));
    return item > 0 ? this.engine.selectionOf(this.projection, item) : null;
  }
  openAll(limit = MOST_BOXES): void {
    this.changeAll(() => this.engine.openAll(limit));
  }
  closeAll(): void {
    this.changeAll(() => this.engine.closeAll());
  }
  openDefault(): void {
    this.engine.isolate(null);
    this.sizing.reset();
    this.recorded(() => this.showDefault());
    this.renderer.fit(true);
    this.announce(this.openListeners);
  }
  get shown(): { plumbing: boolean; moves: boolean } {
    return { plumbing: this.engine.plumbing, moves: this.engine.moves };
  }
  setShown(plumbing: boolean, moves: boolean): void {
    this.recorded(() => this.engine.setShown(plumbing, moves));
    this.emphasis.flowChanged();
    this.rebuild(-1);
  }
  reveal(instruction: number): void {
    this.revealNode({ kind: "instruction", index: instruction }, instruction);
  }
  revealGroup(group: number): void {
    this.revealNode({ kind: "group", index: group }, this.engine.tree.node(group));
  }
  onOpenChange(callback: () => void): () => void {
    this.openListeners.add(callback);
    return () => void this.openListeners.delete(callback);
  }

  /** Everything that opens, closes or shows goes through here, so that it can be undone. */
  private recorded<T>(change: () => T): T {
    const before = this.engine.opened;
    const out = change();
    this.history.changed(before, this.engine.opened);
    return out;
  }
  private set(target: Target, open: boolean): void {
    const { engine } = this;
    if (!this.recorded(() => engine.set(target, open))) return;
    this.sizing.touched = true;
    const closedFold = target.kind === "fold" && !open;
    this.rebuild(closedFold ? this.aroundFold(target.index) : engine.node(target));
    this.showItem(engine.itemOf(this.projection, target as Selection));
  }
  /** Tree node of the container that a fold is in. */
  private aroundFold(fold: number): number {
    const { members } = this.model.fold;
    const { tree } = this.engine;
    return tree.parent[tree.node(members.values[members.offsets[fold]])];
  }
  private revealNode(selection: Selection, node: number): void {
    const { engine, model } = this;
    if (node < 0 || node >= engine.tree.stacks) return;
    this.sizing.touched = true;
    const leftOut = engine.isLeftOut(node);
    if (leftOut) engine.isolate(null);
    if (this.recorded(() => engine.openness.uncover(node)) || leftOut) this.rebuild(-1);
    let item = engine.itemOf(this.projection, selection);
    // What is drawn as text on its users is revealed at the first of them.
    if (item <= 0 && selection.kind === "instruction") {
      for (let e = model.users.offsets[node]; e < model.users.offsets[node + 1]; e++) {
        item = this.projection.itemOfInstruction[model.users.values[e]];
        if (item > 0) break;
      }
    }
    this.showItem(item);
  }
  private changeAll(change: () => void): void {
    this.recorded(change);
    this.sizing.touched = true;
    this.rebuild(-1);
    this.renderer.fit();
  }
  private reopen(to: Opened): void {
    const before = this.engine.opened;
    this.emphasis.flowChanged();
    this.engine.reopen(to);
    this.sizing.touched = true;
    // What was opened or closed stays in place on screen.
    const [was, is] = [new Set(before.open), new Set(to.open)];
    const anchor = this.projection.nodes.find((node) => was.has(node) !== is.has(node)) ?? -1;
    this.rebuild(anchor);
    if (anchor >= 0) this.showItem(this.projection.nodes.indexOf(anchor));
  }
  /** Draws what is open now; the tree node `anchor` stays where it is on screen. */
  private rebuild(anchor: number): void {
    this.renderer.setScene(this.engine.rebuild(), anchor, this.counted);
    this.refresh();
    this.announce(this.openListeners);
  }
  private showDefault(): void {
    this.engine.setPane(this.element.clientWidth, this.element.clientHeight);
    this.renderer.setScene(this.engine.openDefault(), -1, this.counted);
    this.refresh();
  }
  /** Applies the pass, the selection and highlights to a new scene. */
  private refresh(): void {
    this.applyLife();
    this.emphasis.refresh();
  }
  private showItem(item: number): void {
    if (item > 0) this.renderer.show(this.renderer.scene.rect(item));
  }
  private announce(listeners: ReadonlySet<() => void>): void {
    for (const listener of [...listeners]) listener();
  }

  // 2. Undo, and links.

  get canUndo(): boolean {
    return this.history.canUndo;
  }
  get canRedo(): boolean {
    return this.history.canRedo;
  }
  undo(): boolean {
    const to = this.history.undo(this.engine.opened);
    if (to) this.reopen(to);
    return to !== null;
  }
  redo(): boolean {
    const to = this.history.redo(this.engine.opened);
    if (to) this.reopen(to);
    return to !== null;
  }
  place(): Record<string, string> {
    return writePlace(this.engine.tree, this.engine.opened, this.sizing.stored);
  }
  setPlace(words: URLSearchParams): boolean {
    const to = readPlace(this.engine.tree, words);
    if (!to) return false;
    this.recorded(() => this.reopen(to.opened));
    this.sizing.restore(to.sight);
    return true;
  }

  // 3. The camera.

  fit(): void {
    this.renderer.fit();
  }
  zoom(factor: number): void {
    const { camera } = this.renderer;
    this.byHand();
    camera.zoomAt(camera.width / 2, camera.height / 2, factor);
    this.renderer.moved();
  }
  get sight(): Sight {
    const { x, y, scale, width, height } = this.renderer.camera;
    return { x: x + width / scale / 2, y: y + height / scale / 2, scale };
  }
  set sight(to: Sight) {
    this.sizing.touched = true;
    this.sizing.restore(to);
  }
  onMove(callback: () => void): () => void {
    this.moveListeners.add(callback);
    return () => void this.moveListeners.delete(callback);
  }
  setMinimap(shown: boolean): void {
    this.renderer.minimap.wanted = shown;
    this.renderer.invalidate();
  }
  private byHand(): void {
    this.sizing.touched = true;
    this.announce(this.moveListeners);
  }

  // 4. Colours and passes.

  setColoring(coloring: BoxColoring | null): void {
    this.coloring = coloring;
    this.painted = paintInstructions(this.model, coloring, this.theme);
    this.renderer.setColors(this.painted.colors);
  }
  setTheme(theme: GraphTheme): void {
    this.theme = theme;
    this.painted = this.paint();
    this.renderer.setTheme(theme, this.painted.colors);
  }
  setLife(step: LifeStep | null): void {
    this.step = step;
    this.painted = this.paint();
    this.renderer.setColors(this.painted.colors);
    this.applyLife();
  }
  setMarks(notes: readonly EdgeNote[]): void {
    this.emphasis.setMarks(notes);
  }
  legend(): LegendEntry[] {
    return this.painted.legend;
  }

  /** The colours of the pass that is shown, or else of the chosen colouring. */
  private paint(): Painted {
    if (!this.step) return paintInstructions(this.model, this.coloring, this.theme);
    const { kept, added, removed, changed } = this.theme.steps;
    const palette = [kept, added, removed, changed];
    return {
      colors: { index: colorOfLife(this.step.state), palette, numeric: false },
      legend: [],
    };
  }
  private applyLife(): void {
    const { renderer, step } = this;
    renderer.life = step && lifeOf(renderer.scene, step, this.flows, this.engine);
    if (!step || !renderer.life) return;
    step.onUndrawn?.(renderer.life.undrawn);
    renderer.invalidate();
  }

  // 5. Along the data flow.

  neighbourhood(instruction: number, hops: number): number {
    const near = neighbourhood(this.model, instruction, hops);
    const reason = `within ${hops} of %${this.model.name(instruction)}`;
    this.store.highlight({ instructions: near, reason });
    return near.size;
  }
  path(from: number, to: number): number {
    const between = pathBetween(this.model, from, to);
    if (between.size === 0) return 0;
    const reason = `paths from %${this.model.name(from)} to %${this.model.name(to)}`;
    this.store.highlight({ instructions: between, reason });
    return between.size;
  }
  clearHighlight(): void {
    this.store.highlight(null);
  }
  focusNext(direction: Direction): boolean {
    const { renderer, engine } = this;
    let next = nextItem(renderer.scene, renderer.selected, direction);
    // Skip what does not exist at this pass.
    for (let turn = 0; next > 0 && renderer.life && !renderer.life.items[next]; turn++) {
      next = turn < MOST_SKIPPED ? nextItem(renderer.scene, next, direction) : -1;
    }
    if (next <= 0) return false;
    this.store.select(engine.selectionOf(this.projection, next));
    this.showItem(next);
    return true;
  }

  // 6. What is drawn, for exports, automation and tests.

  exportSvg(theme = this.theme): string {
    return this.inTheme(theme, () =>
      this.renderer.svg(this.model.header.title, this.painted.legend),
    );
  }
  exportPng(scale = 1, theme = this.theme): string {
    return this.inTheme(theme, () => this.renderer.png(scale, this.painted.legend));
  }
  screenshot(): string {
    return this.renderer.screenshot();
  }
  private inTheme<T>(theme: GraphTheme, make: () => T): T {
    const before = this.theme;
    if (theme !== before) this.setTheme(theme);
    try {
      return make();
    } finally {
      if (theme !== before) this.setTheme(before);
    }
  }
  boxes(): ReturnType<GraphPane["boxes"]> {
    const { engine, projection, renderer } = this;
    const { picture } = renderer.scene;
    return Array.from(projection.kind, (_, item) => ({
      selection: engine.selectionOf(projection, item),
      x: picture.x[item],
      y: picture.y[item],
      w: picture.w[item],
      h: picture.h[item],
      life: renderer.life?.items[item] ?? 1,
    })).slice(1); // without the picture itself
  }
  stats(): GraphStats {
    const { engine, renderer } = this;
    const { picture } = renderer.scene;
    const { kind } = picture.projection;
    const containers = kind.reduce((sum, k) => sum + (k === ItemKind.Open ? 1 : 0), 0);
    return {
      boxes: kind.length - containers,
      containers,
      edges: picture.edges.count,
      chips: picture.text.reduce((sum, text) => sum + text.chips.length, 0),
      projectMs: engine.projectMs,
      layoutMs: engine.layoutMs,
      sceneMs: engine.sceneMs,
      frameMs: renderer.frameMs,
      frames: renderer.frames,
      scale: renderer.camera.scale,
      worldWidth: picture.width,
      worldHeight: picture.height,
    };
  }
  locate(selection: Selection): ScreenRect | null {
    const { camera, scene } = this.renderer;
    const item = this.engine.itemOf(this.projection, selection);
    if (item <= 0) return null;
    const rect = scene.rect(item);
    return {
      x: (rect.x - camera.x) * camera.scale,
      y: (rect.y - camera.y) * camera.scale,
      width: rect.w * camera.scale,
      height: rect.h * camera.scale,
    };
  }
  dispose(): void {
    this.life.abort();
    this.renderer.canvas.remove();
    this.renderer.minimap.canvas.remove();
  }
}
