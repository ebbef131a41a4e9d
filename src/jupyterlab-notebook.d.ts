/** The part of @jupyterlab/notebook that the extension uses. */
declare module "@jupyterlab/notebook" {
  import type { ISessionContext } from "@jupyterlab/apputils";
  import type { DocumentRegistry, IDocumentWidget } from "@jupyterlab/docregistry";
  import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
  import type { Token } from "@lumino/coreutils";
  import type { Widget } from "@lumino/widgets";

  export interface Editor {
    getCursorPosition(): { line: number; column: number };
    getSelection(): {
      start: { line: number; column: number };
      end: { line: number; column: number };
    };
    getOffsetAt(position: { line: number; column: number }): number;
  }
  export interface Cell extends Widget {
    model: { type: string; sharedModel: { getSource(): string; setSource(text: string): void } };
    editor: Editor | null;
  }
  export interface NotebookPanel extends IDocumentWidget<Widget, DocumentRegistry.IModel> {
    content: Widget & { rendermime: IRenderMimeRegistry; activeCell: Cell | null };
    sessionContext: ISessionContext;
  }
  export interface INotebookTracker {
    currentWidget: NotebookPanel | null;
    activeCell: Cell | null;
  }
  export const INotebookTracker: Token<INotebookTracker>;
}
