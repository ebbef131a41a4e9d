/**
 * "Explore HLO" in a notebook: puts a cell below that shows what is selected, and runs it.
 *
 *     step(params, batch)  selected  →  %hlo step(params, batch)
 *     nothing selected               →  %%hlo, then the cell: all but its last expression runs
 *
 * A cell, not a hidden request: what was asked stays in the notebook and runs again with it.
 */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { type ICommandPalette, Notification } from "@jupyterlab/apputils";
import type { Cell, INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { hloIcon } from "./icons.ts";

const COMMAND = "hloscope:explore-code";
const LOADED = "'hloscope' in get_ipython().extension_manager.loaded";

export function addNotebookCommand(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker,
  palette: ICommandPalette | null,
): void {
  const subject = () => {
    const panel = notebooks.currentWidget;
    const cell = panel?.content.activeCell ?? null;
    return panel && cell?.model.type === "code" ? { panel, cell } : null;
  };
  app.commands.addCommand(COMMAND, {
    label: "Explore HLO",
    caption: "Show what XLA makes of the selected call, or of the cell's last expression",
    icon: (args) => (args.isPalette ? undefined : hloIcon),
    isEnabled: () => subject() !== null,
    execute: async () => {
      const found = subject();
      if (!found) return;
      const code = codeFor(selectedText(found.cell), found.cell.model.sharedModel.getSource());
      if (code === null) {
        Notification.warning("There is no Python expression to explore in this cell.");
        return;
      }
      const loaded = await isLoaded(found.panel);
      if (loaded === null) {
        Notification.warning("Exploring code needs a running Python kernel.");
        return;
      }
      // %%hlo must be the first line, so there the extension is loaded in a cell of its own
      const cells = loaded
        ? [code]
        : code.startsWith("%%")
          ? ["%load_ext hloscope", code]
          : [`%load_ext hloscope\n${code}`];
      for (const source of cells) {
        await app.commands.execute("notebook:insert-cell-below");
        found.panel.content.activeCell?.model.sharedModel.setSource(source);
        await app.commands.execute("notebook:run-cell");
      }
    },
  });
  palette?.addItem({ command: COMMAND, category: "HLO", args: { isPalette: true } });
}

/** The source of the new cell, or null when there is nothing to show. */
export function codeFor(selected: string, source: string): string | null {
  const expression = selected.trim();
  if (expression) {
    // one line: inside brackets Python ignores the breaks, and a magic ends at the first one
    const joined = expression.replace(/#[^\n"']*$/gm, "").replace(/\s*\n\s*/g, " ");
    return /^(?:%|!)/.test(joined) ? null : `%hlo ${joined.trim()}`;
  }
  const body = source.trim();
  if (!body || /^(?:%|!)/.test(body)) return null;
  return `%%hlo\n${body}`;
}

function selectedText(cell: Cell): string {
  const { editor } = cell;
  if (!editor) return "";
  const { start, end } = editor.getSelection();
  const [from, to] = [editor.getOffsetAt(start), editor.getOffsetAt(end)].sort((a, b) => a - b);
  return cell.model.sharedModel.getSource().slice(from, to);
}

/** Whether %hlo is there; null without a Python kernel. */
async function isLoaded(panel: NotebookPanel): Promise<boolean | null> {
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel || (await kernel.info).language_info.name !== "python") return null;
  const future = kernel.requestExecute({
    code: "",
    silent: true,
    store_history: false,
    user_expressions: { loaded: LOADED },
  });
  const { content } = await future.done;
  if (content.status !== "ok") return null;
  const { loaded } = content.user_expressions as Record<string, { data?: Record<string, string> }>;
  return loaded?.data?.["text/plain"] === "True";
}
