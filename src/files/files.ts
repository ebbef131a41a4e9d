/** File types, and the document that opens them. */
import { Dialog, showDialog, ToolbarButton } from "@jupyterlab/apputils";
import {
  ABCWidgetFactory,
  DocumentModel,
  type DocumentRegistry,
  DocumentWidget,
} from "@jupyterlab/docregistry";
import type { ServiceManager } from "@jupyterlab/services";
import type { CommandRegistry } from "@lumino/commands";
import { Poll } from "@lumino/polling";
import { hloIcon } from "../icons.ts";
import type { ExplorerSettings } from "../settings.ts";
import { sourceOpener } from "../sources.ts";
import { Chooser } from "./chooser.ts";
import { ExplorerPane } from "./pane.ts";
import { type FolderFiles, folder } from "./remote.ts";

export const FACTORY = "HLO explorer";
const MODEL = "hloscope-path";
const POLL_MILLISECONDS = 2000;

/** The first three open here on double-click; the others offer it under Open With. */
const FILE_TYPES: Partial<DocumentRegistry.IFileType>[] = [
  {
    name: "hlo",
    displayName: "HLO module",
    extensions: [".hlo", ".hlo.txt"],
    mimeTypes: ["text/x-hlo"],
    contentType: "file",
    fileFormat: "text",
    icon: hloIcon,
  },
  {
    name: "hlo-binary",
    displayName: "HLO module (binary)",
    extensions: [".hlo.pb", ".hlo.gz", ".hlo.txt.gz", ".hlo.pb.gz"],
    mimeTypes: ["application/x-hlo-proto"],
    contentType: "file",
    fileFormat: "base64",
    icon: hloIcon,
  },
  {
    name: "xplane",
    displayName: "XLA profile",
    extensions: [".xplane.pb", ".xplane.pb.gz"],
    mimeTypes: ["application/x-xplane"],
    contentType: "file",
    fileFormat: "base64",
    icon: hloIcon,
  },
  {
    name: "stablehlo",
    displayName: "StableHLO module",
    extensions: [".stablehlo", ".stablehlo.mlir", ".mlir"],
    mimeTypes: ["text/x-mlir"],
    contentType: "file",
    fileFormat: "text",
    icon: hloIcon,
  },
  {
    name: "hlo-dump",
    displayName: "XLA dump",
    pattern: "^module_\\d+\\..*(before|after)_[\\w.-]*\\.(txt|hlo)(\\.gz)?$",
    extensions: [],
    mimeTypes: ["text/x-hlo"],
    contentType: "file",
    fileFormat: "text",
    icon: hloIcon,
  },
];

/** Whether "Explore HLO" is offered for a file of this name: SUFFIXES of readers/formats. */
export function mayHoldHlo(name: string): boolean {
  return /\.(hlo|txt|log|pb|pbtxt|textproto|mlir|mlirbc|stablehlo)(\.gz)?$/i.test(name);
}

/** A model that never loads the content (the server reads it) and can never be saved. */
class PathModel extends DocumentModel {
  override get readOnly(): boolean {
    return true;
  }
  override set readOnly(_value: boolean) {}
  /** What saving would write: throws, as otherwise an empty text would replace the file. */
  override toString(): string {
    throw new Error("the HLO explorer only reads files");
  }
}

class PathModelFactory implements DocumentRegistry.IModelFactory<DocumentRegistry.IModel> {
  readonly name = MODEL;
  readonly contentType = "file";
  // null: the context does not request the content from the server
  readonly fileFormat = null as never;
  isDisposed = false;
  dispose(): void {
    this.isDisposed = true;
  }
  createNew(): DocumentRegistry.IModel {
    return new PathModel();
  }
  preferredLanguage(): string {
    return "";
  }
}

export type ExplorerDocument = DocumentWidget<ExplorerPane, DocumentRegistry.IModel>;

interface Needs {
  services: ServiceManager.IManager;
  commands: CommandRegistry;
  settings: ExplorerSettings;
  commandIds: { saveHtml: string; compare: string };
}

class ExplorerFactory extends ABCWidgetFactory<ExplorerDocument, DocumentRegistry.IModel> {
  constructor(
    private readonly needs: Needs,
    options: DocumentRegistry.IWidgetFactoryOptions<ExplorerDocument>,
  ) {
    super(options);
  }

  protected override createNewWidget(context: DocumentRegistry.Context): ExplorerDocument {
    const { services, commands, settings, commandIds } = this.needs;
    const { contents } = services;
    const modules = new Chooser("Module", (value) => pane.choose(value));
    const pane = new ExplorerPane({
      settings: services.serverSettings,
      path: () => contents.localPath(context.path),
      options: () => ({ ...settings.options, height: 0 }),
      openSource: sourceOpener(contents, commands),
      beside: () => dumpFolder(services, context),
      onModules: (found) =>
        modules.present(
          found.modules.map((m, k) => ({
            group: "",
            label: `${m.name} (${(m.instructions ?? 0).toLocaleString("en")} instructions)`,
            value: String(k),
          })),
          String(found.module),
        ),
    });
    const onSettings = () => pane.setOptions(settings.options);
    settings.changed.connect(onSettings);
    pane.disposed.connect(() => settings.changed.disconnect(onSettings));

    const document: ExplorerDocument = new DocumentWidget({ content: pane, context });
    document.title.icon = hloIcon;
    const subject = () => ({ path: context.path, ...(pane.module && { module: pane.module }) });
    document.toolbar.addItem("module", modules);
    const stages = new Chooser(
      "Module and pass",
      (file) => {
        const at = context.path.slice(0, context.path.lastIndexOf("/") + 1);
        void commands.execute("docmanager:open", { path: at + file, factory: FACTORY });
      },
      false,
    );
    document.toolbar.addItem("stage", stages);
    void listStages(services, context, stages);
    document.toolbar.addItem(
      "save-html",
      new ToolbarButton({
        label: "Save HTML",
        tooltip: "Save the explorer with this module as one offline HTML page",
        onClick: () => void commands.execute(commandIds.saveHtml, subject()),
      }),
    );
    document.toolbar.addItem(
      "compare",
      new ToolbarButton({
        label: "Compare with…",
        tooltip: "What differs between this module and another",
        onClick: () => void commands.execute(commandIds.compare, subject()),
      }),
    );
    void context.ready.then(async () => {
      // not from the context's model, which has no size
      const about = await contents.get(context.path, { content: false }).catch(() => null);
      if (pane.isDisposed) return;
      if (await mayRead(context.localPath, about?.size, settings)) void pane.load();
      else pane.stop();
      if (!pane.isDisposed) watchFile(context, contents, pane, mark(about));
    });
    return document;
  }
}

/** The modules and stages beside a file in a dump folder; null for other files. */
async function dumpFolder(
  { contents, serverSettings }: ServiceManager.IManager,
  context: DocumentRegistry.Context,
): Promise<FolderFiles | null> {
  const path = contents.localPath(context.path);
  const cut = path.lastIndexOf("/") + 1;
  if (!/^module_\d+\./.test(path.slice(cut))) return null;
  try {
    return await folder(serverSettings, path.slice(0, cut));
  } catch (error) {
    console.warn("hloscope: the folder could not be listed", error);
    return null;
  }
}

/** Fills the chooser of a file in a dump folder. */
async function listStages(
  services: ServiceManager.IManager,
  context: DocumentRegistry.Context,
  stages: Chooser,
): Promise<void> {
  const found = await dumpFolder(services, context);
  if (!found || stages.isDisposed) return;
  const choices = found.files.map((f) => ({
    group: `${f.name} (${f.index})`,
    label: f.stage || f.file,
    value: f.file,
  }));
  stages.present(choices, context.path.slice(context.path.lastIndexOf("/") + 1));
}

async function mayRead(
  path: string,
  size: number | undefined,
  settings: ExplorerSettings,
): Promise<boolean> {
  const megabytes = (size ?? 0) / 1e6;
  if (megabytes <= settings.askAboveMegabytes) return true;
  const asked = await showDialog({
    title: "Read a large file?",
    body: `${path} has ${megabytes.toFixed(0)} MB.`,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: "Read it" })],
  });
  return asked.button.accept;
}

/** Reloads when the file on the server changes, as long as the document is visible. */
function watchFile(
  context: DocumentRegistry.Context,
  contents: ServiceManager.IManager["contents"],
  pane: ExplorerPane,
  seen: string,
): void {
  const poll = new Poll({
    frequency: { interval: POLL_MILLISECONDS, backoff: true, max: 60_000 },
    standby: () => !pane.isVisible || document.hidden,
    factory: async () => {
      const now = mark(await contents.get(context.path, { content: false }));
      if (now === seen || pane.isDisposed) return;
      seen = now;
      await pane.load();
    },
  });
  // this signal is also emitted when the file was merely checked
  context.fileChanged.connect(() => void poll.refresh());
  pane.disposed.connect(() => poll.dispose());
}

function mark(model: { last_modified?: string; size?: number } | null): string {
  return `${model?.last_modified} ${model?.size}`;
}

export function addFileTypes(registry: DocumentRegistry, needs: Needs): ExplorerFactory {
  for (const type of FILE_TYPES) registry.addFileType(type);
  registry.addModelFactory(new PathModelFactory());
  const factory = new ExplorerFactory(needs, {
    name: FACTORY,
    modelName: MODEL,
    fileTypes: FILE_TYPES.map((t) => t.name as string),
    defaultFor: ["hlo", "hlo-binary", "xplane"],
    readOnly: true,
  });
  registry.addWidgetFactory(factory);
  return factory;
}
