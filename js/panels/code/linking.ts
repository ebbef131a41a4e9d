/**
 * What the panes have in common: the place pointed at, the one that is pinned, what lights up.
 *
 * Pointing lights; a click pins, and then the panes stay as they are until another click, Escape
 * or "unpin". An instruction that is pinned is also what the whole explorer has selected, and
 * what is selected anywhere is pinned here.
 */
import { DARKNESS, type Links, type Lit } from "../../state/links.ts";
import { instructionsOf } from "../../state/members.ts";
import { NOTHING } from "../../state/store.ts";
import type { Selection } from "../../view.ts";
import type { StageText } from "../../view-extras.ts";
import type { PanelContext } from "../panel.ts";
import type { CodePane } from "./pane.ts";

/** A person who crosses lines on the way elsewhere does not want all panes to jump. */
const REST_MS = 90;
/** Of a group so many instructions are followed. */
const MOST_OF_GROUP = 5000;

export interface Shared {
  panes: CodePane[];
  readonly links: Links;
  readonly pinned: boolean;
  readonly lit: Lit;
  /** Places that are pinned. */
  readonly pins: ReadonlySet<number>;
  point(place: number, from: CodePane | null): void;
  pin(place: number, from: CodePane | null): void;
  unpin(): void;
  /** What became of what is pointed at or pinned. */
  sentence(): string;
  /** Draws all panes anew. */
  refresh(): void;
  start(): void;
  onChange: () => void;
}

export function linkUp(ctx: PanelContext, links: Links): Shared {
  const { store, graph, signal } = ctx;
  const { model } = links;
  const own = model.stages.find((s) => s.own) as StageText;
  let pins: number[] = [];
  let pinned: ReadonlySet<number> = new Set();
  let pointed: number[] = [];
  let lit: Lit = DARKNESS;
  let words = "";
  let reason = ""; // of the highlight that is ours
  let mine = false; // the news is of our own making
  let timer = 0;
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });

  const quietly = (work: () => void) => {
    mine = true;
    try {
      work();
    } finally {
      mine = false;
    }
  };
  /** Instructions of the own stage among lit places. */
  const instructions = (of: ReadonlySet<number>) => {
    const out = new Set<number>();
    for (const p of of) {
      if (p >= own.first && p < own.first + own.count) out.add(model.line[p]);
    }
    return out;
  };
  const now = () => (pointed.length ? pointed : pins);
  const work = (from: CodePane | null, scroll: boolean) => {
    const at = now();
    pinned = new Set(pins);
    lit = links.light(at);
    words = at.length === 1 ? model.toldOf(at[0]) : at.length ? severalWords(at.length) : "";
    shared.refresh();
    clearTimeout(timer);
    if (scroll && at.length) {
      const follow = () => {
        for (const pane of shared.panes) if (pane !== from) pane.follow(lit);
      };
      if (pointed.length) timer = window.setTimeout(follow, REST_MS);
      else follow();
    }
    const direct = instructions(lit.lit);
    const some = direct.size ? direct : instructions(lit.near);
    quietly(() => store.point(pointed.length && some.size ? some : null));
    shared.onChange();
  };
  const placesOf = (selection: Selection): number[] => {
    if (selection.kind === "none") return [];
    const found = instructionsOf(ctx.model, selection).slice(0, MOST_OF_GROUP);
    return found.map((i) => model.placeAt(own, i)).filter((p) => p >= 0);
  };
  const forget = () => {
    if (reason && store.get("highlight")?.reason === reason) store.highlight(null);
    reason = "";
  };

  const shared: Shared = {
    panes: [],
    links,
    get pinned() {
      return pins.length > 0;
    },
    get lit() {
      return lit;
    },
    get pins() {
      return pinned;
    },
    point(place, from) {
      // What is pinned stays: only the row under the pointer shows where one is.
      if (pins.length) return;
      pointed = place < 0 ? [] : [place];
      const isOwn = place >= own.first && place < own.first + own.count;
      const at: Selection = isOwn ? { kind: "instruction", index: model.line[place] } : NOTHING;
      quietly(() => store.hover(at));
      work(from, true);
    },
    pin(place, from) {
      if (place < 0 || (pins.length === 1 && pins[0] === place)) {
        shared.unpin();
        return;
      }
      pins = [place];
      pointed = [];
      work(from, true);
      quietly(() => {
        forget();
        const stage = links.stageOf(place);
        const direct = instructions(lit.lit);
        const found = direct.size ? direct : instructions(lit.near);
        if (found.size === 1 || stage.own) {
          const i = stage.own ? model.line[place] : [...found][0];
          store.selectInstruction(i);
          graph.reveal(i);
        } else {
          store.select(NOTHING);
          if (!found.size) return;
          reason = `${stage.title}, line ${lineName(stage, place)}`;
          store.highlight({ instructions: found, reason });
          graph.reveal(Math.min(...found));
        }
      });
    },
    unpin() {
      pins = [];
      pointed = [];
      quietly(() => {
        forget();
        store.select(NOTHING);
      });
      work(null, false);
    },
    sentence: () => words,
    refresh() {
      for (const pane of shared.panes) pane.refresh();
    },
    start() {
      const selected = placesOf(store.get("selection"));
      if (!selected.length) return;
      pins = selected;
      work(null, true);
    },
    onChange: () => undefined,
  };
  const lineName = (stage: StageText, place: number) => {
    const line = model.line[place];
    const number = stage.id === "source" ? model.sourceNumber[line] : line + 1;
    return String(number || line + 1);
  };
  const severalWords = (count: number) =>
    `${count.toLocaleString("en-US")} instructions together; what became of each is said at its line.`;

  store.on(
    "selection",
    () => {
      if (mine) return;
      pins = placesOf(store.get("selection"));
      pointed = [];
      quietly(forget);
      work(null, true);
    },
    signal,
  );
  store.on(
    "highlight",
    () => {
      if (mine || !reason || store.get("highlight")?.reason === reason) return;
      // Somebody put it out, or lit something else.
      reason = "";
      pins = [];
      work(null, false);
    },
    signal,
  );
  store.on(
    "hover",
    () => {
      if (mine || pins.length) return;
      pointed = placesOf(store.get("hover"));
      work(null, true);
    },
    signal,
  );
  signal.addEventListener(
    "abort",
    () => {
      if (store.get("pointed")) store.point(null);
    },
    { once: true },
  );
  return shared;
}
