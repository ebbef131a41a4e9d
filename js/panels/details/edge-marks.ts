/** Marks on arrows: changes of sharding while shardings are being looked at, and asynchronous moves. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { isExposed, type Move, type Moves, movesOf, moveText } from "../../state/devices/moves.ts";
import { type Transition, transitionText } from "../../state/devices/transitions.ts";
import type { Store } from "../../state/store.ts";
import { markedTransitions } from "./transitions.ts";

/** A mark in the form the graph expects: an edge, its text, and how it looks. */
interface EdgeNote {
  source: number;
  target: number;
  text: string;
  kind?: "reshard" | "hidden" | "exposed" | "moved";
  move?: number;
  bytes?: number;
  exposed?: number;
}

/** Returns a function that updates the graph's marks and their entries in the legend. */
export function edgeMarking(
  model: ViewModel,
  store: Store,
  key: HTMLElement,
  setMarks: (notes: EdgeNote[]) => void,
): () => void {
  let shown: readonly Transition[] | null = null;
  let known: Moves | null = null;
  let entries: HTMLElement[] = [];
  return () => {
    const rows = markedTransitions(model, store.get("options"));
    const moves = movesOf(model);
    if (rows !== shown || moves !== known) {
      const changes = rows.map((t) => ({ ...t, text: transitionText(t) }));
      setMarks([...changes, ...(moves ? moveNotes(model, moves.rows) : [])]);
    }
    shown = rows;
    known = moves;
    for (const entry of entries) entry.remove();
    entries = [];
    if (rows.length) entries.push(reshards(store, rows));
    if (moves) entries.push(...moveKeys(store, moves));
    key.append(...entries);
  };
}

function moveNotes(model: ViewModel, rows: readonly Move[]): EdgeNote[] {
  // Moves that are waited for longest are listed first.
  const late = (m: Move) => m.exposed || 0; // NaN, unknown, goes last
  const ordered = [...rows].sort((a, b) => late(b) - late(a) || b.bytes - a.bytes);
  return ordered.flatMap((m) =>
    m.users.map(
      (target): EdgeNote => ({
        source: m.source,
        target,
        text: `${model.label(m.source)}: ${moveText(m)}`,
        kind: Number.isNaN(m.exposed) ? "moved" : isExposed(m) ? "exposed" : "hidden",
        move: m.start,
        bytes: m.bytes,
        exposed: late(m),
      }),
    ),
  );
}

function entry(
  store: Store,
  look: string,
  sign: string,
  reason: string,
  count: number,
  instructions: () => Set<number>,
): HTMLElement {
  const light = () => {
    const lit = store.get("highlight")?.reason === reason;
    store.highlight(lit ? null : { instructions: instructions(), reason });
  };
  return h(
    "button",
    { class: `key ${look}`, type: "button", title: `Highlight: ${reason}`, onclick: light },
    h("b", { "aria-hidden": "true" }, sign),
    reason,
    h("span", { class: "n" }, format.count(count)),
  );
}

function reshards(store: Store, rows: readonly Transition[]): HTMLElement {
  const targets = new Set(rows.map((t) => t.target));
  const ends = () => new Set(rows.flatMap((t) => [t.source, t.target]));
  return entry(store, "reshard", "◆", "sharding changes", targets.size, ends);
}

function moveKeys(store: Store, { rows, hardware }: Moves): HTMLElement[] {
  const late = rows.filter(isExposed);
  const of = (some: readonly Move[]) => () => new Set(some.flatMap((m) => [m.source, ...m.users]));
  const rest = rows.length - late.length;
  const word = hardware === null ? "async" : "async, hidden";
  const out: HTMLElement[] = [];
  if (rest) {
    const some = rows.filter((m) => !isExposed(m));
    out.push(entry(store, "moved", "○", word, rest, of(some)));
  }
  if (late.length) {
    out.push(entry(store, "exposed", "●", "async, waited for", late.length, of(late)));
  }
  return out;
}
