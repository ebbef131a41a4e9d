/** The interface of a panel. The ordered list of panels is `panels/index.ts`. */
import type { Csr, TextModel, ViewModel } from "../base/model.ts";
import type { WhenReleased } from "../base/press.ts";
import type { StagesModel } from "../base/stages.ts";
import type { PassLoader } from "../state/passes/loader.ts";
import type { Search } from "../state/search/search.ts";
import type { Store } from "../state/store.ts";
import type { Host } from "../view.ts";

/** What panels may use of the graph pane. */
export interface GraphControl {
  /** Opens what hides the instruction and brings it into view. */
  reveal(instruction: number): void;
  revealGroup(group: number): void;
  fit(): void;
}

/** A picture of another View that covers the graph until the panel is closed. */
export interface Stage {
  /** Covers the graph, its legend and strip; the panel may add to it. */
  element: HTMLElement;
  /** The picture within `element`. */
  graph: HTMLElement;
  store: Store;
  pane: {
    /** `state` is a `Life` of state/passes/passes.ts for every instruction; see `LifeStep`. */
    setLife(
      step: {
        state: Uint8Array;
        operands: Csr;
        before: Csr;
        onUndrawn?: (arrows: number) => void;
      } | null,
    ): void;
    reveal(instruction: number): void;
    fit(): void;
    zoom(factor: number): void;
    toggleSelected(): boolean;
    focusNext(direction: "operand" | "user"): boolean;
  };
}

export interface PanelContext {
  model: ViewModel;
  store: Store;
  host: Host;
  graph: GraphControl;
  search: Search;
  /** The colourings that this View currently has data for. */
  colorings(): readonly Coloring[];
  /** The text block, fetched once and cached. */
  text(): Promise<TextModel>;
  /** The texts of all stages, fetched once and cached. */
  stages(): Promise<StagesModel>;
  /** Sets whether the panel also takes the place of the graph, until another panel opens. */
  alone(on: boolean): void;
  /** The compiler's passes, fetched on request. */
  passes: PassLoader;
  stage(model: ViewModel, signal: AbortSignal): Stage;
  /** Runs work that redraws parts: at once, or, if something is pressed, after the release. */
  whenReleased: WhenReleased;
  /** Writes into the status line. */
  note(words: string): void;
  /** Aborted when the panel is closed or the explorer disposed. */
  signal: AbortSignal;
}

export interface Panel {
  id: string; // "details"
  title: string; // "Details"
  /** Preferred share of the explorer's width until the user drags the grip; by default about a third. */
  width?: number;
  /** Fills its area and scrolls by itself: no padding around it. */
  fills?: boolean;
  /** Shows nothing that depends on the chip: stays as it is when another one is chosen. */
  ofNoChip?: boolean;
  /** Whether this View has what the panel shows; panels without data get no tab. */
  available(model: ViewModel, host?: Host): boolean;
  /** Fills `element` (inside the shadow root; use textContent only). Clean up on ctx.signal. */
  render(element: HTMLElement, ctx: PanelContext): void;
}

/** A way to colour boxes. The ordered list is `panels/colorings/colorings.ts`. */
export interface Coloring {
  id: string; // "bytes"
  label: string; // "Output bytes"
  available(model: ViewModel): boolean;
  /** Value per instruction; NaN is unknown. Categorical when `categories` is given. */
  values(model: ViewModel): ArrayLike<number>;
  categories?(model: ViewModel): string[];
  /** For amounts that add up: the values to add, so that nothing is counted twice. */
  amounts?(model: ViewModel): ArrayLike<number>;
  /** Label for instructions in no category; "unknown" by default. */
  rest?: string;
  unit?: string; // "B", "FLOP", "s"
  scale?: "log" | "linear";
  /** Says where the number comes from: "XLA", "measured", "modelled". */
  source?: string | ((model: ViewModel) => string);
}

/** A colouring evaluated for every instruction; the legend and the strip paint with it. */
export interface Paint {
  coloring: Coloring;
  /** Index into `colors` per instruction. */
  index: ArrayLike<number>;
  colors: readonly string[];
  /** For amounts, colour 0 is "unknown", 1 is zero, and the others rise evenly from least to most. */
  numeric: boolean;
  /** Range of the colour scale for amounts; null if nothing is known. */
  range: [least: number, most: number] | null;
  /** Whether some values are below the least, and have its colour. */
  clipped: boolean;
}
