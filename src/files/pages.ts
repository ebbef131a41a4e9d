/** Pages made by the server or the kernel: saved beside a file, or shown in a frame. */
import { type JupyterFrontEnd, LabShell } from "@jupyterlab/application";
import {
  Dialog,
  MainAreaWidget,
  Notification,
  showDialog,
  showErrorMessage,
} from "@jupyterlab/apputils";
import type { Contents } from "@jupyterlab/services";
import { Widget } from "@lumino/widgets";
import { hloIcon } from "../icons.ts";

/** Writes the page; asks first if the file exists. */
export async function savePage(
  contents: Contents.IManager,
  target: string,
  page: () => Promise<string>,
): Promise<void> {
  if (!(await mayWrite(contents, target))) return;
  await contents.save(target, { type: "file", format: "text", content: await page() });
  Notification.success(`Saved ${target}`, { autoClose: 5000 });
}

async function mayWrite(contents: Contents.IManager, target: string): Promise<boolean> {
  try {
    await contents.get(target, { content: false });
  } catch {
    return true; // the file does not exist
  }
  const asked = await showDialog({
    title: "Replace the file?",
    body: `${target} exists.`,
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: "Replace" })],
  });
  return asked.button.accept;
}

/** Opens a tab in the main area; in Notebook 7, whose pages have one document, a dialog. */
export function showBeside(
  app: JupyterFrontEnd,
  content: Widget,
  title: string,
  ref?: string,
): void {
  if (!(app.shell instanceof LabShell)) {
    content.addClass("hloscope-in-dialog");
    void showDialog({ title, body: content, buttons: [Dialog.okButton({ label: "Close" })] });
    return;
  }
  const area = new MainAreaWidget({ content });
  area.id = `hloscope-page-${++pages}`;
  area.title.label = title;
  area.title.icon = hloIcon;
  area.title.closable = true;
  // Add to the column of pages beside the document, instead of splitting again each time.
  const at =
    ref === undefined
      ? {}
      : last && !last.isDisposed && last.isAttached
        ? { ref: last.id, mode: "tab-after" as const }
        : { ref, mode: "split-right" as const };
  app.shell.add(area, "main", at);
  app.shell.activateById(area.id);
  if (ref !== undefined) last = area;
}

let pages = 0;
let last: Widget | null = null;

/** A page in a sandboxed frame with an opaque origin: its scripts cannot reach JupyterLab. */
export function framed(page: string, title: string): Widget {
  const frame = document.createElement("iframe");
  frame.className = "hloscope-page";
  frame.title = title;
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.srcdoc = page;
  const content = new Widget();
  content.node.append(frame);
  return content;
}

/** Runs an action; an error is shown under the title. */
export async function attempt(title: string, action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    await showErrorMessage(title, error instanceof Error ? error.message : String(error));
  }
}
