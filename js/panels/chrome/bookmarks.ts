/** Places that the user wants to find again, with notes; and the link to the current place. */
import { copyText, fill, h } from "../../base/dom.ts";
import type { Bookmark } from "../../view.ts";

export interface Places {
  bookmarks: readonly Bookmark[];
  /** Called with the whole list after each change. */
  setBookmarks(all: Bookmark[]): void;
  /** The current place, and a name for it. */
  now(): { place: string; name: string };
  go(place: string): void;
  /** URL of the current place; null where there is none to share. */
  link: (() => string) | null;
  /** Saves the page with its bookmarks; null where the host keeps them itself. */
  savePage: (() => void) | null;
}

export function bookmarkList(places: Places, close: () => void): HTMLElement {
  const list = h("ul", { class: "list bookmarks" });
  const draw = () => {
    fill(
      list,
      ...places.bookmarks.map((b, k) =>
        h(
          "li",
          null,
          h(
            "button",
            {
              class: "link",
              type: "button",
              onclick: () => {
                close();
                places.go(b.place);
              },
            },
            b.name,
          ),
          h(
            "button",
            {
              class: "tool",
              type: "button",
              title: "Remove",
              "aria-label": `Remove ${b.name}`,
              onclick: () => {
                places.setBookmarks(places.bookmarks.filter((_, other) => other !== k));
                draw();
                name.focus();
              },
            },
            "×",
          ),
          b.note && h("p", { class: "dim wrap" }, b.note),
        ),
      ),
      places.bookmarks.length === 0 && h("li", { class: "dim" }, "No bookmarks yet"),
    );
  };
  const now = places.now();
  const name = h("input", { type: "text", "aria-label": "Name of the bookmark", value: now.name });
  const note = h("textarea", { rows: "2", placeholder: "Note", "aria-label": "Note" });
  const add = () => {
    const called = name.value.trim() || now.name;
    const made = { name: called, note: note.value.trim(), place: now.place };
    places.setBookmarks([...places.bookmarks, made]);
    note.value = "";
    draw();
  };
  const copied = h("span", { class: "dim", role: "status" });
  const { link, savePage } = places;
  draw();
  return h(
    "div",
    { class: "places", role: "dialog", "aria-label": "Bookmarks" },
    list,
    h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          add();
        },
      },
      name,
      note,
      h("button", { class: "action", type: "submit" }, "Add bookmark"),
    ),
    (link || savePage) &&
      h(
        "div",
        { class: "row" },
        link &&
          h(
            "button",
            {
              class: "action",
              type: "button",
              onclick: async () => {
                copied.textContent = (await copyText(link())) ? "copied" : "not allowed here";
              },
            },
            "Copy link",
          ),
        savePage &&
          h("button", { class: "action", type: "button", onclick: savePage }, "Save page"),
        copied,
      ),
  );
}
