/**
 * Where a person was in an output, and its bookmarks: kept in the output itself, with the data.
 *
 *     explorer ──place, bookmarks──▶ Keeper ──on saving──▶ "place", "bookmarks" of the marker
 *     marker ──keptIn──▶ explorer that is drawn without a kernel
 *
 * A place alone does not make a notebook unsaved: it is written along when the notebook is. A
 * bookmark is written at once, as a person asked for it.
 */
import type { DocumentRegistry } from "@jupyterlab/docregistry";
import type { IOutput } from "@jupyterlab/nbformat";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Widget } from "@lumino/widgets";
import { bookmarksIn, KEPT_EVENT, type Kept, LONGEST } from "../js/base/kept.ts";
import { MARKER } from "./captures.ts";

type Data = Readonly<Record<string, unknown>>;

/** What an output's marker keeps; a notebook is data. */
export function keptIn(data: Data): Kept {
  const marker = (data[MARKER] ?? {}) as Record<string, unknown>;
  const { place } = marker;
  return {
    place: typeof place === "string" && place.length <= LONGEST.place ? place : "",
    bookmarks: bookmarksIn(marker.bookmarks),
  };
}

/** The same output, keeping these. */
export function keeping(output: IOutput, kept: Kept): IOutput {
  const data = (output.data ?? {}) as Record<string, unknown>;
  const marker = (data[MARKER] ?? {}) as Record<string, unknown>;
  return { ...output, data: { ...data, [MARKER]: { ...marker, ...kept } } } as unknown as IOutput;
}

/** Writes what the explorers of a notebook keep into their outputs. */
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

  /** Takes what explorers inside of an output say. */
  listen(output: Widget): void {
    output.node.addEventListener(KEPT_EVENT, (event) => {
      const kept = (event as CustomEvent<Kept>).detail;
      this.keep(output, kept);
    });
  }

  keep(output: Widget, kept: Kept): void {
    const before = this.waiting.get(output) ?? this.of(output);
    this.waiting.set(output, kept);
    if (before && JSON.stringify(before.bookmarks) !== JSON.stringify(kept.bookmarks)) this.write();
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
      if (JSON.stringify(keptIn(now.data)) === JSON.stringify(kept)) continue;
      at.outputs.set(at.index, keeping(now.toJSON(), kept));
    }
    this.waiting.clear();
  }

  /** Where an output stands in the notebook; a second view of it stands nowhere. */
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
