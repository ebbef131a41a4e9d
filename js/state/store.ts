/**
 * What is selected, hovered, highlighted and chosen. It lives in the browser; only `selection`
 * and `options` are reported to the host. One store per mounted explorer.
 */
import type { ViewModel } from "../base/model.ts";
import type { Options, Selection } from "../view.ts";

export const NOTHING: Selection = { kind: "none", index: -1 };

const isSame = (a: Selection, b: Selection) => a.kind === b.kind && a.index === b.index;

export const DEFAULT_OPTIONS: Options = {
  theme: "auto",
  colorBy: "family",
  panel: "findings",
  panes: "",
  height: 640,
  hardware: null,
};

/** A set of instructions that a panel wants highlighted in the graph and text, with a reason. */
export interface Highlight {
  instructions: ReadonlySet<number>;
  reason: string; // "users of %dot.3", "all-reduce over model", "train.py:31"
}

/** A line of the user's own code that a panel points at. */
export interface SourceLine {
  file: string;
  line: number;
  /** The figure that colours the source panel: one of FIGURES in sources.ts. */
  figure?: string;
}

export interface State {
  selection: Selection;
  /** Boxes that were selected together, with Ctrl or Cmd; empty unless there are several. */
  several: readonly Selection[];
  hover: Selection;
  highlight: Highlight | null;
  /** Instructions pointed at elsewhere, for example in a text: outlined meanwhile. */
  pointed: ReadonlySet<number> | null;
  line: SourceLine | null;
  options: Options;
  /** Incremented when the values behind a colouring have changed, though its name has not. */
  paint: number;
  /** Incremented when analyses are added to the model. */
  analyses: number;
}

type Key = keyof State;

export class Store {
  private state: State;
  private listeners = new Map<Key, Set<() => void>>();
  private past: Selection[] = [];
  private future: Selection[] = [];

  constructor(
    readonly model: ViewModel,
    options: Partial<Options> = {},
  ) {
    this.state = {
      selection: NOTHING,
      several: [],
      hover: NOTHING,
      highlight: null,
      pointed: null,
      line: null,
      options: { ...DEFAULT_OPTIONS, ...options },
      paint: 0,
      analyses: 0,
    };
  }
  get<K extends Key>(key: K): State[K] {
    return this.state[key];
  }
  /** Calls `listener` after each change of `key`; returns a function that unsubscribes it. */
  on(key: Key, listener: () => void, signal?: AbortSignal): () => void {
    let set = this.listeners.get(key);
    if (!set) {
      set = new Set();
      this.listeners.set(key, set);
    }
    set.add(listener);
    const off = () => void set.delete(listener);
    signal?.addEventListener("abort", off, { once: true });
    return off;
  }
  private emit(key: Key): void {
    const listeners = this.listeners.get(key);
    for (const listener of [...(listeners ?? [])]) {
      // A listener may close another's panel: one that has unsubscribed is no longer called.
      if (!listeners?.has(listener)) continue;
      try {
        listener();
      } catch (error) {
        // One listener that fails must not stop the others.
        console.warn(`hloscope: a listener of ${key} failed`, error);
      }
    }
  }
  /** Adds a box to those that are selected, or removes it. */
  selectAlso(selection: Selection): void {
    const { selection: now, several } = this.state;
    const alone = now.kind === "none" ? [] : [now];
    const before = several.length ? several : alone;
    const without = before.filter((s) => !isSame(s, selection));
    const after = without.length < before.length ? without : [...before, selection];
    this.select(after[after.length - 1] ?? NOTHING);
    this.state.several = after.length > 1 ? after : [];
    this.emit("several");
  }
  select(selection: Selection): void {
    const now = this.state.selection;
    if (this.state.several.length) {
      this.state.several = [];
      this.emit("several");
    }
    if (now.kind === selection.kind && now.index === selection.index) return;
    if (now.kind !== "none") this.past.push(now);
    if (this.past.length > 200) this.past.shift();
    this.future = [];
    this.state.line = null; // it belonged to the previous selection
    this.state.selection = selection;
    this.emit("selection");
  }
  selectInstruction(index: number): void {
    this.select({ kind: "instruction", index });
  }
  get canBack(): boolean {
    return this.past.length > 0;
  }
  get canForward(): boolean {
    return this.future.length > 0;
  }
  /** The instruction selected before the current selection, or -1. */
  get previousInstruction(): number {
    for (let k = this.past.length - 1; k >= 0; k--) {
      if (this.past[k].kind === "instruction") return this.past[k].index;
    }
    return -1;
  }
  back(): boolean {
    const to = this.past.pop();
    if (!to) return false;
    this.future.push(this.state.selection);
    this.state.selection = to;
    this.emit("selection");
    return true;
  }
  forward(): boolean {
    const to = this.future.pop();
    if (!to) return false;
    this.past.push(this.state.selection);
    this.state.selection = to;
    this.emit("selection");
    return true;
  }
  hover(hover: Selection): void {
    const now = this.state.hover;
    if (now.kind === hover.kind && now.index === hover.index) return;
    this.state.hover = hover;
    this.emit("hover");
  }
  highlight(highlight: Highlight | null): void {
    this.state.highlight = highlight;
    this.emit("highlight");
  }
  point(instructions: ReadonlySet<number> | null): void {
    if (instructions === this.state.pointed) return;
    this.state.pointed = instructions;
    this.emit("pointed");
  }
  /** Opens the source panel at a line, coloured by `figure` if given. */
  showLine(file: string, line: number, figure?: string): void {
    this.state.line = { file, line, figure };
    this.setOptions({ panel: "source" });
    this.emit("line");
  }
  /** Paints again after the values behind the colouring have changed. */
  repaint(): void {
    this.state.paint++;
    this.emit("paint");
  }
  /** Announces that the model has more columns: what was missing may now be there. */
  extended(): void {
    this.state.analyses++;
    this.emit("analyses");
  }
  setOptions(options: Partial<Options>): void {
    this.state.options = { ...this.state.options, ...options };
    this.emit("options");
  }
}
