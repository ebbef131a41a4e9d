/** The user's place in the explorer: reported to the host, restored from it, and bookmarked. */
import { bookmarksIn } from "../base/kept.ts";
import type { ViewModel } from "../base/model.ts";
import type { GraphPane } from "../draw/graph-pane.ts";
import type { Places } from "../panels/chrome/bookmarks.ts";
import { nameOf } from "../state/members.ts";
import { pickOf, placeOf } from "../state/place.ts";
import type { Store } from "../state/store.ts";
import type { Host, Selection } from "../view.ts";

/** A place is reported once nothing has changed for this long. */
const QUIET_MS = 300;

export function placesOf(
  model: ViewModel,
  store: Store,
  pane: GraphPane,
  host: Host,
  select: (selection: Selection) => void,
  signal: AbortSignal,
): Places & { begin(): void } {
  let timer = 0;
  const now = () => placeOf(store, pane.place() ?? {});
  let told = "";
  const tell = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      const place = now();
      if (place === told || signal.aborted) return;
      told = place;
      host.onPlace?.(place);
    }, QUIET_MS);
  };
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  const go = (place: string) => {
    const words = new URLSearchParams(place);
    const panel = words.get("panel");
    const colorBy = words.get("colour");
    const chosen = { ...(panel ? { panel } : {}), ...(colorBy ? { colorBy } : {}) };
    if (panel || colorBy) store.setOptions(chosen);
    // A place in another module: its panel and colours still apply, its boxes do not.
    if (pane.setPlace(words)) select(pickOf(words));
  };
  const found: Places & { begin(): void } = {
    bookmarks: bookmarksIn(host.bookmarks),
    setBookmarks(all) {
      found.bookmarks = all;
      host.onBookmarks?.(all);
    },
    now() {
      const selection = store.get("selection");
      const name =
        selection.kind === "none" ? store.get("options").panel : nameOf(model, selection);
      return { place: now(), name };
    },
    go,
    link: host.link ? () => host.link?.(now()) ?? "" : null,
    savePage: host.savePage ? () => host.savePage?.([...found.bookmarks], now()) : null,
    begin() {
      if (host.place) go(host.place);
      told = now();
      if (host.onPlace) {
        store.on("selection", tell, signal);
        store.on("options", tell, signal);
        pane.onOpenChange(tell);
        pane.onMove(tell);
      }
      host.followPlace?.((place) => {
        if (place !== told) go(place);
      }, signal);
    },
  };
  return found;
}
