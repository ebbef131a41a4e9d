/**
 * The pane's size on the page. Until the user opens or moves something, a new size gets a new
 * initial picture; afterwards the picture stays, and a selection in view stays in view.
 */
import { look, type Sight, sightOf } from "./place.ts";
import type { Renderer } from "./renderer.ts";

export class Sizing {
  /** The user has opened or moved something. */
  touched = false;
  /** What is open came from a link and is not replaced by an initial picture. */
  private linked = false;
  /** Whether everything around the pane has its size; until then the initial picture is remade. */
  private settled = false;
  /** What a link shows, until the pane has its size. */
  private sight: Sight | null = null;
  /** Size of the whole explorer for which the picture was laid out. */
  private laidFor: string;

  /** `remake` makes the initial picture for the present size. */
  constructor(
    private readonly element: HTMLElement,
    private readonly renderer: Renderer,
    private readonly remake: () => void,
  ) {
    this.laidFor = this.outerSize();
  }

  /** Begins to follow the element's size. */
  watch(signal: AbortSignal): void {
    this.renderer.resize();
    this.renderer.fit(true, true);
    const observer = new ResizeObserver(() => this.resized());
    observer.observe(this.element);
    signal.addEventListener("abort", () => observer.disconnect(), { once: true });
  }
  /** The initial picture is shown again, on request. */
  reset(): void {
    this.touched = false;
    this.linked = false;
  }
  /** The part of the picture to store in a link; null if it is simply all of it. */
  get stored(): Sight | null {
    return this.touched ? sightOf(this.renderer.camera) : null;
  }
  /** Shows what a link says; null: all of it. */
  restore(sight: Sight | null): void {
    const { renderer } = this;
    if (sight) {
      look(renderer.camera, sight);
      renderer.moved();
      this.sight = this.settled ? null : sight;
    } else {
      this.touched = false;
      this.linked = true;
      renderer.fit(true, true);
    }
  }

  private outerSize(): string {
    const outer = this.element.closest(".root") ?? this.element;
    return `${outer.clientWidth}×${outer.clientHeight}`;
  }
  private resized(): void {
    const { renderer } = this;
    // A selection that is in view stays in view when a panel opens beside it.
    const box = renderer.selected > 0 ? renderer.scene.rect(renderer.selected) : null;
    const { x, y, w, h } = renderer.camera.view;
    const seen = box && box.x < x + w && box.x + box.w > x && box.y < y + h && box.y + box.h > y;
    if (!renderer.resize()) return;
    const size = this.outerSize();
    const another = size !== this.laidFor;
    this.laidFor = size;
    if (this.sight) {
      look(renderer.camera, this.sight);
      renderer.moved();
    } else if (this.touched) {
      if (box && seen) renderer.show(box);
    } else {
      // Panels and the legend take and give space; the same picture is then fitted again.
      if ((another || !this.settled) && !this.linked) this.remake();
      renderer.fit(!this.settled, true);
      if (!this.settled) requestAnimationFrame(() => requestAnimationFrame(() => this.settle()));
    }
  }
  private settle(): void {
    this.settled = true;
    this.sight = null;
  }
}
