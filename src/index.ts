/** The plugin of the JupyterLab extension. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { ICommandPalette, WidgetTracker } from "@jupyterlab/apputils";
import { IDocumentManager } from "@jupyterlab/docmanager";
import { IFileBrowserFactory } from "@jupyterlab/filebrowser";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker } from "@jupyterlab/notebook";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { addActions, COMMANDS } from "./files/actions.ts";
import { addFileTypes, type ExplorerDocument, FACTORY } from "./files/files.ts";
import { addNotebookCommand } from "./notebook/notebook.ts";
import { OutputExtension } from "./notebook/saved.ts";
import { ExplorerSettings, SETTINGS_ID } from "./settings.ts";
import { addSidePanel } from "./side-panel/actions.ts";
import { addStyles } from "./style.ts";

const explorer: JupyterFrontEndPlugin<void> = {
  id: SETTINGS_ID,
  description: "Opens compiled XLA programs and shows them in notebooks, live or saved.",
  autoStart: true,
  requires: [IDocumentManager],
  optional: [
    ISettingRegistry,
    ILayoutRestorer,
    ICommandPalette,
    ILauncher,
    IFileBrowserFactory,
    INotebookTracker,
  ],
  activate: (
    app: JupyterFrontEnd,
    documents: IDocumentManager,
    registry: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    browser: IFileBrowserFactory | null,
    notebooks: INotebookTracker | null,
  ) => {
    addStyles();
    const settings = new ExplorerSettings();
    void settings.load(registry);

    // 1. Outputs, before any notebook is opened.
    app.docRegistry.addWidgetExtension("Notebook", new OutputExtension(settings));

    // 2. Files.
    const tracker = new WidgetTracker<ExplorerDocument>({ namespace: "hloscope" });
    const factory = addFileTypes(app.docRegistry, {
      services: app.serviceManager,
      commands: app.commands,
      settings,
      commandIds: COMMANDS,
    });
    factory.widgetCreated.connect((_, document) => {
      document.context.pathChanged.connect(() => void tracker.save(document));
      void tracker.add(document);
    });
    void restorer?.restore(tracker, {
      command: "docmanager:open",
      args: (document) => ({ path: document.context.path, factory: FACTORY }),
      name: (document) => document.context.path,
    });

    // 3. Commands.
    addActions({ app, documents, tracker, settings, browser, palette, launcher });
    if (notebooks) {
      addNotebookCommand(app, notebooks, settings, palette);
      addSidePanel({ app, notebooks, settings, palette, restorer });
    }
  },
};

export default [explorer];
