/** What a panel is. The ordered list of them is `panels/index.ts`; one file a panel. */
import type { TextModel, ViewModel } from "../base/model.ts";
import type { WhenReleased } from "../base/press.ts";
import type { StagesModel } from "../base/stages.ts";
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
  available(model: ViewModel): boolean;
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
