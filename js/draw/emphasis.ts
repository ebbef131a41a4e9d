/** The store's selection, hover and highlights, and the marks on edges, in the scene that is shown. */
import { type EdgeNote, edgeMarks } from "../scene/marks.ts";
import type { Scene } from "../scene/scene.ts";
import type { Store } from "../state/store.ts";
import type { Engine } from "./engine.ts";
import { type Links, usersOf } from "./input/walk.ts";
import { touched } from "./paint/overlay.ts";
import type { Renderer } from "./renderer.ts";

export class Emphasis {
  /** Users through plumbing, computed on first use. */
  private users: Links | null = null;
  private notes: readonly EdgeNote[] = [];
  private markedScene: Scene | null = null;

  constructor(
    private readonly engine: Engine,
    private readonly renderer: Renderer,
    private readonly store: Store,
    signal: AbortSignal,
  ) {
    for (const key of ["selection", "several", "hover", "highlight", "pointed"] as const) {
      store.on(key, () => this.refresh(), signal);
    }
  }

  refresh(): void {
    const { engine, renderer, store } = this;
    const { projection } = renderer.scene.picture;
    const selection = store.get("selection");
    renderer.selected = engine.itemOf(projection, selection);
    renderer.hovered = engine.itemOf(projection, store.get("hover"));
    renderer.lines =
      renderer.selected > 0
        ? touched(renderer.scene, engine.flow, this.usersNow(), renderer.selected, selection)
        : null;
    const several = store.get("several").map((s) => engine.itemOf(projection, s));
    renderer.pointed = [
      ...itemsOf(renderer.scene, store.get("pointed")),
      ...several.filter((item) => item > 0),
    ];
    const highlight = store.get("highlight");
    renderer.lit = highlight ? litItems(renderer.scene, highlight.instructions) : null;
    if (this.markedScene !== renderer.scene) this.mark();
    renderer.invalidate();
  }
  /** To be called when plumbing or moves were shown or hidden. */
  flowChanged(): void {
    this.users = null;
  }
  setMarks(notes: readonly EdgeNote[]): void {
    this.notes = notes;
    this.mark();
    this.renderer.invalidate();
  }

  private mark(): void {
    this.markedScene = this.renderer.scene;
    this.renderer.marks = edgeMarks(this.renderer.scene, this.notes);
  }
  private usersNow(): Links {
    this.users ??= usersOf(this.engine.flow, this.engine.model.instruction.count);
    return this.users;
  }
}

/** The items that show the instructions, each once. */
function itemsOf(scene: Scene, instructions: ReadonlySet<number> | null): number[] {
  const { itemOfInstruction } = scene.picture.projection;
  const items = new Set<number>();
  for (const i of instructions ?? []) {
    if (itemOfInstruction[i] > 0) items.add(itemOfInstruction[i]);
  }
  return [...items];
}

/** Per item, 1 if it shows or contains one of the instructions. */
function litItems(scene: Scene, instructions: ReadonlySet<number>): Uint8Array {
  const lit = new Uint8Array(scene.count);
  const { itemOfInstruction, parent } = scene.picture.projection;
  for (const i of instructions) {
    for (let item = itemOfInstruction[i] ?? -1; item > 0 && !lit[item]; item = parent[item]) {
      lit[item] = 1;
    }
  }
  return lit;
}
