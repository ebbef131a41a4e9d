/**
 * The renderer's side of its contracts: with Python, which writes Views, and with its hosts.
 * TypeScript reads a View and adds no meaning of its own.
 *
 * Columns and headers are declared in python/hloscope/view/columns.py and header.py; docs/view.md
 * describes them. `npm run schema` makes view-extras.ts of the declaration: types of the headers,
 * and what base/validate.ts checks.
 */

import type { Findings, PassCost, PassTimesExtras } from "./view-extras.ts";

export type * from "./view-extras.ts";
export {
  ANALYSES_MAGIC,
  STAGES_MAGIC,
  TEXT_MAGIC,
  VIEW_MAGIC,
  VIEW_VERSION,
} from "./view-extras.ts";

/** Bits of `instruction.flags`. */
export const enum Flag {
  Root = 1,
  /** Drawn as text on its users: constants, iotas, scalar broadcasts. */
  Inline = 2,
  Parameter = 4,
  /** Contracted by default: get-tuple-element, bitcast, tuple, reshape, layout-only copy. */
  Plumbing = 8,
  /** Stays visible when zoomed out: matmuls, collectives, loops, large buffers. */
  Landmark = 16,
  /** Its value leaves the module: an operand of ENTRY's root tuple, or the root itself. */
  Output = 32,
  AsyncStart = 64,
  AsyncDone = 128,
  /** Asynchronous copies, and the done ops of asynchronous collectives; also plumbing. */
  Move = 256,
  /** What a loop does around each turn, to its own arrays: also inline (taken) or plumbing (kept). */
  Turn = 512,
  /** Less than 1 % of the program's arithmetic, which is known. */
  Little = 1024,
}

/** What the user can choose. Every field has a default; only these go back to Python. */
export interface Options {
  theme: "auto" | "light" | "dark";
  colorBy: string; // "family" | "scope" | "bytes" | more from analyses
  panel: string; // id of the open panel
  /** Texts of the Code panel: stage ids separated by commas; "graph" adds the graph. "": what fits. */
  panes: string;
  height: number; // CSS pixels
  /** Chip on which time is modelled, an id of extras.cost.hardware; null: extras.cost.chosen. */
  hardware: string | null;
}

export interface Selection {
  /** "fold": a run of equal groups shown as one box; index into fold.* */
  kind: "instruction" | "group" | "fold" | "computation" | "none";
  index: number;
}

/** Callbacks to the renderer while passes are computed, and after their block has arrived. */
export interface PassEvents {
  /** `done` of `of` steps; `of` is 0 when the total is not known. */
  progress(done: number, of: number, words: string): void;
  /** Figures of one row of extras.passes. */
  cost(row: number, cost: PassCost): void;
  /** Nothing more follows; `failed` says what went wrong, "" if nothing did. */
  ended(failed: string): void;
}

/** The host's side: where the renderer gets its bytes and reports what happened. */
/** A change that was tried: of a finding, by rule and title, the `way`-th proof; what to show of it. */
export interface Tried {
  rule: string;
  title: string;
  way: number;
  as: "program" | "diff";
}

/** Its page, and findings that say more since; absent: as they were. */
export interface TriedPage {
  page: Uint8Array;
  findings?: Findings;
}

export interface Host {
  /** The View block, gzip'd. May report progress while it arrives. */
  view(progress: (fraction: number | null) => void, signal: AbortSignal): Promise<Uint8Array>;
  /** The analyses block, gzip'd, requested after the first picture; null or absent: there is none. */
  analyses?(signal: AbortSignal): Promise<Uint8Array | null>;
  /** Ids of chips that `chip` has; absent: whichever the View names. */
  chips?: readonly string[];
  /** What the analyses say instead on another chip, gzip'd; absent: only those on the View's own. */
  chip?(id: string, signal: AbortSignal): Promise<Uint8Array>;
  /** The text block, gzip'd. */
  text(signal: AbortSignal): Promise<Uint8Array>;
  /** The stages block, gzip'd; absent: there is none. */
  stages?(signal: AbortSignal): Promise<Uint8Array>;
  /** The passes block, gzip'd, made on request; absent: the passes of this View are not known. */
  passes?(events: PassEvents, signal: AbortSignal): Promise<Uint8Array>;
  /** What computing the passes costs, as a sentence; if not empty, the user is asked first. */
  passesPrice?: string;
  /** Compiles once more and says how long each pass takes; absent: nothing can be measured. */
  measurePasses?(signal: AbortSignal): Promise<PassTimesExtras>;
  /** Compiles what a finding advises, and says what it gained; absent: nothing can be changed. */
  prove?(
    finding: { rule: string; title: string },
    progress: (words: string) => void,
    signal: AbortSignal,
  ): Promise<Findings>;
  /** The page of a program that was tried, or of its difference; absent: there is no kernel. */
  tried?(proof: Tried, signal: AbortSignal): Promise<TriedPage>;
  /** Opens a source line if the host can (JupyterLab); absent: file:line is shown and copied. */
  openSource?(file: string, line: number): void;
  options?: Partial<Options>;
  /** Shown without a toolbar: that of the explorer beside it drives this one too. */
  bare?: boolean;
  onSelect?(selection: Selection & { name: string }): void;
  onOptions?(options: Options): void;
  fileName?: string; // for "save HTML"/"copy" actions
  /** Where to begin, from a link or an earlier session; see state/place.ts. */
  place?: string;
  onPlace?(place: string): void;
  /** Calls `go` when the place is set from outside, for example by another link to the same page. */
  followPlace?(go: (place: string) => void, signal: AbortSignal): void;
  /** URL of a place; absent where the view has none to share. */
  link?(place: string): string;
  bookmarks?: Bookmark[];
  onBookmarks?(all: Bookmark[]): void;
  /** Saves the page with its bookmarks, so that it opens at `place`. */
  savePage?(bookmarks: Bookmark[], place: string): void;
}

/** A place that the user wants to find again. */
export interface Bookmark {
  name: string;
  note: string;
  place: string;
}

export interface Mounted {
  select(selection: Selection): void;
  setOptions(options: Partial<Options>): void;
  dispose(): void;
}
/** `mount(element, host)` in mount.ts is the renderer's only API. */
