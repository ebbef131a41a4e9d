/** What an explorer tells the surrounding page, so that the page can keep it with the output. */
import type { Bookmark } from "../view.ts";

/** Bookmarks come from files: their texts are cut to this length. */
export const LONGEST = { name: 120, note: 2000, place: 200_000 };

export interface Kept {
  place: string;
  bookmarks: Bookmark[];
  /** The analyses block with what was tried since; absent: as the output has it. */
  analyses?: Uint8Array;
}

/** Bubbles out of the explorer's element; its detail is `Kept`. */
export const KEPT_EVENT = "hloscope-kept";

/** Tells the page around `element`, for hosts that keep nothing themselves. */
export function tellKept(element: HTMLElement, kept: Kept): void {
  element.dispatchEvent(
    new CustomEvent<Kept>(KEPT_EVENT, { detail: kept, bubbles: true, composed: true }),
  );
}

/** The bookmarks in data of any origin. */
export function bookmarksIn(data: unknown): Bookmark[] {
  if (!Array.isArray(data)) return [];
  const text = (value: unknown, most: number) =>
    typeof value === "string" ? value.slice(0, most) : "";
  return data
    .filter((row) => row !== null && typeof row === "object")
    .map((row) => ({
      name: text(row.name, LONGEST.name),
      note: text(row.note, LONGEST.note),
      place: text(row.place, LONGEST.place),
    }))
    .filter((row) => row.place !== "");
}
