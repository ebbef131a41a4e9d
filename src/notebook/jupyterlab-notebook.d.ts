/** The part of @jupyterlab/notebook that the extension uses. */
declare module "@jupyterlab/notebook" {
  import type { ISessionContext } from "@jupyterlab/apputils";
  import type { DocumentRegistry, IDocumentWidget } from "@jupyterlab/docregistry";
  import type { IOutput } from "@jupyterlab/nbformat";
  import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
  import type { Token } from "@lumino/coreutils";
  import type { ISignal } from "@lumino/signaling";
  import type { Widget } from "@lumino/widgets";
  import type { Cells } from "./captures.ts";

  export interface Editor {
    getCursorPosition(): { line: number; column: number };
    getSelection(): {
      start: { line: number; column: number };
      end: { line: number; column: number };
    };
    getOffsetAt(position: { line: number; column: number }): number;
    getPositionForCoordinate(at: DOMRectReadOnly): { line: number; column: number } | null;
  }
  export interface Outputs {
    readonly length: number;
    get(index: number): { data: Readonly<Record<string, unknown>>; toJSON(): IOutput };
    set(index: number, output: IOutput): void;
  }
  export interface Cell extends Widget {
    model: {
      type: string;
      /** In code cells only. */
      outputs?: Outputs;
      sharedModel: { getSource(): string; setSource(text: string): void };
    };
    /** In code cells only: one widget per output. */
    outputArea?: { widgets: readonly Widget[] };
    editor: Editor | null;
  }
  export interface NotebookModel {
    readonly cells: Cells;
    readonly contentChanged: ISignal<unknown, void>;
  }
  export interface Notebook extends Widget {
    readonly rendermime: IRenderMimeRegistry;
    readonly activeCell: Cell | null;
    activeCellIndex: number;
    readonly model: NotebookModel | null;
    readonly modelChanged: ISignal<unknown, void>;
    readonly widgets: readonly Cell[];
    scrollToItem(index: number, align?: string): Promise<void>;
  }
  export interface NotebookPanel extends IDocumentWidget<Widget, DocumentRegistry.IModel> {
    content: Notebook;
    sessionContext: ISessionContext;
  }
  export interface INotebookTracker {
    readonly currentWidget: NotebookPanel | null;
    readonly currentChanged: ISignal<unknown, NotebookPanel | null>;
    readonly activeCell: Cell | null;
  }
  export const INotebookTracker: Token<INotebookTracker>;
}
