/** Adds the side panel and the actions of its buttons. */
import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { type ICommandPalette, InputDialog } from "@jupyterlab/apputils";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { Widget } from "@lumino/widgets";
import { attempt, framed, savePage, showBeside } from "../files/pages.ts";
import { capturePage, comparisonPage } from "../notebook/kernel.ts";
import { mountSaved } from "../notebook/saved.ts";
import { isComplete, savedPage } from "../notebook/saved-data.ts";
import type { ExplorerSettings } from "../settings.ts";
import type { Row, RowActions } from "./page.ts";
import { CapturesPanel } from "./side-panel.ts";

const COMMAND = "hloscope:show-captures";
/** After the table of contents, before the extension manager. */
const RANK = 500;

interface Needs {
  app: JupyterFrontEnd;
  notebooks: INotebookTracker;
  settings: ExplorerSettings;
  palette: ICommandPalette | null;
  restorer: ILayoutRestorer | null;
}

export function addSidePanel({ app, notebooks, settings, palette, restorer }: Needs): void {
  const panel = new CapturesPanel(notebooks, actionsFor(app, settings));
  app.shell.add(panel, "left", { rank: RANK });
  restorer?.add(panel, panel.id);
  app.commands.addCommand(COMMAND, {
    label: "Show Captures of the Notebook",
    caption: "The side panel that lists what the notebook shows",
    execute: () => app.shell.activateById(panel.id),
  });
  palette?.addItem({ command: COMMAND, category: "HLO" });
}

function actionsFor(app: JupyterFrontEnd, settings: ExplorerSettings): RowActions {
  const kernelOf = (row: Row) => row.notebook.sessionContext.session?.kernel ?? null;
  return {
    reveal: (row) => void reveal(app, row),
    open: (row) =>
      void attempt("The capture could not be opened", async () => {
        // For a large module the output holds less than the kernel does.
        const asks = row.isLive && !isComplete(row.shown.html);
        const html = asks ? await capturePage(kernelOf(row), row.shown.id) : row.shown.html;
        const content = new SavedExplorer(html, settings);
        showBeside(app, content, row.name, row.notebook.id);
      }),
    save: (row) =>
      void attempt("The page could not be saved", async () => {
        const { path } = row.notebook.context;
        const folder = path.slice(0, path.lastIndexOf("/") + 1);
        const name = row.name.replace(/[^\p{L}\p{N}._-]+/gu, "_");
        await savePage(app.serviceManager.contents, `${folder}${name}.html`, async () => {
          const kernel = kernelOf(row);
          if (row.isLive && kernel?.status === "idle") return capturePage(kernel, row.shown.id);
          // The saved page runs scripts: those of an untrusted notebook may be anyone's.
          if (!row.shown.trusted) throw new Error("Trust this notebook first: its page would run.");
          return savedPage(row.shown.html);
        });
      }),
    compare: (row, others) =>
      void attempt("The captures could not be compared", async () => {
        const other = await choose(row, others);
        if (!other) return;
        const page = await comparisonPage(kernelOf(row), row.shown.id, other.shown.id);
        const title = `${row.name} ↔ ${other.name}`;
        showBeside(app, framed(page, title), title, row.notebook.id);
      }),
  };
}

/** The explorer of a saved output, in a tab of its own. */
class SavedExplorer extends Widget {
  private readonly shown;

  constructor(html: string, settings: ExplorerSettings) {
    super();
    this.addClass("hloscope-saved-document");
    this.shown = mountSaved(this.node, html, { ...settings.options, height: 0 });
  }

  override dispose(): void {
    this.shown?.dispose();
    super.dispose();
  }
}

async function choose(row: Row, others: Row[]): Promise<Row | undefined> {
  if (others.length < 2) return others[0];
  const items = others.map((other) => `${other.name} (cell ${other.shown.cell + 1})`);
  const asked = await InputDialog.getItem({
    title: `Compare ${row.name} with`,
    label: "Capture",
    items,
    okLabel: "Compare",
  });
  return asked.button.accept && asked.value !== null
    ? others[items.indexOf(asked.value)]
    : undefined;
}

async function reveal(app: JupyterFrontEnd, { shown, notebook }: Row): Promise<void> {
  if (notebook.isDisposed) return;
  app.shell.activateById(notebook.id);
  const { content } = notebook;
  content.activeCellIndex = shown.cell;
  await content.scrollToItem(shown.cell, "smart");
  const outputs = content.widgets[shown.cell]?.node.querySelectorAll(".jp-OutputArea-child");
  outputs?.[shown.output]?.scrollIntoView({ block: "nearest" });
}
