/**
 * "Explore HLO" in a notebook: inserts a cell below that shows the code in question, and runs it.
 *
 *     step(params, batch)  selected       →  %hlo step(params, batch)
 *     right-click on the name of a call   →  %hlo with that call
 *     on a Lowered, Compiled or capture   →  %hlo with its name
 *     elsewhere in a cell                 →  %%hlo, then the cell: all but its last expression runs
 *
 * It is a cell, not a hidden request, so that it stays in the notebook and runs again with it.
 */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { type ICommandPalette, Notification } from "@jupyterlab/apputils";
import type { Cell, INotebookTracker } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { hloIcon } from "../icons.ts";
import type { ExplorerSettings } from "../settings.ts";
import { cellFor, expressionAt, type Found, lineFor } from "./expression.ts";
import { evaluate } from "./kernel.ts";

const COMMAND = "hloscope:explore-code";
const LOADED = "'hloscope' in get_ipython().extension_manager.loaded";

export function addNotebookCommand(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker,
  settings: ExplorerSettings,
  palette: ICommandPalette | null,
): void {
  const subject = () => {
    const panel = notebooks.currentWidget;
    const cell = panel?.content.activeCell ?? null;
    return panel && cell?.model.type === "code" ? { panel, cell } : null;
  };
  const menu = new MenuPlace();
  app.commands.addCommand(COMMAND, {
    label: "Explore HLO",
    caption: "Show what XLA makes of the selected call, or of the cell's last expression",
    icon: (args) => (args.isPalette ? undefined : hloIcon),
    isEnabled: () => subject() !== null,
    execute: async (args) => {
      if (args.isMenu) menu.activate(notebooks);
      const found = subject();
      if (!found) return;
      const kernel = found.panel.sessionContext.session?.kernel;
      const loaded = kernel ? await evaluate(kernel, LOADED).catch(() => null) : null;
      if (!kernel || loaded === null) {
        Notification.warning("Exploring code needs a running Python kernel.");
        return;
      }
      const at = args.isMenu ? menu.in(found.cell) : null;
      const code = await codeFor(found.cell, at, settings.hardware, kernel);
      if (code === null) {
        Notification.warning("There is no Python expression to explore in this cell.");
        return;
      }
      // %%hlo must be on the first line, so the extension is loaded in a separate cell
      const cells =
        loaded === "True"
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

/** Where the last context menu was opened. */
class MenuPlace {
  private event: MouseEvent | null = null;

  constructor() {
    document.addEventListener(
      "contextmenu",
      (event) => {
        this.event = event;
      },
      { capture: true },
    );
  }

  /** Activates the cell under the menu, which JupyterLab may not have done. */
  activate({ currentWidget }: INotebookTracker): void {
    const at = this.event?.target as Node | null;
    const index = currentWidget?.content.widgets.findIndex((cell) => cell.node.contains(at)) ?? -1;
    if (currentWidget && index >= 0) currentWidget.content.activeCellIndex = index;
  }

  /** Offset in the cell's source, or null if the menu was not opened in its text. */
  in({ node, editor, model }: Cell): number | null {
    const { event } = this;
    const line = (event?.target as Element | null)?.closest?.(".cm-content");
    if (!event || !line || !editor || !node.contains(line)) return null;
    const at = editor.getPositionForCoordinate(new DOMRect(event.clientX, event.clientY, 0, 0));
    return at && Math.min(editor.getOffsetAt(at), model.sharedModel.getSource().length);
  }
}

/** The source of the new cell, or null if there is nothing to show. */
async function codeFor(
  cell: Cell,
  at: number | null,
  hardware: string,
  kernel: Kernel.IKernelConnection,
): Promise<string | null> {
  const options = hardware ? `--hardware ${hardware} ` : "";
  const source = cell.model.sharedModel.getSource();
  const selected = selectedText(cell);
  if (selected.trim()) return lineFor(selected, options);
  const found = at === null ? null : expressionAt(source, at);
  if (found && (found.isCall || (await isShowable(found, kernel)))) {
    return lineFor(found.text, options);
  }
  return cellFor(source, options);
}

/** Whether a name refers to something that can be shown directly: a stage of a program, or a capture. */
async function isShowable(found: Found, kernel: Kernel.IKernelConnection): Promise<boolean> {
  if (found.isDefinition) return false;
  try {
    const type = await evaluate(kernel, `type(${found.text}).__name__`);
    return /^'(?:Lowered|Compiled|Traced|Capture)'$/.test(String(type));
  } catch {
    return false; // no such name
  }
}

function selectedText(cell: Cell): string {
  const { editor } = cell;
  if (!editor) return "";
  const { start, end } = editor.getSelection();
  const [from, to] = [editor.getOffsetAt(start), editor.getOffsetAt(end)].sort((a, b) => a - b);
  return cell.model.sharedModel.getSource().slice(from, to);
}
