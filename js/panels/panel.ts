/** What a panel is. The ordered list of them is `panels/index.ts`; one file a panel. */
import type { Csr, TextModel, ViewModel } from "../base/model.ts";
import type { WhenReleased } from "../base/press.ts";
import type { StagesModel } from "../base/stages.ts";
import type { PassLoader } from "../state/pass-loader.ts";
import type { Search } from "../state/search.ts";
import type { Store } from "../state/store.ts";
import type { Host } from "../view.ts";

/** What panels may ask of the graph pane. */
export interface GraphControl {
  /** Opens what hides the instruction and brings it into view. */
  reveal(instruction: number): void;
  revealGroup(group: number): void;
  fit(): void;
}

/** A picture of another View, which lies over the graph until the panel is closed. */
export interface Stage {
  /** Covers the graph, its legend and strip; the panel adds what it likes. */
  element: HTMLElement;
  /** Where the picture is, in `element`. */
  graph: HTMLElement;
  store: Store;
  pane: {
    /** `state` is a `Life` of state/passes.ts for every instruction; see `LifeStep`. */
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
  /** Ways to colour that this View has data for, now. */
  colorings(): readonly Coloring[];
  /** The text block, fetched once and kept. */
  text(): Promise<TextModel>;
  /** The texts of all stages, fetched once and kept. */
  stages(): Promise<StagesModel>;
  /** Whether the panel has the place of the graph too, until another panel opens. */
  alone(on: boolean): void;
  /** The passes of the compiler, fetched once somebody asks. */
  passes: PassLoader;
  stage(model: ViewModel, signal: AbortSignal): Stage;
  /** Runs what draws parts anew: at once, or after the release when something is pressed. */
  whenReleased: WhenReleased;
  /** Aborted when the panel is closed or the explorer disposed. */
  signal: AbortSignal;
}

export interface Panel {
  id: string; // "details"
  title: string; // "Details"
  /** Share of the explorer's width it wants until a person drags the grip; about a quarter otherwise. */
  width?: number;
  /** Fills its place and scrolls itself: no padding around it. */
  fills?: boolean;
  /** Whether this View has what the panel shows; panels without data are not offered. */
  available(model: ViewModel, host?: Host): boolean;
  /** Fills `element` (inside the shadow root; use textContent only). Clean up on ctx.signal. */
  render(element: HTMLElement, ctx: PanelContext): void;
}

/** A way to colour boxes. The ordered list is `panels/colorings.ts`. */
export interface Coloring {
  id: string; // "bytes"
  label: string; // "Output bytes"
  available(model: ViewModel): boolean;
  /** Value per instruction; NaN is unknown. Categorical when `categories` is given. */
  values(model: ViewModel): ArrayLike<number>;
  categories?(model: ViewModel): string[];
  /** Of amounts that add up: those to add, so that nothing counts twice. */
  amounts?(model: ViewModel): ArrayLike<number>;
  /** What to call those that are in no category; "unknown" when not given. */
  rest?: string;
  unit?: string; // "B", "FLOP", "s"
  scale?: "log" | "linear";
  /** Says where the number comes from: "XLA", "measured", "modelled". */
  source?: string | ((model: ViewModel) => string);
}

/** A colouring worked out for every instruction by the drawing; legend and strip paint with it. */
export interface Paint {
  coloring: Coloring;
  /** Per instruction, into `colors`. */
  index: ArrayLike<number>;
  colors: readonly string[];
  /** Amounts: colour 0 is "unknown", 1 is zero, the others rise evenly from least to most. */
  numeric: boolean;
  /** Least and most known value of an amount; null when nothing is known. */
  range: [least: number, most: number] | null;
  /** Some are less than the least, and have its colour. */
  clipped: boolean;
}
