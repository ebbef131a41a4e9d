/**
 * What Python sends for a planning page: sections in order, with all figures already computed.
 * Written by python/hloscope/plan/*_view.py; numbers are in base units (s, B, FLOP), null is unknown.
 */
export type Cell = string | number | null;

export interface Column {
  name: string;
  /** "s", "B", "FLOP" or "": how numbers are formatted. */
  unit?: string;
  /** Sentences, which may take several lines. */
  wrap?: boolean;
}

export interface Facts {
  type: "facts";
  title?: string;
  note?: string;
  /** The same as text, for the clipboard. */
  copy?: string;
  rows: [string, string][];
}

export interface Words {
  type: "text";
  title: string;
  text: string;
  code?: boolean;
}

export interface Table {
  type: "table";
  title: string;
  note?: string;
  columns: Column[];
  rows: Cell[][];
  /** One per row, for "open" and "diff"; absent if nothing can be opened. */
  ids?: (number | null)[];
  /** URLs of pages beside this one, by row. */
  links?: (string | null)[];
  marked?: number[];
  /** Code of each row, shown when it is selected, or what `code_name` says that it is. */
  code?: string[];
  code_name?: string;
  /** What the first row that opens is: others compare with it; absent: the best. */
  first_name?: string;
}

export interface Scatter {
  type: "scatter";
  title: string;
  note?: string;
  x: Column;
  y: Column;
  points: { id: number; x: number; y: number; label: string; front: boolean }[];
}

export interface Heatmap {
  type: "heatmap";
  title: string;
  note?: string;
  rows: string[];
  columns: string[];
  metrics: { name: string; unit: string; values: (number | null)[][] }[];
  marked: { row: number; column: number; label: string }[];
}

export interface Gantt {
  type: "gantt";
  title: string;
  note?: string;
  options: {
    kind: string;
    microbatches: number;
    seconds: number;
    bubble: number;
    lanes: string[];
    /** lane, start, end, kind of work, label */
    work: [number, number, number, string, string][];
    /** By lane: (second, bytes from then on); null if unknown. */
    memory: ([number, number][] | null)[];
    inFlight: number[];
  }[];
  chosen: number;
  /** Figures that can be edited if there is a kernel to answer. */
  edit?: { name: string; label: string; value: number; unit: string }[];
}

/** Spans of time in lanes; `part` is an index into `parts`. */
export interface Spans {
  type: "spans";
  title: string;
  note?: string;
  lanes: string[];
  parts: string[];
  seconds: number;
  spans: [lane: number, start: number, end: number, part: number, label: string][];
}

export interface Grid {
  type: "grid";
  title: string;
  note?: string;
  /** Each stage with its devices as [row, column]. */
  stages: { label: string; devices: [number, number][] }[];
  rows: number;
  columns: number;
}

export interface ExplorerCase {
  /** Each mesh with its label, facts, seconds by part, and bytes by part. */
  meshes: { label: string; fits: boolean; facts: number[]; time: number[]; memory: number[] }[];
  /** Why there are no meshes. */
  why?: string;
}

export interface Explorer {
  type: "explorer";
  title: string;
  note?: string;
  sliders: { name: string; values: number[]; at: number }[];
  facts: Column[];
  time: string[];
  memory: string[];
  /** Row-major over the sliders. */
  cases: ExplorerCase[];
}

export interface Bars {
  type: "bars";
  title: string;
  note?: string;
  unit: string;
  parts: string[];
  rows: { name: string; values: number[] }[];
}

export type Section =
  | Facts
  | Words
  | Table
  | Scatter
  | Heatmap
  | Gantt
  | Spans
  | Grid
  | Explorer
  | Bars;

export interface PlanView {
  title: string;
  sections: Section[];
}

/** A kernel's answer: a new view, or a page to show below. */
export interface Answer {
  view?: PlanView;
  html?: string;
}

export interface PlanHost {
  view: PlanView;
  /** Absent on a saved page. */
  ask?(what: string, values: Record<string, unknown>): Promise<Answer>;
}
