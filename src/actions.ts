/** Commands on files: open, explore, save as HTML, compare. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import {
  Dialog,
  type ICommandPalette,
  MainAreaWidget,
  Notification,
  showDialog,
  showErrorMessage,
  type WidgetTracker,
} from "@jupyterlab/apputils";
import type { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog, type IFileBrowserFactory } from "@jupyterlab/filebrowser";
import type { ILauncher } from "@jupyterlab/launcher";
import { Widget } from "@lumino/widgets";
import { type ExplorerDocument, FACTORY, mayHoldHlo } from "./files.ts";
import { hloIcon } from "./icons.ts";
import { ask, folder } from "./remote.ts";

export const COMMANDS = {
  open: "hloscope:open",
  exploreFile: "hloscope:explore-file",
  saveHtml: "hloscope:save-html",
  compare: "hloscope:compare",
};

interface Needs {
  app: JupyterFrontEnd;
  documents: IDocumentManager;
  tracker: WidgetTracker<ExplorerDocument>;
  browser: IFileBrowserFactory | null;
  palette: ICommandPalette | null;
  launcher: ILauncher | null;
}

export function addActions(needs: Needs): void {
  const { app, documents, tracker, browser, palette, launcher } = needs;
  const { contents, serverSettings } = app.serviceManager;

  const selectedFiles = (): string[] => {
    const items = browser?.tracker.currentWidget?.selectedItems();
    return items ? [...items].filter((i) => i.type !== "directory").map((i) => i.path) : [];
  };
  const selectedFolders = (): string[] => {
    const items = browser?.tracker.currentWidget?.selectedItems();
    return items ? [...items].filter((i) => i.type === "directory").map((i) => i.path) : [];
  };
  const selectedMayHold = () => {
    const files = selectedFiles();
    return files.length > 0 && files.every(mayHoldHlo);
  };
  /** Files a command is about: its argument, the selection, or the open explorer. */
  const subjects = (args: { path?: unknown }): string[] => {
    if (typeof args.path === "string") return [args.path];
    const current = tracker.currentWidget;
    if (current && current === app.shell.currentWidget) return [current.context.path];
    const selected = selectedFiles().filter(mayHoldHlo);
    return selected.length ? selected : current ? [current.context.path] : [];
  };
  const choose = async (title: string): Promise<string | null> => {
    const chosen = await FileDialog.getOpenFiles({
      manager: documents,
      title,
      filter: (file) => (file.type === "directory" || mayHoldHlo(file.name) ? {} : null),
    });
    const file = chosen.button.accept ? chosen.value?.find((f) => f.type !== "directory") : null;
    return file?.path ?? null;
  };
  const explore = (path: string) =>
    app.commands.execute("docmanager:open", { path, factory: FACTORY });

  app.commands.addCommand(COMMANDS.open, {
    label: (args) => (args.isLauncher ? "HLO explorer" : "Open HLO file…"),
    caption: "Choose a compiled program and explore it",
    icon: (args) => (args.isLauncher ? hloIcon : undefined),
    execute: async (args) => {
      const path = typeof args.path === "string" ? args.path : await choose("Open an HLO file");
      return path === null ? undefined : explore(path);
    },
  });
  app.commands.addCommand(COMMANDS.exploreFile, {
    label: "Explore HLO",
    caption: "Open in the HLO explorer",
    icon: hloIcon,
    isVisible: () => selectedMayHold() || selectedFolders().length > 0,
    execute: async () => {
      for (const path of selectedFiles().filter(mayHoldHlo)) await explore(path);
      for (const path of selectedFolders()) {
        await attempt("The folder could not be explored", async () => {
          const found = await folder(serverSettings, contents.localPath(path));
          await explore(`${path}/${found.files[found.chosen].file}`);
        });
      }
    },
  });
  app.commands.addCommand(COMMANDS.saveHtml, {
    label: "Save HLO as HTML",
    caption: "Save the explorer with this module as one offline HTML page",
    icon: (args) => (args.isPalette ? undefined : hloIcon),
    isVisible: (args) => Boolean(args.isPalette) || selectedMayHold(),
    isEnabled: (args) => subjects(args).length > 0,
    execute: async (args) => {
      for (const path of subjects(args)) {
        await attempt("The page could not be saved", async () => {
          const target = `${path}.html`;
          if (!(await mayWrite(target))) return;
          const page = await text("html", path);
          await contents.save(target, { type: "file", format: "text", content: page });
          Notification.success(`Saved ${target}`, { autoClose: 5000 });
        });
      }
    },
  });
  app.commands.addCommand(COMMANDS.compare, {
    label: "Compare HLO…",
    caption: "What differs between two modules",
    icon: (args) => (args.isPalette ? undefined : hloIcon),
    isVisible: (args) => Boolean(args.isPalette) || selectedMayHold(),
    isEnabled: (args) => subjects(args).length > 0,
    execute: async (args) => {
      const [path, selected] = subjects(args);
      const given = typeof args.other === "string" ? args.other : selected;
      const other = given ?? (await choose(`Compare ${path} with`));
      if (other === null || path === undefined) return;
      await attempt("The files could not be compared", async () => {
        showPage(await text("diff", path, other), `${name(path)} ↔ ${name(other)}`);
      });
    },
  });

  const mayWrite = async (target: string): Promise<boolean> => {
    try {
      await contents.get(target, { content: false });
    } catch {
      return true; // there is no such file
    }
    const asked = await showDialog({
      title: "Replace the file?",
      body: `${target} exists.`,
      buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: "Replace" })],
    });
    return asked.button.accept;
  };
  const text = async (what: "html" | "diff", path: string, other?: string): Promise<string> => {
    const local = contents.localPath(path);
    const localOther = other === undefined ? undefined : contents.localPath(other);
    const answer = await ask(serverSettings, { what, path: local, other: localOther });
    return new TextDecoder().decode(answer!.bytes);
  };
  const showPage = (page: string, title: string) => {
    const frame = document.createElement("iframe");
    frame.className = "hloscope-page";
    frame.title = title;
    frame.setAttribute("sandbox", "");
    frame.srcdoc = page;
    const content = new Widget();
    content.node.append(frame);
    const area = new MainAreaWidget({ content });
    area.id = `hloscope-page-${Date.now()}`;
    area.title.label = title;
    area.title.icon = hloIcon;
    area.title.closable = true;
    app.shell.add(area, "main");
    app.shell.activateById(area.id);
  };

  const category = "HLO";
  for (const command of [COMMANDS.open, COMMANDS.saveHtml, COMMANDS.compare]) {
    palette?.addItem({ command, category, args: { isPalette: true } });
  }
  launcher?.add({ command: COMMANDS.open, category: "Other", args: { isLauncher: true } });
}

function name(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

async function attempt(title: string, action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    await showErrorMessage(title, error instanceof Error ? error.message : String(error));
  }
}
