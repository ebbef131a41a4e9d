/** What the graph pane offers to the rest of the explorer. */
import type { ViewModel } from "../base/model.ts";
import type { EdgeNote } from "../scene/marks.ts";
import type { Selection } from "../view.ts";
import type { LifeStep } from "./life.ts";
import type { GraphTheme } from "./theme.ts";

/** Something that opens and closes: a group, a fold, or an instruction that calls computations. */
export interface Target {
  kind: "group" | "fold" | "instruction";
  index: number;
}

/** `focusNext` follows the data flow (up and down) or goes round the neighbours in a container. */
export type Direction = "operand" | "user" | "previous" | "next" | "in" | "out";

/** The part of a colouring the pane reads; every `Coloring` of the panels is one. */
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

/** One entry of the key to the colours on screen; numeric colourings give their value range. */
export interface LegendEntry {
  label: string;
  color: string;
  /** Boxes of the module with this colour; absent for numeric colourings. */
  count?: number;
  value?: number;
  /** There are less than this, of the same colour. */
  atMost?: boolean;
}

export interface GraphStats {
  /** Boxes, chips and edges in the scene, open or not on screen. */
  boxes: number;
  containers: number;
  edges: number;
  chips: number;
  /** Milliseconds of the last projection, layout and scene, and of the last frame. */
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

/** Where something is on screen, in CSS pixels from the pane's corner. */
export interface ScreenRect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface GraphPane {
  /** The whole picture, however small. The first picture is never smaller than can be read. */
  fit(): void;
  /** Zooms about the middle of the pane. */
  zoom(factor: number): void;
  /** Opens what hides the instruction and brings it into view. Does not select it. */
  reveal(instruction: number): void;
  revealGroup(group: number): void;
  open(target: Target): void;
  close(target: Target): void;
  toggle(target: Target): void;
  /** Whether the target can be opened at all, and whether it is open. */
  canOpen(target: Target): boolean;
  isOpen(target: Target): boolean;
  /** Opens or closes what is selected; true if there was something to do. */
  toggleSelected(): boolean;
  /** Opens everything, largest first, until `limit` boxes are shown (default 5,000). */
  openAll(limit?: number): void;
  closeAll(): void;
  /** Back to the first picture. */
  openDefault(): void;
  /** Whether tuples and their kin, and asynchronous copies, are boxes of their own. */
  readonly shown: { plumbing: boolean; moves: boolean };
  setShown(plumbing: boolean, moves: boolean): void;
  /** Takes back what was opened, closed or shown, and does it again; false if there was nothing. */
  readonly canUndo: boolean;
  readonly canRedo: boolean;
  undo(): boolean;
  redo(): boolean;
  /** What is open and in sight, as the words of a link; see place.ts. */
  place(): Record<string, string>;
  /** Opens and looks as such words say; false for those of another module. */
  setPlace(words: URLSearchParams): boolean;
  setColoring(coloring: BoxColoring | null): void;
  setTheme(theme: GraphTheme): void;
  /** Shows the module at one of many passes, with colours of its own; null: all of it. */
  setLife(step: LifeStep | null): void;
  /** Marks edges, each with a text shown on hover; none when empty. */
  setMarks(notes: readonly EdgeNote[]): void;
  legend(): LegendEntry[];
  /** Highlights what is within `hops` edges of the instruction; the number of instructions lit. */
  neighbourhood(instruction: number, hops: number): number;
  /** Highlights every instruction on a data path between the two; 0 when there is none. */
  path(a: number, b: number): number;
  clearHighlight(): void;
  /** The whole picture as an SVG document. */
  exportSvg(): string;
  /** The picture on screen as a PNG data URL. */
  exportPng(): string;
  /** Shows or hides the minimap (it hides itself when everything fits). */
  setMinimap(shown: boolean): void;
  stats(): GraphStats;
  /** Screen place of an item, or of the closed group that hides it; null when not in the picture. */
  locate(selection: Selection): ScreenRect | null;
  /** Places of all boxes in the picture itself, wherever the camera is. */
  boxes(): { selection: Selection; x: number; y: number; w: number; h: number; being: number }[];
  /** Calls back after anything was opened or closed; returns what undoes it. */
  onOpenChange(callback: () => void): () => void;
  /** Calls back after the picture was moved or zoomed by hand. */
  onMove(callback: () => void): () => void;
  /** Moves the selection; returns false when there is nowhere to go. */
  focusNext(direction: Direction): boolean;
  dispose(): void;
}
