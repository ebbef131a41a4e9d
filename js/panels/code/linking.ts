/**
 * The state that the panes share: the place pointed at, those that are pinned, what is highlighted.
 *
 * Pointing highlights; a click pins, and then the panes stay as they are until another click,
 * Escape or "unpin". A pinned instruction is also selected in the whole explorer, and what is
 * selected elsewhere is pinned here.
 */

import { instructionsOf } from "../../state/members.ts";
import { DARKNESS, type Links, type Lit } from "../../state/source/links.ts";
import { NOTHING } from "../../state/store.ts";
import type { Selection } from "../../view.ts";
import type { StageText } from "../../view-extras.ts";
import type { PanelContext } from "../panel.ts";
import type { CodePane, Shared } from "./pane.ts";

/** Panes follow only after this delay, so that they do not jump while the pointer is passing over. */
const REST_MS = 90;
/** Most instructions of a group that are linked. */
const MOST_OF_GROUP = 5000;

export function linkUp(ctx: PanelContext, links: Links): Shared {
  const { store, graph, signal } = ctx;
  const { model } = links;
  const own = model.stages.find((s) => s.own) as StageText;
  let pins: number[] = [];
  let pinned: ReadonlySet<number> = new Set();
  let pointed: number[] = [];
  let lit: Lit = DARKNESS;
  let words = "";
  let reason = ""; // of our own highlight
  let mine = false; // the store is being changed by us
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
  /** Instructions of the View's own stage among the places. */
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
      // What is pinned stays; only the row under the pointer is marked.
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
      // The highlight was cleared or replaced elsewhere.
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
