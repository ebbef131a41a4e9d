/**
 * The user's place in a view, as one line: what is open, visible and selected, and how it is
 * coloured. It follows the "#" in a page's URL, and is kept in the widget's state and in bookmarks.
 */
import type { Selection } from "../view.ts";
import { NOTHING, type Store } from "./store.ts";

const KINDS: Selection["kind"][] = ["instruction", "group", "fold", "computation"];

export function placeOf(store: Store, picture: Record<string, string>): string {
  const words = new URLSearchParams(picture);
  const { panel, colorBy } = store.get("options");
  words.set("panel", panel);
  words.set("colour", colorBy);
  const { kind, index } = store.get("selection");
  if (kind !== "none") words.set("pick", `${kind}:${index}`);
  return words.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

/** What a place selects; `NOTHING` if its kind is not known. */
export function pickOf(words: URLSearchParams): Selection {
  const [kind, number] = (words.get("pick") ?? "").split(":");
  const index = Number(number);
  const known = KINDS.find((k) => k === kind);
  return known && Number.isInteger(index) && index >= 0 ? { kind: known, index } : NOTHING;
}
