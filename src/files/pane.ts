/** One open file: loading with cancel, an error page, the explorer, and reload on change. */
import type { ServerConnection } from "@jupyterlab/services";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import { mount } from "../../js/mount.ts";
import type { Mounted, Options } from "../../js/view.ts";
import { passesOf } from "./passes.ts";
import {
  ask,
  type Fault,
  type FileModules,
  type FolderFiles,
  modulesOf,
  ReadFault,
} from "./remote.ts";

export interface PaneOptions {
  settings: ServerConnection.ISettings;
  /** Path on the server; called at each load, as files get renamed. */
  path: () => string;
  options: () => Partial<Options>;
  openSource?: (file: string, line: number) => void;
  /** What is in the file's folder, if that is a dump. */
  beside?: () => Promise<FolderFiles | null>;
  /** Called after each reading, once the view is being shown. */
  onModules?: (found: FileModules) => void;
}

function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  text = "",
  className = "",
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function button(label: string, click: () => void): HTMLButtonElement {
  const made = element("button", label, "jp-mod-styled jp-mod-reject");
  made.type = "button";
  made.addEventListener("click", click);
  return made;
}

export class ExplorerPane extends Widget {
  private shown: Mounted | null = null;
  private etag = "";
  /** Position of the module in the file, if the user has chosen one. */
  module: string | undefined;
  private chosen: Partial<Options> = {};
  private loading: AbortController | null = null;

  constructor(private readonly about: PaneOptions) {
    super();
    this.addClass("hloscope-pane");
    this.node.dataset.lmSuppressShortcuts = "true";
  }

  /** Reads the file if it has changed. The old view stays until the new one is ready. */
  async load(): Promise<void> {
    this.loading?.abort();
    const loading = new AbortController();
    this.loading = loading;
    const path = this.about.path();
    const first = this.shown === null;
    const status = first ? this.showLoading(path, loading) : null;
    const beside = this.about.beside?.() ?? null;
    try {
      const answer = await ask(this.about.settings, {
        what: "view",
        path,
        module: this.module,
        etag: first ? "" : this.etag,
        signal: loading.signal,
        progress: (p) => status?.(p.stage, p.fraction),
      });
      if (this.isDisposed || loading.signal.aborted || answer === null) return;
      const folder = await beside;
      if (this.isDisposed || loading.signal.aborted) return;
      this.etag = answer.etag;
      this.present(answer.bytes, path, folder);
      void this.listModules(path, loading.signal);
    } catch (error) {
      if (this.isDisposed || this.loading !== loading) return;
      if (loading.signal.aborted) this.showStopped(path);
      else if (first) this.showFault(path, error);
      else this.showNotice(error);
    } finally {
      if (this.loading === loading) this.loading = null;
    }
  }

  /** Shows another module of the file. */
  choose(module: string): void {
    this.module = module;
    this.shown?.dispose();
    this.shown = null;
    void this.load();
  }

  private async listModules(path: string, signal: AbortSignal): Promise<void> {
    if (!this.about.onModules) return;
    const { module } = this;
    try {
      const found = await modulesOf(this.about.settings, { path, module, signal });
      if (!this.isDisposed && module === this.module) this.about.onModules(found);
    } catch (error) {
      if (!signal.aborted) console.warn("hloscope: modules could not be listed", error);
    }
  }

  /** Shows that reading was declined, with a button to read it after all. */
  stop(): void {
    this.showStopped(this.about.path());
  }

  setOptions(options: Partial<Options>): void {
    this.chosen = { ...this.chosen, ...options };
    this.shown?.setOptions(options);
  }

  override dispose(): void {
    this.loading?.abort();
    this.loading = null;
    this.shown?.dispose();
    this.shown = null;
    super.dispose();
  }

  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    const target = this.node.querySelector<HTMLElement>(".hloscope-explorer, .hloscope-status");
    if (target && !this.node.contains(document.activeElement)) target.focus();
  }

  /** Replaces what is shown by another page; focus inside stays inside. */
  private replace(page: HTMLElement): void {
    const focused = this.node.contains(document.activeElement);
    this.shown?.dispose();
    this.shown = null;
    page.tabIndex = -1;
    this.node.replaceChildren(page);
    if (focused) page.focus();
  }

  private present(bytes: Uint8Array, path: string, folder: FolderFiles | null): void {
    const host = element("div", "", "hloscope-explorer");
    const { module } = this;
    const more = async (what: "analyses" | "text" | "stages", signal: AbortSignal) => {
      const answer = await ask(this.about.settings, { what, path, module, signal });
      return answer!.bytes;
    };
    this.replace(host);
    this.shown = mount(host, {
      view: async () => bytes,
      analyses: (signal) => more("analyses", signal),
      chip: async (hardware, signal) => {
        const request = { what: "chip" as const, path, module, hardware, signal };
        return (await ask(this.about.settings, request))!.bytes;
      },
      text: (signal) => more("text", signal),
      stages: (signal) => more("stages", signal),
      ...(folder ? passesOf(this.about.settings, path, folder) : {}),
      openSource: this.about.openSource,
      options: { ...this.about.options(), ...this.chosen },
      onOptions: (options) => {
        this.chosen = options;
      },
      fileName: path.slice(path.lastIndexOf("/") + 1),
    });
  }

  private showLoading(
    path: string,
    loading: AbortController,
  ): (stage: string, fraction: number | null) => void {
    const page = element("div", "", "hloscope-status");
    page.setAttribute("role", "status");
    const stage = element("p", "Asking the server");
    const bar = element("progress");
    bar.setAttribute("aria-label", "Progress");
    page.append(
      element("h2", path),
      stage,
      bar,
      button("Cancel", () => loading.abort()),
    );
    this.replace(page);
    return (text, fraction) => {
      stage.textContent = text;
      if (fraction === null) bar.removeAttribute("value");
      else bar.value = fraction;
    };
  }

  private showStopped(path: string): void {
    const page = element("div", "", "hloscope-status");
    page.append(
      element("h2", path),
      element("p", "Reading was cancelled."),
      button("Read it", () => void this.load()),
    );
    this.replace(page);
  }

  private showFault(path: string, error: unknown): void {
    const fault: Fault | null = error instanceof ReadFault ? error.fault : null;
    const page = element("div", "", "hloscope-status");
    page.setAttribute("role", "alert");
    page.append(element("h2", `${path} cannot be shown`));
    page.append(element("p", error instanceof Error ? error.message : String(error)));
    if (fault?.excerpt.length) {
      const lines = element("pre");
      lines.tabIndex = 0;
      lines.setAttribute("aria-label", "The file around the offending line");
      for (const [number, text] of fault.excerpt) {
        const at = number === fault.line;
        lines.append(element("span", `${number}  ${text}`, at ? "hloscope-fault" : ""));
      }
      page.append(lines);
    }
    page.append(button("Try again", () => void this.load()));
    this.replace(page);
  }

  /** The file has changed and cannot be read: keeps the view, and says so. */
  private showNotice(error: unknown): void {
    this.node.querySelector(".hloscope-notice")?.remove();
    const notice = element("div", "", "hloscope-notice");
    notice.setAttribute("role", "alert");
    const message = error instanceof Error ? error.message : String(error);
    notice.append(
      element(
        "span",
        `The file changed and cannot be read; this is the previous version. ${message}`,
      ),
      button("Try again", () => void this.load()),
    );
    this.node.prepend(notice);
  }
}
