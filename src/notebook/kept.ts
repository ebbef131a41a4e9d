/**
 * The user's place in an output, its bookmarks, and what was tried, kept in the output itself.
 *
 *     explorer ──place, bookmarks──▶ Keeper ──on saving──▶ "place", "bookmarks" of the marker
 *              ──analyses──────────▶        ─────────────▶ the data block of its text/html
 *     marker ──keptIn──▶ explorer that is drawn without a kernel ◀──savedData── text/html
 *
 * A new place alone does not mark a notebook as unsaved: it is written when the notebook is saved.
 * A bookmark, and what was tried, are written at once, as the user asked for them.
 */
import type { DocumentRegistry } from "@jupyterlab/docregistry";
import type { IOutput } from "@jupyterlab/nbformat";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Widget } from "@lumino/widgets";
import { bookmarksIn, KEPT_EVENT, type Kept, LONGEST } from "../../js/base/kept.ts";
import { MARKER } from "./captures.ts";
import { htmlIn, withAnalyses } from "./saved-data.ts";

type Data = Readonly<Record<string, unknown>>;

/** What an output's marker keeps, checked, as notebooks are untrusted data. */
export function keptIn(data: Data): Kept {
  const marker = (data[MARKER] ?? {}) as Record<string, unknown>;
  const { place } = marker;
  return {
    place: typeof place === "string" && place.length <= LONGEST.place ? place : "",
    bookmarks: bookmarksIn(marker.bookmarks),
  };
}

/** The same output with this place and these bookmarks, and with these analyses if there are any. */
export function keeping(output: IOutput, { analyses, ...kept }: Kept): IOutput {
  const data = { ...((output.data ?? {}) as Record<string, unknown>) };
  const marker = (data[MARKER] ?? {}) as Record<string, unknown>;
  if (analyses) data["text/html"] = withAnalyses(htmlIn(data), analyses);
  return { ...output, data: { ...data, [MARKER]: { ...marker, ...kept } } } as unknown as IOutput;
}

/** Writes the places and bookmarks of a notebook's explorers into their outputs. */
export class Keeper {
  private readonly waiting = new Map<Widget, Kept>();

  constructor(
    private readonly panel: NotebookPanel,
    context: DocumentRegistry.IContext<DocumentRegistry.IModel>,
  ) {
    context.saveState.connect((_, state) => {
      if (state === "started") this.write();
    });
  }

  /** Listens to explorers inside an output. */
  listen(output: Widget): void {
    output.node.addEventListener(KEPT_EVENT, (event) => {
      const kept = (event as CustomEvent<Kept>).detail;
      this.keep(output, kept);
    });
  }

  keep(output: Widget, kept: Kept): void {
    const before = this.waiting.get(output) ?? this.of(output);
    this.waiting.set(output, kept);
    const isNew = before && JSON.stringify(before.bookmarks) !== JSON.stringify(kept.bookmarks);
    if (isNew || kept.analyses) this.write();
  }

  forget(output: Widget): void {
    if (this.waiting.has(output)) this.write();
    this.waiting.delete(output);
  }

  private of(output: Widget): Kept | null {
    const at = this.find(output);
    return at && keptIn(at.outputs.get(at.index).data);
  }

  private write(): void {
    for (const [output, kept] of this.waiting) {
      const at = this.find(output);
      if (!at) continue;
      const now = at.outputs.get(at.index);
      const { analyses, ...rest } = kept;
      if (!analyses && JSON.stringify(keptIn(now.data)) === JSON.stringify(rest)) continue;
      at.outputs.set(at.index, keeping(now.toJSON(), kept));
    }
    this.waiting.clear();
  }

  /** The position of an output in the notebook; null for a second view of it. */
  private find(output: Widget) {
    for (const cell of this.panel.content.widgets) {
      if (!cell.node.contains(output.node)) continue;
      const outputs = cell.model.outputs;
      const shown = cell.outputArea?.widgets ?? [];
      const index = shown.findIndex((widget) => widget.node.contains(output.node));
      if (outputs && index >= 0 && index < outputs.length) return { outputs, index };
    }
    return null;
  }
}
