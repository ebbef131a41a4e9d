/** From what is open to the scene: everything the pane does before drawing. Needs no browser. */
import type { ViewModel } from "../base/model.ts";
import { SUB_SIZE, type TextMetrics } from "../graph/metrics.ts";
import { LayoutCache, layoutPicture, type Picture, type PictureShape } from "../graph/picture.ts";
import { buildFlow, type Flow } from "../graph/project/flow.ts";
import { CONTENT_LINES, ItemWriter } from "../graph/project/items.ts";
import { type Opened, opened, reopen } from "../graph/project/opened.ts";
import {
  INNER,
  Openness,
  visibleChildren,
  WORTH_OPENING,
  weights,
  worthOf,
} from "../graph/project/openness.ts";
import { ItemKind, type Projection, project } from "../graph/project/projection.ts";
import { Tree } from "../graph/project/tree.ts";
import { FamilyCounts, nodeLabel } from "../graph/project/words.ts";
import { Scene } from "../scene/scene.ts";
import type { Selection } from "../view.ts";
import type { Target } from "./api.ts";

/** Limits on an initial picture, including what is opened to fill the pane. */
const MOST_BOXES = 40;
const MOST_ARROWS = 60;
/** Scale at which the smallest text is still ten pixels high. */
const LEAST_SCALE = 10 / SUB_SIZE;
/** What holds this share of the work is opened though text is smaller, and boxes more, by this factor. */
const MOST_WORK = 0.4;
const SMALLER = 0.9;
interface Shape extends Pick<PictureShape, "spread" | "most" | "ways"> {
  /** Each container may be placed in another way. */
  free?: boolean;
}
/** The usual shape, and those tried when nothing fits. */
const SHAPES: readonly Shape[] = [
  { spread: 1 },
  { spread: 0.65 },
  { spread: 0.45 },
  { spread: 0.45, most: 3 },
  { spread: 0.45, free: true },
  { spread: 0.45, most: 3, free: true },
];
/** Modules of no more instructions than this show what is in their fusions as well. */
const TINY = 54;
/** This many groups are tried one by one; fewer in huge modules. */
const TRIES = 24;
const TRIES_IN_HUGE = 8;
const HUGE = 100_000;
/** Another shape is taken for a picture that is larger by this factor. */
const WORTHWHILE = 1.04;
/** A picture that is smaller than this share of what can be read is so in every shape. */
const HOPELESS = 0.6;
/**
 * What a group's share of the work counts for where it is one level deeper: a pass opens before the
 * layers of another one. A level that holds nearly all of the work around it is none.
 */
const DEEPER = 0.5;
/** A picture that begins with a layer is taken where it shows this share more of the work. */
const LESS_HIDDEN = 0.05;
/** What is closed in an open layer is half as hidden: its name says what the layer does. */
const IN_LAYER = 0.5;
/** A level with this share of the work around it holds nearly all of it. */
const NEARLY_ALL = 0.7;
/** A loop or stack with this share of its work in others is around layers, and none. */
const MOST_OF_IT = 0.5;
/** What the share of a group without calls counts for: its name says most of it. */
const NO_CALLS = 0.25;
/** Passes of what is differentiated; one back is opened beside an open one forward only. */
const enum Direction {
  Forward = 1,
  Back = 2,
}
/** Of two groups in one container the lighter one is not opened where the heavier does not fit. */
const INSTEAD = 0.5;

export class Engine {
  readonly tree: Tree;
  readonly cache = new LayoutCache();
  flow: Flow;
  openness: Openness;
  plumbing = false;
  moves = false;
  projectMs = 0;
  layoutMs = 0;
  sceneMs = 0;
  /** Numbers of boxes and arrows in the picture that was measured last. */
  private shown = 0;
  private arrows = 0;
  private weight: Uint32Array;
  /** Tree node of the only container that is shown; -1 for all. */
  private only = -1;
  private writer: ItemWriter;
  /** The shape of the initial picture, kept for those that follow. */
  private shape = SHAPES[0];
  /** The scale at which the picture that is laid out has to fit. */
  private least = LEAST_SCALE;
  private counts: FamilyCounts;
  /** The work of what is repeated inside each node; found when it is asked for. */
  private repeatedIn: Float64Array | null = null;
  private readonly tried = new Map<Openness, Projection>();

  constructor(
    readonly model: ViewModel,
    readonly metrics: TextMetrics,
    private paneWidth: number,
    private paneHeight: number,
  ) {
    this.tree = new Tree(model);
    this.flow = buildFlow(model, false);
    this.weight = weights(this.tree, this.flow);
    this.counts = new FamilyCounts(this.tree, this.flow);
    this.writer = new ItemWriter(this.tree, this.flow, this.counts, metrics);
    this.openness = new Openness(this.tree);
  }

  /** Aspect ratio of the pane, rounded so that small resizes do not move anything. */
  private get aspect(): number {
    const exact = this.paneWidth / this.paneHeight;
    return Math.min(3, Math.max(0.7, Math.round(exact * 4) / 4));
  }
  setPane(width: number, height: number): void {
    this.paneWidth = width;
    this.paneHeight = height;
  }
  /** What is open and shown; `reopen` restores it. */
  get opened(): Opened {
    return opened(this.openness, this.plumbing, this.moves);
  }
  reopen(to: Opened): void {
    this.setShown(to.plumbing, to.moves);
    reopen(this.openness, to);
  }
  /** Sets whether tuples and the like, and asynchronous copies, have boxes. */
  setShown(plumbing: boolean, moves: boolean): void {
    if (plumbing === this.plumbing && moves === this.moves) return;
    this.plumbing = plumbing;
    this.moves = moves;
    this.flow = buildFlow(this.model, plumbing, moves);
    this.weigh();
    this.counts = new FamilyCounts(this.tree, this.flow);
    this.write();
  }
  private weigh(): void {
    this.weight = weights(this.tree, this.flow, this.plumbing);
    if (this.only < 0) return;
    const { topDown, parent } = this.tree;
    const kept = new Uint8Array(this.tree.stacks);
    for (const v of topDown)
      if (v === this.only || (parent[v] >= 0 && kept[parent[v]])) kept[v] = 1;
    for (let i = 0; i < this.tree.instructions; i++) if (kept[parent[i]]) kept[i] = 1;
    for (let v = parent[this.only]; v >= 0; v = parent[v]) kept[v] = 1;
    for (let v = 0; v < kept.length; v++) if (!kept[v]) this.weight[v] = 0;
  }
  /** The target that is shown alone; null if everything is. */
  get isolated(): Selection | null {
    if (this.only < 0) return null;
    const { instructions } = this.tree;
    if (this.only < instructions) return { kind: "instruction", index: this.only };
    return { kind: "group", index: this.only - instructions };
  }
  /** Shows one container alone, opened; null shows everything again. */
  isolate(target: Target | null): void {
    this.only = -1;
    if (target) {
      const { offsets, values } = this.model.fold.members;
      const whole = target.kind === "fold" ? values[offsets[target.index]] : -1;
      const node = whole >= 0 ? this.tree.node(whole) : this.node(target);
      this.weigh();
      this.openness.uncover(node);
      this.openness.open[node] = 1;
      this.openObvious(node);
      this.only = node;
    }
    this.weigh();
  }
  /** Whether a node is left out because another container is shown alone. */
  isLeftOut(node: number): boolean {
    if (this.only < 0) return false;
    for (let v = node; v >= 0; v = this.tree.parent[v]) if (v === this.only) return false;
    return true;
  }
  private write(): void {
    const { most } = this.writer;
    this.writer = new ItemWriter(this.tree, this.flow, this.counts, this.metrics);
    this.writer.most = most;
  }

  /** The initial picture: the heaviest groups open, as many as fit the pane at a readable size. */
  openDefault(): Scene {
    try {
      this.openHeaviest();
      const { spread, most } = this.shape; // what is opened later does not move what is around
      this.shape = { spread, most, ways: this.laidOut(this.projected(this.openness)).ways };
      return this.rebuild();
    } finally {
      this.tried.clear(); // from now on `openness` is changed in place
    }
  }
  private openHeaviest(): void {
    let least = this.openEvenly(-1);
    const layer = this.model.instruction.count > HUGE ? -1 : this.closedLayer();
    if (layer >= 0) {
      const { openness, shape } = this;
      const hidden = this.hidden();
      const other = this.openEvenly(layer);
      if (this.hidden() < hidden - LESS_HIDDEN) least = other;
      else [this.openness, this.shape] = [openness, shape];
    }
    if (this.weight[this.tree.root] <= TINY) this.openFusions(least);
    this.describe(least);
  }
  /** The work in closed items that hold calls or loops; half of it in each layer that is open. */
  private hidden(): number {
    const p = this.projected(this.openness);
    const work = this.worths(p);
    const counts = new Float64Array(p.nodes.length).fill(1);
    let sum = 0;
    for (let item = 1; item < p.nodes.length; item++) {
      const around = p.parent[item];
      counts[item] = counts[around];
      if (around > 0 && this.isLayer(p.nodes[around])) counts[item] *= IN_LAYER;
      if (p.kind[item] === ItemKind.Open) continue;
      const node = p.nodes[item];
      const inside = node >= this.tree.stacks ? this.tree.firstOf(node) : node;
      if (this.opensAtFirst(inside) && this.holdsCalls(inside)) sum += counts[item] * work[item];
    }
    return sum;
  }
  /** The work, or else the boxes, of each item; a stack has that of all its members. */
  private worths(p: Projection): Float64Array {
    const { tree } = this;
    const working = worthOf(tree, tree.root) > 0;
    return Float64Array.from(p.nodes, (node, item) => {
      const isStack = node >= tree.stacks;
      const one = isStack ? tree.firstOf(node) : node;
      const members = isStack ? p.stackEnd[item] - (node - tree.stacks) : 1;
      return members * (working ? worthOf(tree, one) : this.weight[one]);
    });
  }
  /** The layer with most work of which none is open; -1 if there is none worth it. */
  private closedLayer(): number {
    const { tree, openness } = this;
    const inLayer = new Uint8Array(tree.stacks);
    let heaviest = -1;
    let most = LESS_HIDDEN;
    for (const v of tree.topDown) {
      const around = tree.parent[v];
      if (around < 0) continue;
      inLayer[v] = inLayer[around] || this.isLayer(around) ? 1 : 0;
      if (inLayer[v] || !this.isLayer(v) || !this.opensAtFirst(v) || !this.holdsCalls(v)) continue;
      const members = tree.alike(v);
      if (members.some((m) => openness.open[m] === 1)) continue;
      const work = members.reduce((sum, m) => sum + worthOf(tree, m), 0);
      if (work > most) [heaviest, most] = [members[0], work];
    }
    return heaviest;
  }
  /** Whether it is a loop or one of several equal groups, but not one around nearly all there is. */
  private isLayer(node: number): boolean {
    const { tree } = this;
    const first = node >= tree.stacks ? tree.firstOf(node) : node;
    return this.isRepeated(first) && worthOf(tree, first) < NEARLY_ALL * worthOf(tree, tree.root);
  }
  /** Whether it is a loop or one of several equal groups, and not around such ones. */
  private isInnermost(node: number): boolean {
    const { tree } = this;
    const inside = node >= tree.stacks ? tree.firstOf(node) : node;
    this.repeatedIn ??= this.findRepeated();
    return this.isRepeated(inside) && this.repeatedIn[inside] < MOST_OF_IT * worthOf(tree, inside);
  }
  private isRepeated(node: number): boolean {
    if (node < this.tree.instructions) return this.model.opcode(node) === "while";
    return this.tree.alike(node).length > 1;
  }
  /** The work of what is repeated inside each node. */
  private findRepeated(): Float64Array {
    const { tree } = this;
    const out = new Float64Array(tree.stacks);
    for (let at = tree.topDown.length - 1; at >= 0; at--) {
      const v = tree.topDown[at];
      const around = tree.parent[v];
      if (around >= 0) out[around] += this.isRepeated(v) ? worthOf(tree, v) : out[v];
    }
    return out;
  }
  /**
   * Opens a layer, if one is given, and then the heaviest groups, while they can be read; returns
   * the scale at which they are read.
   */
  private openEvenly(layer: number): number {
    this.openness = new Openness(this.tree);
    this.openThrough(this.openness, this.tree.root);
    this.shape = SHAPES[0];
    this.writer.most = 1;
    const least = Math.min(LEAST_SCALE, this.bestShape(this.openness));
    const refused = new Set<string>(); // of twins one is tried
    if (layer >= 0) {
      const next = this.openness.copy();
      next.uncover(this.tree.parent[layer]);
      next.open[this.tree.parent[layer]] = 1;
      next.open[layer] = 1;
      this.openThrough(next, layer);
      if (!this.fits(next, least)) return least;
      this.openness = next;
    }
    const tries = this.model.instruction.count > HUGE ? TRIES_IN_HUGE : TRIES;
    for (let turn = 0; turn < tries; turn++) {
      const heaviest = this.heaviest(refused);
      if (heaviest < 0) break;
      const next = this.openness.copy();
      const inside = heaviest < this.tree.stacks ? heaviest : this.tree.firstOf(heaviest);
      next.open[inside] = 1;
      this.openThrough(next, inside);
      const small = this.isMost(heaviest) ? SMALLER : 1;
      if (!this.fits(next, least * small, MOST_BOXES / small)) {
        refused.add(this.kindOf(heaviest));
        continue;
      }
      this.openness = next;
    }
    return least;
  }
  /** Closed boxes say more of what they hold where there is room for it, without more columns. */
  private describe(least: number): void {
    const { shape } = this;
    this.least = least;
    const fits = (other: Shape): boolean => {
      this.shape = other;
      return this.fitOf(this.openness) >= least && this.arrows <= MOST_ARROWS;
    };
    const allowed = SHAPES.filter((other) => other === shape || !other.free);
    for (let lines = CONTENT_LINES + 1; lines > 1; lines--) {
      this.writer.most = lines;
      if (allowed.some(fits)) return;
    }
    this.writer.most = 1;
    this.shape = shape;
  }
  /** Whether most of the program is in a closed item: text may then be smaller to show it. */
  private isMost(node: number): boolean {
    const { tree } = this;
    return node < tree.stacks && worthOf(tree, node) >= MOST_WORK;
  }
  /** Opens fusions that work, smaller ones first, as long as the picture can be read. */
  private openFusions(least: number): void {
    const { tree, weight } = this;
    const working = worthOf(tree, tree.root) > 0;
    const { nodes, kind } = this.projected(this.openness);
    const fusions = [...nodes].filter((v, item) => {
      const group = v < tree.stacks ? tree.groupOf(v) : -1;
      const isFusion = group >= 0 && this.model.groupKind(group) === "fusion";
      const works = !working || worthOf(tree, v) >= WORTH_OPENING;
      return isFusion && works && kind[item] !== ItemKind.Open && weight[v] > 2;
    });
    for (const v of fusions.sort((a, b) => weight[a] - weight[b] || a - b)) {
      const next = this.openness.copy();
      next.open[v] = 1;
      if (this.fits(next, least)) this.openness = next;
    }
  }
  /** Chooses the shape in which a picture is largest, and returns its scale there. */
  private bestShape(openness: Openness): number {
    let most = 0;
    let best = this.shape;
    for (const shape of SHAPES) {
      this.shape = shape;
      const fit = this.fitOf(openness);
      if (fit > most * WORTHWHILE) {
        most = fit;
        best = shape;
      }
      if (most >= LEAST_SCALE) break;
    }
    this.shape = best;
    return most;
  }
  /** Whether a picture can be read in some shape, which is then kept. */
  private fits(openness: Openness, least: number, most = MOST_BOXES): boolean {
    const before = this.shape;
    this.least = least;
    for (const shape of [before, ...SHAPES]) {
      this.shape = shape;
      const fit = this.fitOf(openness);
      if (this.shown > most || (shape === before && fit < least * HOPELESS)) break;
      if (fit >= least && this.arrows <= MOST_ARROWS) return true;
    }
    this.shape = before;
    return false;
  }
  /** The closed item with most work, or with most boxes where nothing has any; -1 for none. */
  private heaviest(refused: Set<string>): number {
    const { tree } = this;
    const working = worthOf(tree, tree.root) > 0;
    const p = this.projected(this.openness);
    const worth = this.worths(p);
    const closed = new Map<number, number>(); // the heaviest in a container that does not fit
    for (let item = 1; item < p.nodes.length; item++) {
      if (p.kind[item] === ItemKind.Open || !refused.has(this.kindOf(p.nodes[item]))) continue;
      const mine = worth[item];
      for (let at = p.parent[item]; at > 0; at = p.parent[at]) {
        closed.set(at, Math.max(closed.get(at) ?? 0, mine));
      }
    }
    let heaviest = -1;
    let most = 0;
    const levels = new Uint16Array(p.nodes.length);
    const inLayer = new Uint8Array(p.nodes.length);
    for (let item = 1; item < p.nodes.length; item++) {
      const node = p.nodes[item];
      const around = p.parent[item];
      levels[item] = levels[around];
      const isOnly = around > 0 && worth[around] >= NEARLY_ALL * worth[p.parent[around]];
      inLayer[item] = inLayer[around] || (around > 0 && this.isInnermost(p.nodes[around])) ? 1 : 0;
      if (around > 0 && (inLayer[item] || !isOnly)) levels[item]++;
      if (node < tree.stacks && !this.opensAtFirst(node)) continue;
      const kind = this.kindOf(node);
      if (p.kind[item] === ItemKind.Open || refused.has(kind)) continue;
      if (this.isAfterClosed(p, item)) continue;
      const mine = worth[item];
      if (working && mine < WORTH_OPENING) continue;
      if (mine < INSTEAD * (closed.get(p.parent[item]) ?? 0)) continue;
      let value = mine * DEEPER ** levels[item];
      if (node < tree.stacks && !this.holdsCalls(node)) value *= NO_CALLS;
      if (value > most) {
        heaviest = node;
        most = value;
      }
    }
    return heaviest;
  }
  /** Whether it is the pass back of a closed one forward beside it: alone it says little. */
  private isAfterClosed(p: Projection, item: number): boolean {
    const { tree } = this;
    if (this.directionOf(p.nodes[item]) !== Direction.Back) return false;
    const around = p.parent[item];
    for (let e = p.childOffsets[around]; e < p.childOffsets[around + 1]; e++) {
      const node = p.nodes[p.children[e]];
      if (p.kind[p.children[e]] !== ItemKind.Closed) continue;
      const isForward = this.directionOf(node) === Direction.Forward;
      if (isForward && worthOf(tree, node) >= WORTH_OPENING) return true;
    }
    return false;
  }
  private directionOf(node: number): number {
    const { tree, model } = this;
    return tree.isGroup(node) ? (model.group.direction?.[node - tree.instructions] ?? 0) : 0;
  }
  /** Whether a group says what is in it, rather than how: no fusion, no reducer. */
  private opensAtFirst(node: number): boolean {
    const { tree, weight } = this;
    if (!tree.canOpen(node) || weight[node] < 2) return false;
    const group = tree.groupOf(node);
    return group < 0 || !INNER.has(this.model.groupKind(group));
  }
  /** Whether there are calls or loops in a group, or in the loop that it is. */
  private holdsCalls(node: number): boolean {
    const { tree } = this;
    for (let e = tree.childOffsets[node]; e < tree.childOffsets[node + 1]; e++) {
      const v = tree.children[e];
      if (!this.opensAtFirst(v)) continue;
      const group = tree.groupOf(v);
      if (group < 0 || this.model.groupKind(group) !== "component") return true;
    }
    return false;
  }
  /** What has a single container in it opens with it: a picture of one box says nothing. */
  private openThrough(openness: Openness, node: number): void {
    const { tree, flow, weight } = this;
    for (let at = node; ; ) {
      const inside = visibleChildren(tree, flow, weight, openness, at);
      if (inside.length !== 1 || inside[0] >= tree.stacks || !this.opensAtFirst(inside[0])) return;
      at = inside[0];
      openness.open[at] = 1;
    }
  }
  /** Cached, as each projection visits every instruction and the search returns to the same ones. */
  private projected(openness: Openness): Projection {
    let found = this.tried.get(openness);
    if (!found) {
      found = project(this.tree, this.flow, this.weight, openness);
      this.tried.set(openness, found);
    }
    return found;
  }
  private laidOut(projection: Projection): Picture {
    const { free, ...shape } = this.shape;
    const room = { width: this.paneWidth / this.least, height: this.paneHeight / this.least };
    return layoutPicture(projection, this.writer, this.cache, {
      ...shape,
      aspect: this.aspect,
      room: free ? room : undefined,
    });
  }
  /** Scale at which the whole picture would fit the pane. */
  private fitOf(openness: Openness): number {
    const projection = this.projected(openness);
    const picture = this.laidOut(projection);
    this.shown = 0;
    for (const k of projection.kind) if (k !== ItemKind.Open) this.shown++;
    const { count, pointOffsets } = picture.edges;
    this.arrows = 0;
    for (let e = 0; e < count; e++) if (pointOffsets[e + 1] > pointOffsets[e]) this.arrows++;
    return Math.min(this.paneWidth / picture.width, this.paneHeight / picture.height);
  }
  /** What is tried once: a group of this name and size, or a fold. */
  private kindOf(node: number): string {
    const { stacks, foldAt } = this.tree;
    if (node >= stacks) return `fold ${foldAt[node - stacks]}`;
    return `${this.weight[node]} ${nodeLabel(this.tree, node)}`;
  }

  rebuild(): Scene {
    const t0 = performance.now();
    const projection =
      this.tried.get(this.openness) ?? project(this.tree, this.flow, this.weight, this.openness);
    const t1 = performance.now();
    const picture = this.laidOut(projection);
    const t2 = performance.now();
    const scene = new Scene(this.tree, picture);
    const t3 = performance.now();
    this.projectMs = t1 - t0;
    this.layoutMs = t2 - t1;
    this.sceneMs = t3 - t2;
    return scene;
  }

  /** Tree node of a target: a container, or the stack of a whole fold. */
  node(target: Target): number {
    if (target.kind === "group") return this.tree.node(target.index);
    if (target.kind === "instruction") return target.index;
    return this.tree.stacks + this.model.fold.members.offsets[target.index];
  }
  canOpen(target: Target): boolean {
    if (target.kind === "fold") return target.index >= 0 && target.index < this.model.fold.count;
    const node = this.node(target);
    return node < this.tree.stacks && this.tree.canOpen(node) && this.weight[node] > 0;
  }
  isOpen(target: Target): boolean {
    if (target.kind === "fold") return this.openness.foldOpen(target.index);
    return this.openness.open[this.node(target)] === 1;
  }
  /** Shows each member of a fold by itself, or all of them as one closed box. */
  setApart(fold: number, apart: boolean): void {
    this.openness.setApart(fold, apart);
  }
  isApart(fold: number): boolean {
    return this.openness.isApart(fold);
  }
  /** Opens or closes a target; true if anything changed. Opening also opens what hides it. */
  set(target: Target, open: boolean): boolean {
    if (!this.canOpen(target)) return false;
    const { tree, openness } = this;
    if (target.kind === "fold") {
      const changed = open !== openness.foldOpen(target.index);
      openness.setFold(target.index, open);
      if (open) this.openObvious(tree.firstOf(this.node(target)));
      return changed;
    }
    const node = this.node(target);
    if (node === tree.root) return false;
    const changed = open ? openness.uncover(node) : false;
    if (openness.open[node] === (open ? 1 : 0)) return changed;
    openness.open[node] = open ? 1 : 0;
    if (open) this.openObvious(node);
    return true;
  }
  /** A loop opens into its body; an only child opens with its parent. */
  private openObvious(node: number): void {
    const { tree, openness } = this;
    let only = -1;
    let children = 0;
    for (let e = tree.childOffsets[node]; e < tree.childOffsets[node + 1]; e++) {
      const v = tree.children[e];
      if (this.weight[v] === 0) continue;
      children++;
      only = v;
      if (tree.isGroup(v) && node < tree.instructions) {
        if (tree.model.groupKind(v - tree.instructions) === "body") openness.open[v] = 1;
      }
    }
    if (children === 1 && tree.isGroup(only) && tree.memberAt[only - tree.instructions] < 0) {
      openness.open[only] = 1;
      this.openObvious(only);
    }
  }

  /** Opens containers level by level, largest first, then folds, up to `limit` boxes. */
  openAll(limit: number): void {
    const { tree, openness, weight } = this;
    const order: number[] = [];
    for (const v of tree.topDown) if (tree.canOpen(v) && weight[v] > 0) order.push(v);
    const depth = new Map<number, number>();
    for (const v of order) depth.set(v, (depth.get(tree.parent[v]) ?? -1) + 1);
    order.sort(
      (a, b) =>
        (depth.get(a) as number) - (depth.get(b) as number) || weight[b] - weight[a] || a - b,
    );
    openness.loose.fill(0);
    openness.open.fill(0);
    openness.open[tree.root] = 1;
    // Containers that would exceed the limit stay closed.
    let boxes = 1;
    for (const v of order) {
      const kids = tree.childOffsets[v + 1] - tree.childOffsets[v];
      if (v !== tree.root && boxes + kids > limit) continue;
      const p = tree.parent[v];
      if (p >= 0 && !openness.open[p]) continue;
      boxes += kids;
      openness.open[v] = 1;
      if (tree.isGroup(v)) {
        const at = tree.memberAt[v - tree.instructions];
        if (at >= 0) openness.loose[at] = 1;
      }
    }
    for (let f = 0; f < this.model.fold.count; f++) {
      const { offsets } = this.model.fold.members;
      if (boxes + offsets[f + 1] - offsets[f] > limit) continue;
      openness.setApart(f, true);
    }
  }
  closeAll(): void {
    const { tree, openness } = this;
    openness.loose.fill(0);
    openness.open.fill(0);
    let v = tree.root;
    openness.open[v] = 1;
    // Opens down to the outermost level with more than one thing in it.
    for (;;) {
      const kids: number[] = [];
      for (let e = tree.childOffsets[v]; e < tree.childOffsets[v + 1]; e++) {
        if (this.weight[tree.children[e]] > 0) kids.push(tree.children[e]);
      }
      if (kids.length !== 1 || !tree.canOpen(kids[0])) break;
      v = kids[0];
      openness.open[v] = 1;
    }
  }

  /** Item that shows or hides a selection; -1 if it is not in the picture. */
  itemOf(p: Projection, s: Selection): number {
    if (s.kind === "instruction") {
      const item = p.itemOfInstruction[s.index] ?? -1;
      return item > 0 ? item : -1;
    }
    if (s.kind === "group") return p.itemOfGroup[s.index] ?? -1;
    if (s.kind === "computation") {
      const g = this.model.computation.group[s.index] ?? -1;
      return g >= 0 ? p.itemOfGroup[g] : -1;
    }
    if (s.kind === "fold") {
      const first = this.model.fold.members.values[this.model.fold.members.offsets[s.index]];
      return p.itemOfGroup[first] ?? -1;
    }
    return -1;
  }
  /** The selection that an item stands for. */
  selectionOf(p: Projection, item: number): Selection {
    const node = p.nodes[item];
    if (node < this.tree.instructions) return { kind: "instruction", index: node };
    if (node < this.tree.stacks) return { kind: "group", index: node - this.tree.instructions };
    return { kind: "fold", index: this.tree.foldAt[node - this.tree.stacks] };
  }
  targetOf(p: Projection, item: number): Target {
    return this.selectionOf(p, item) as Target;
  }
}
