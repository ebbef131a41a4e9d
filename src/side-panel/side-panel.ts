/**
 * The side panel: a list of the captures that the current notebook shows.
 *
 *     outputs of the notebook ──▶ rows            as soon as a cell shows or clears something
 *     the kernel, when idle ────▶ which of them   queried once after cells ran, and only while the
 *                                 are alive       panel is visible; also gives variable names
 *
 * A row whose capture is gone stays: its output still holds the view.
 */
import type { ISessionContext } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import type { KernelMessage } from "@jupyterlab/services";
import { Debouncer } from "@lumino/polling";
import { Widget } from "@lumino/widgets";
import { hloIcon } from "../icons.ts";
import { capturesIn, type Shown } from "../notebook/captures.ts";
import { isIdentifier, liveCaptures } from "../notebook/kernel.ts";
import { type Row, type RowActions, SidePanelPage } from "./page.ts";

const OUTPUTS_SETTLE_MILLISECONDS = 100;
const IDLE_MILLISECONDS = 300;

/** What is known about one notebook's captures. */
interface Known {
  /** Variable name of each capture that the kernel had when last queried, by capture id. */
  names: Map<string, string>;
  /** Ids of captures that the kernel no longer has. */
  gone: Set<string>;
  /** Keys of rows that the user removed from the list. */
  hidden: Set<string>;
  /** Whether cells ran since the kernel was last queried. */
  stale: boolean;
}

export class CapturesPanel extends Widget {
  private notebook: NotebookPanel | null = null;
  private readonly known = new WeakMap<NotebookPanel, Known>();
  private readonly page: SidePanelPage;
  private readonly scan = new Debouncer(() => this.draw(), OUTPUTS_SETTLE_MILLISECONDS);
  private readonly ask = new Debouncer(() => this.askKernel(), IDLE_MILLISECONDS);

  constructor(
    private readonly notebooks: INotebookTracker,
    actions: RowActions,
  ) {
    super();
    this.id = "hloscope-captures";
    this.title.icon = hloIcon;
    this.title.caption = "HLO captures of the notebook";
    this.addClass("hloscope-captures");
    this.page = new SidePanelPage(this.node, {
      ...actions,
      remove: (shown) => {
        if (this.notebook) this.about(this.notebook).hidden.add(shown.key);
        this.draw();
      },
    });
    notebooks.currentChanged.connect(this.follow, this);
    this.follow();
  }

  override dispose(): void {
    this.notebooks.currentChanged.disconnect(this.follow, this);
    this.leave();
    this.scan.dispose();
    this.ask.dispose();
    super.dispose();
  }

  protected override onAfterShow(): void {
    this.draw();
    this.askSoon();
  }

  private about(panel: NotebookPanel): Known {
    let found = this.known.get(panel);
    if (!found) {
      found = { names: new Map(), gone: new Set(), hidden: new Set(), stale: true };
      this.known.set(panel, found);
    }
    return found;
  }

  private follow(): void {
    const next = this.notebooks.currentWidget;
    if (next === this.notebook) return;
    this.leave();
    this.notebook = next;
    if (next) {
      const { sessionContext, content } = next;
      content.modelChanged.connect(this.onModel, this);
      next.context.pathChanged.connect(this.scanSoon, this);
      next.disposed.connect(this.onClosed, this);
      sessionContext.iopubMessage.connect(this.onMessage, this);
      sessionContext.statusChanged.connect(this.onStatus, this);
      sessionContext.kernelChanged.connect(this.onKernel, this);
      this.onModel();
    }
    this.draw();
    this.askSoon();
  }

  private leave(): void {
    const panel = this.notebook;
    this.notebook = null;
    if (!panel) return;
    const { sessionContext, content } = panel;
    content.modelChanged.disconnect(this.onModel, this);
    content.model?.contentChanged.disconnect(this.scanSoon, this);
    panel.context.pathChanged.disconnect(this.scanSoon, this);
    panel.disposed.disconnect(this.onClosed, this);
    sessionContext.iopubMessage.disconnect(this.onMessage, this);
    sessionContext.statusChanged.disconnect(this.onStatus, this);
    sessionContext.kernelChanged.disconnect(this.onKernel, this);
  }

  private onClosed(): void {
    this.notebook = null;
    this.draw();
  }

  private onModel(): void {
    const model = this.notebook?.content.model;
    model?.contentChanged.disconnect(this.scanSoon, this);
    model?.contentChanged.connect(this.scanSoon, this);
    this.scanSoon();
  }

  private scanSoon(): void {
    void this.scan.invoke().catch(() => {});
  }

  private onMessage(_: ISessionContext, message: KernelMessage.IMessage): void {
    // A cell began to run; this panel's own requests are silent and send no such message.
    if (message.header.msg_type !== "execute_input" || !this.notebook) return;
    this.about(this.notebook).stale = true;
  }

  private onStatus(session: ISessionContext, status: string): void {
    if (/restarting|terminating|dead/.test(status)) this.kernelEnded();
    if (status === "idle") this.askSoon();
    else void this.ask.stop();
    this.draw(session);
  }

  private onKernel(
    _: ISessionContext,
    change: { oldValue?: unknown; newValue?: unknown } | undefined,
  ): void {
    if (change?.oldValue) this.kernelEnded();
    if (this.notebook) this.about(this.notebook).stale = true;
    this.draw();
    this.askSoon();
  }

  private kernelEnded(): void {
    if (!this.notebook) return;
    const known = this.about(this.notebook);
    for (const { id } of this.captures()) known.gone.add(id);
    known.names.clear();
    known.stale = true;
  }

  private captures(): Shown[] {
    const model = this.notebook?.content.model;
    return model ? capturesIn(model.cells) : [];
  }

  private get kernel() {
    return this.notebook?.sessionContext.session?.kernel ?? null;
  }

  private askSoon(): void {
    if (!this.isVisible || !this.notebook || this.kernel?.status !== "idle") return;
    if (this.about(this.notebook).stale) void this.ask.invoke().catch(() => {});
  }

  private async askKernel(): Promise<void> {
    const { notebook, kernel } = this;
    if (!notebook || kernel?.status !== "idle" || !this.isVisible) return;
    const known = this.about(notebook);
    const asked = this.captures().map((shown) => shown.id);
    if (!known.stale || !asked.some(isIdentifier)) return;
    known.stale = false;
    try {
      const alive = await liveCaptures(kernel);
      known.names = alive;
      for (const id of asked) {
        if (alive.has(id)) known.gone.delete(id);
        else known.gone.add(id);
      }
    } catch (error) {
      console.warn("hloscope: the kernel could not be asked for its captures", error);
    }
    if (this.notebook === notebook) this.draw();
  }

  private draw(session = this.notebook?.sessionContext): void {
    if (this.isDisposed || !this.isVisible) return;
    const { notebook } = this;
    if (!notebook) {
      this.page.present(null);
      return;
    }
    const { names, gone, hidden } = this.about(notebook);
    const rows: Row[] = this.captures()
      .filter((shown) => !hidden.has(shown.key))
      .map((shown) => ({
        shown,
        notebook,
        name: names.get(shown.id) || shown.name || shown.title,
        isLive: this.kernel !== null && isIdentifier(shown.id) && !gone.has(shown.id),
      }));
    this.page.present({
      path: notebook.context.localPath,
      hasKernel: this.kernel !== null,
      status: session?.kernelDisplayStatus ?? "unknown",
      rows,
      hidden: hidden.size,
    });
    // The kernel may not have been queried about new rows yet.
    if (this.about(notebook).stale) this.askSoon();
  }
}
