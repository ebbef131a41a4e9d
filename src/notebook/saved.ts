/**
 * Outputs in notebooks. JupyterLab prefers the widget of an output, which without its kernel is
 * only "model not found". Our outputs carry a marker, and this renderer takes precedence for them:
 *
 *     the widget's comm lives in this page ──yes──▶ the widget, by the notebook's own renderer
 *       │ no
 *     the kernel, if there is one, knows the comm ──yes──▶ the widget, once it is restored
 *       │ no, or no answer
 *     the data block of the saved text/html ──▶ mount(); nothing else of that HTML is used
 *
 * That is why the renderer may declare itself safe, and untrusted notebooks show their views.
 */
import type { ISessionContext } from "@jupyterlab/apputils";
import type { DocumentRegistry } from "@jupyterlab/docregistry";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { DisposableDelegate, type IDisposable } from "@lumino/disposable";
import { Panel, Widget } from "@lumino/widgets";
import { type Kept, tellKept } from "../../js/base/kept.ts";
import { mount } from "../../js/mount.ts";
import type { Mounted, Options } from "../../js/view.ts";
import type { ExplorerSettings } from "../settings.ts";
import { MARKER } from "./captures.ts";
import { Keeper, keptIn } from "./kept.ts";
import { htmlIn, savedData, withoutAnalyses } from "./saved-data.ts";

const WIDGET = "application/vnd.jupyter.widget-view+json";
/** Before the widgets' own renderer, which has rank -10. */
const RANK = -20;
const COMM_ANSWER_MILLISECONDS = 2000;
const COMM_RESTORE_MILLISECONDS = 5000;

type MimeModel = Parameters<ReturnType<IRenderMimeRegistry["createRenderer"]>["renderModel"]>[0];

interface Near {
  rendermime: IRenderMimeRegistry;
  session: ISessionContext;
  settings: ExplorerSettings;
  keeper: Keeper;
}

class OutputRenderer extends Panel {
  private shown: Mounted | null = null;
  /** What is drawn; the output is also set again when only what is kept with it changes. */
  private drawn = "";

  constructor(private readonly near: Near) {
    super();
    this.addClass("hloscope-saved");
    near.keeper.listen(this);
  }

  async renderModel(model: MimeModel): Promise<void> {
    const id = (model.data[WIDGET] as { model_id?: unknown } | undefined)?.model_id;
    // a live widget shows by itself what was tried, which is then kept in the output
    const html = htmlIn(model.data);
    const what = `${id} ${typeof id === "string" ? withoutAnalyses(html) : html}`;
    if (what === this.drawn) return;
    this.drawn = what;
    this.clear();
    if (typeof id === "string" && (await this.lives(id)) && !this.isDisposed) {
      await this.showWidget(model);
    } else if (!this.isDisposed) {
      this.showSaved(model);
    }
  }

  override dispose(): void {
    this.near.keeper.forget(this);
    this.shown?.dispose();
    this.shown = null;
    super.dispose();
  }

  private clear(): void {
    this.shown?.dispose();
    this.shown = null;
    this.removeClass("hloscope-live");
    for (const widget of [...this.widgets]) widget.dispose();
  }

  /** Whether the widget's comm is alive. Never waits longer than a few seconds. */
  private async lives(id: string): Promise<boolean> {
    const { session } = this.near;
    const kernel = () => session.session?.kernel ?? null;
    if (kernel()?.hasComm(id)) return true;
    // The notebook may just have been opened, with its kernel about to connect.
    await within(COMM_ANSWER_MILLISECONDS, session.ready);
    const connected = kernel();
    if (!connected) return false;
    const answer = await within(
      COMM_ANSWER_MILLISECONDS,
      connected.requestCommInfo({ target_name: "jupyter.widget" }),
    );
    const content = answer?.content;
    if (content?.status !== "ok" || !(id in content.comms)) return false;
    // The widget manager opens its side of the comm at some later time.
    const until = Date.now() + COMM_RESTORE_MILLISECONDS;
    while (!connected.isDisposed && !connected.hasComm(id) && Date.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return !connected.isDisposed && connected.hasComm(id);
  }

  private async showWidget(model: MimeModel): Promise<void> {
    try {
      const renderer = this.near.rendermime.createRenderer(WIDGET);
      this.addWidget(renderer);
      await renderer.renderModel(model);
      this.addClass("hloscope-live");
    } catch {
      // There is no widget manager here.
      if (this.isDisposed) return;
      this.clear();
      this.showSaved(model);
    }
  }

  private showSaved(model: MimeModel): void {
    const content = new Widget();
    this.addWidget(content);
    const summary = model.data["text/plain"];
    this.shown = mountSaved(
      content.node,
      htmlIn(model.data),
      this.near.settings.options,
      Array.isArray(summary) ? summary.join("") : String(summary ?? ""),
      keptIn(model.data),
    );
  }
}

/** Draws a saved output from its data alone; if it has none, shows an error and the summary. */
export function mountSaved(
  node: HTMLElement,
  html: string,
  options: Partial<Options>,
  summary = "",
  kept: Kept = { place: "", bookmarks: [] },
): Mounted | null {
  try {
    const saved = savedData(html);
    const now = { ...kept };
    const tell = (more: Partial<Kept>) => tellKept(node, Object.assign(now, more));
    return mount(node, {
      view: async () => saved.view,
      analyses: async () => {
        if (!saved.analyses) throw new Error(saved.noAnalyses);
        return saved.analyses;
      },
      chips: [...saved.chips.keys()],
      chip: async (id) => {
        const bytes = saved.chips.get(id);
        if (!bytes) throw new Error("this output was saved without its figures.");
        return bytes;
      },
      text: async () => {
        if (!saved.text) throw new Error(saved.noText);
        return saved.text;
      },
      stages: async () => {
        if (!saved.stages) throw new Error(saved.noStages);
        return saved.stages;
      },
      options,
      fileName: saved.name,
      place: kept.place,
      onPlace: (place) => tell({ place }),
      bookmarks: kept.bookmarks,
      onBookmarks: (bookmarks) => tell({ bookmarks }),
    });
  } catch (error) {
    const plain = document.createElement("pre");
    plain.textContent = summary;
    const note = document.createElement("p");
    note.textContent = error instanceof Error ? error.message : String(error);
    node.append(note, plain);
    return null;
  }
}

async function within<T>(milliseconds: number, promise: Promise<T>): Promise<T | null> {
  let timer = 0;
  const late = new Promise<null>((resolve) => {
    timer = window.setTimeout(() => resolve(null), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}

/** Gives each notebook a renderer with access to its kernel. */
export class OutputExtension
  implements DocumentRegistry.IWidgetExtension<NotebookPanel, DocumentRegistry.IModel>
{
  constructor(private readonly settings: ExplorerSettings) {}

  createNew(
    panel: NotebookPanel,
    context: DocumentRegistry.IContext<DocumentRegistry.IModel>,
  ): IDisposable {
    const keeper = new Keeper(panel, context);
    const { rendermime } = panel.content;
    rendermime.addFactory(
      {
        safe: true,
        mimeTypes: [MARKER],
        createRenderer: () =>
          new OutputRenderer({
            rendermime,
            session: panel.sessionContext,
            settings: this.settings,
            keeper,
          }),
      },
      RANK,
    );
    return new DisposableDelegate(() => rendermime.removeMimeType(MARKER));
  }
}
