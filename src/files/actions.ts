/** Commands for files: open, explore, save as HTML, compare. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { type ICommandPalette, InputDialog, type WidgetTracker } from "@jupyterlab/apputils";
import type { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog, type IFileBrowserFactory } from "@jupyterlab/filebrowser";
import type { ILauncher } from "@jupyterlab/launcher";
import { hloIcon } from "../icons.ts";
import type { ExplorerSettings } from "../settings.ts";
import { type ExplorerDocument, FACTORY, mayHoldHlo } from "./files.ts";
import { attempt, framed, savePage, showBeside } from "./pages.ts";
import { ask, type FileModules, folder, modulesOf, type Request } from "./remote.ts";

export const COMMANDS = {
  open: "hloscope:open",
  exploreFile: "hloscope:explore-file",
  saveHtml: "hloscope:save-html",
  compare: "hloscope:compare",
};

/** A file and one of its modules; if undefined, the server chooses. */
interface Subject {
  path: string;
  module?: string;
}
const ONE: FileModules = { modules: [], module: 0 };

interface Needs {
  app: JupyterFrontEnd;
  documents: IDocumentManager;
  tracker: WidgetTracker<ExplorerDocument>;
  settings: ExplorerSettings;
  browser: IFileBrowserFactory | null;
  palette: ICommandPalette | null;
  launcher: ILauncher | null;
}

export function addActions(needs: Needs): void {
  const { app, documents, tracker, settings, browser, palette, launcher } = needs;
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
  /** The files that a command applies to: its argument, the selection, or the open explorer. */
  const subjects = (args: { path?: unknown; module?: unknown }): Subject[] => {
    if (typeof args.path === "string") {
      const module = typeof args.module === "string" ? args.module : undefined;
      return [{ path: args.path, module }];
    }
    const current = tracker.currentWidget;
    const open = current && { path: current.context.path, module: current.content.module };
    if (open && current === app.shell.currentWidget) return [open];
    const selected = selectedFiles().filter(mayHoldHlo);
    return selected.length ? selected.map((path) => ({ path })) : open ? [open] : [];
  };
  const choose = async (title: string, beside = ""): Promise<string | null> => {
    const chosen = await FileDialog.getOpenFiles({
      manager: documents,
      title,
      defaultPath: beside.slice(0, Math.max(0, beside.lastIndexOf("/"))) || undefined,
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
      for (const { path, module } of subjects(args)) {
        await attempt("The page could not be saved", async () => {
          const { modules } = module === undefined ? ONE : await modulesAt(path, module);
          const name = modules[Number(module)]?.name;
          const target = name ? `${path}.${name.replace(/[^\w.-]+/g, "_")}.html` : `${path}.html`;
          await savePage(contents, target, () => text({ what: "html", path, module }));
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
      const [one, selected] = subjects(args);
      if (!one) return;
      await attempt("The modules could not be compared", async () => {
        const other =
          typeof args.other === "string"
            ? { path: args.other, module: undefined }
            : (selected ?? (await chooseOther(one)));
        if (!other) return;
        const page = await text({
          what: "diff",
          path: one.path,
          module: one.module,
          other: other.path,
          otherModule: other.module,
        });
        const title = `${name(one.path)} ↔ ${name(other.path)}`;
        showBeside(app, framed(page, title), title);
      });
    },
  });

  const modulesAt = (path: string, module?: string) =>
    modulesOf(serverSettings, { path: contents.localPath(path), module });
  /** Asks for another module of the same file, or for a file and one of its modules. */
  const chooseOther = async (one: Subject): Promise<Subject | null> => {
    const { modules, module } = await modulesAt(one.path, one.module);
    const rest = modules.map((m, k) => ({ label: m.name, k })).filter(({ k }) => k !== module);
    if (rest.length) {
      const FILE = "A module in another file…";
      const asked = await choice(`Compare ${modules[module].name} with`, [
        ...rest.map(({ label, k }) => `${k + 1}. ${label}`),
        FILE,
      ]);
      if (asked === null) return null;
      if (asked !== FILE) return { path: one.path, module: String(Number.parseInt(asked, 10) - 1) };
    }
    const path = await choose(`Compare ${name(one.path)} with`, one.path);
    if (path === null) return null;
    const others = (await modulesAt(path)).modules;
    if (others.length < 2) return { path };
    const labels = others.map((m, k) => `${k + 1}. ${m.name}`);
    const asked = await choice(`Which module of ${name(path)}?`, labels);
    return asked === null ? null : { path, module: String(labels.indexOf(asked)) };
  };
  const text = async (asked: Omit<Request, "hardware">): Promise<string> => {
    const { other } = asked;
    const answer = await ask(serverSettings, {
      ...asked,
      path: contents.localPath(asked.path),
      other: other === undefined ? undefined : contents.localPath(other),
      hardware: settings.hardware,
    });
    return new TextDecoder().decode(answer!.bytes);
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

async function choice(title: string, items: string[]): Promise<string | null> {
  const asked = await InputDialog.getItem({ title, label: "Module", items });
  return asked.button.accept ? asked.value : null;
}
