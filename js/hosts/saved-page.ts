/** A saved page keeps the place in its URL, and bookmarks in local storage or in the page itself. */
import { saveFile } from "../base/dom.ts";
import { bookmarksIn } from "../base/kept.ts";
import type { Bookmark, Host } from "../view.ts";

const BLOCK = "hloscope-bookmarks";

type PlacedHost = Pick<
  Host,
  "place" | "onPlace" | "followPlace" | "link" | "bookmarks" | "onBookmarks" | "savePage"
>;

export function placed(element: HTMLElement): PlacedHost {
  const summary = [...element.childNodes];
  // A frame in a notebook has no URL of its own.
  const addressed = window.top === window && /^(https?|file):$/.test(location.protocol);
  const here = () => location.hash.slice(1);
  const key = `hloscope ${location.pathname}`;
  return {
    place: (addressed && here()) || element.dataset.place || "",
    onPlace(place) {
      if (!addressed) return;
      try {
        history.replaceState(null, "", `#${place}`);
      } catch {
        // Called too often, or not allowed here; the link can still be copied.
      }
    },
    followPlace(go, signal) {
      addEventListener("hashchange", () => here() && go(here()), { signal });
    },
    link: addressed ? (place) => `${location.href.split("#")[0]}#${place}` : undefined,
    bookmarks: remembered(key) ?? inPage(),
    onBookmarks(all) {
      try {
        localStorage.setItem(key, JSON.stringify(all));
      } catch {
        // Some browsers have no storage for files: bookmarks last until the page is closed or saved.
      }
    },
    savePage(bookmarks, place) {
      const name = decodeURIComponent(location.pathname.split("/").pop() || "") || "module.html";
      saveFile(name, pageWith(bookmarks, place, summary), "text/html");
    },
  };
}

function inPage(): Bookmark[] {
  try {
    return bookmarksIn(JSON.parse(document.getElementById(BLOCK)?.textContent || "[]"));
  } catch {
    return [];
  }
}

function remembered(key: string): Bookmark[] | null {
  try {
    const text = localStorage.getItem(key);
    return text === null ? null : bookmarksIn(JSON.parse(text));
  } catch {
    return null;
  }
}

/** The page as it was when opened, with these bookmarks and this place in it. */
function pageWith(bookmarks: Bookmark[], place: string, summary: Node[]): string {
  const page = document.documentElement.cloneNode(true) as HTMLElement;
  const element = page.querySelector("#hloscope") as HTMLElement;
  element.dataset.place = place;
  element.removeAttribute("style");
  element.replaceChildren(...summary.map((node) => node.cloneNode(true)));
  // Drop the renderer that the loader unpacked; it will be unpacked again.
  for (const script of page.querySelectorAll("script:not([type]):not([data-loader])")) {
    script.remove();
  }
  let block = page.querySelector(`#${BLOCK}`);
  if (!block) {
    block = document.createElement("script");
    block.setAttribute("type", "application/json");
    block.id = BLOCK;
    page.querySelector("main")?.after(block);
  }
  block.textContent = JSON.stringify(bookmarks).replaceAll("<", "\\u003c");
  return `<!doctype html>\n${page.outerHTML}\n`;
}
