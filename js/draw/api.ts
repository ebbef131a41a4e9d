/** What the graph pane offers to the rest of the explorer. */
import type { ViewModel } from "../base/model.ts";
import type { EdgeNote } from "../scene/marks.ts";
import type { GraphTheme } from "../theme/graph.ts";
import type { Selection } from "../view.ts";
import type { LifeStep } from "./life.ts";
import type { Sight } from "./place.ts";

/**
 * Something that can be opened: a group, a fold, or an instruction that calls computations. An open
 * fold is a frame around what is in the first of its members.
 */
export interface Target {
  kind: "group" | "fold" | "instruction";
  index: number;
}

/** Where `focusNext` goes: along the data flow, to a neighbour in the container, into or out of it. */
export type Direction = "operand" | "user" | "previous" | "next" | "in" | "out";

/** The part of a colouring that the pane uses; every `Coloring` of the panels is one. */
export interface BoxColoring {
  id: string;
  label: string;
  values(model: ViewModel): ArrayLike<number>;
  categories?(model: ViewModel): string[];
  amounts?(model: ViewModel): ArrayLike<number>;
  rest?: string;
  unit?: string;
  scale?: "log" | "linear";
  source?: string | ((model: ViewModel) => string);
}

/** One entry of the colour legend; numeric colourings give their value range. */
export interface LegendEntry {
  label: string;
  color: string;
  /** Number of instructions with this colour; absent for numeric colourings. */
  count?: number;
  value?: number;
  /** Smaller values exist and have the same colour. */
  atMost?: boolean;
}

export interface GraphStats {
  /** Boxes, containers, edges and chips in the scene, on screen or not. */
  boxes: number;
  containers: number;
  edges: number;
  chips: number;
  /** Milliseconds spent on the last projection, layout and scene, and on the last frame. */
  projectMs: number;
  layoutMs: number;
  sceneMs: number;
  frameMs: number;
  frames: number;
  scale: number;
  /** Size of the whole picture, in world units (CSS pixels at scale 1). */
  worldWidth: number;
  worldHeight: number;
}

/** Where something is on screen, in CSS pixels from the pane's top-left corner. */
export interface ScreenRect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface GraphPane {
  /** Shows the whole picture, however small. The initial picture is never too small to read. */
  fit(): void;
  /** Zooms about the middle of the pane. */
  zoom(factor: number): void;
  /** Opens what hides the instruction and brings it into view, without selecting it. */
  reveal(instruction: number): void;
  revealGroup(group: number): void;
  open(target: Target): void;
  close(target: Target): void;
  toggle(target: Target): void;
  /** Whether the target can be opened at all, and whether it is open. */
  canOpen(target: Target): boolean;
  isOpen(target: Target): boolean;
  /** Whether each member of a fold is shown by itself. */
  isApart(fold: number): boolean;
  /** Shows each member of a fold by itself, or all of them as one closed box. */
  setApart(fold: number, apart: boolean): void;
  /** Opens or closes what is selected; returns whether it can be opened. */
  toggleSelected(): boolean;
  /** Shows one box alone, opened; null shows everything again. */
  isolate(target: Target | null): void;
  readonly isolated: Selection | null;
  /** What is at a place of the pane, in CSS pixels from its top-left corner; null for nothing. */
  at(x: number, y: number): Selection | null;
  /** Opens level by level, largest first, while at most `limit` boxes are shown (default 5,000). */
  openAll(limit?: number): void;
  closeAll(): void;
  /** Returns to the initial picture. */
  openDefault(): void;
  /** Whether tuples and the like (`plumbing`) and asynchronous copies (`moves`) have boxes. */
  readonly shown: { plumbing: boolean; moves: boolean };
  setShown(plumbing: boolean, moves: boolean): void;
  /** Undo and redo of what was opened, closed or shown; false if there was nothing to do. */
  readonly canUndo: boolean;
  readonly canRedo: boolean;
  undo(): boolean;
  redo(): boolean;
  /** What is in view: the middle of the pane in the picture, and the zoom. */
  sight: Sight;
  /** What is open and in view, as the parameters of a link; see place.ts. */
  place(): Record<string, string>;
  /** Restores what is open and in view from such parameters; false if they are of another module. */
  setPlace(words: URLSearchParams): boolean;
  setColoring(coloring: BoxColoring | null): void;
  setTheme(theme: GraphTheme): void;
  /** Shows the module at one of many passes, with its own colours; null: all of it. */
  setLife(step: LifeStep | null): void;
  /** Marks edges, each with a text shown on hover; an empty list removes all marks. */
  setMarks(notes: readonly EdgeNote[]): void;
  legend(): LegendEntry[];
  /** Highlights what is within `hops` edges of the instruction; returns the number of instructions. */
  neighbourhood(instruction: number, hops: number): number;
  /** Highlights every instruction on a data path from `a` to `b`; returns how many, 0 for no path. */
  path(a: number, b: number): number;
  clearHighlight(): void;
  /** The whole picture as an SVG document, with its legend, in this theme or another. */
  exportSvg(theme?: GraphTheme): string;
  /** The same as a PNG data URL, with that many pixels for each CSS pixel; "" if it is too large. */
  exportPng(scale?: number, theme?: GraphTheme): string;
  /** What is on screen as a PNG data URL; for tests. */
  screenshot(): string;
  /** Shows or hides the minimap (it hides itself when everything fits). */
  setMinimap(shown: boolean): void;
  stats(): GraphStats;
  /** Screen position of an item, or of the closed group that hides it; null if not in the picture. */
  locate(selection: Selection): ScreenRect | null;
  /** Positions of all boxes within the picture, wherever the camera is. */
  boxes(): { selection: Selection; x: number; y: number; w: number; h: number; life: number }[];
  /** Calls back after anything was opened or closed; returns a function that unsubscribes. */
  onOpenChange(callback: () => void): () => void;
  /** Calls back after the picture was moved or zoomed by hand; returns a function that unsubscribes. */
  onMove(callback: () => void): () => void;
  /** Moves the selection; returns false if there is nowhere to go. */
  focusNext(direction: Direction): boolean;
  dispose(): void;
}
