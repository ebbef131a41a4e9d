/** Opens the source line of a stack frame in JupyterLab if the file lies under the server's root. */
import { Clipboard, Notification } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import type { Contents } from "@jupyterlab/services";
import type { CommandRegistry } from "@lumino/commands";

/** The part of a file editor that is used. */
interface EditorDocument {
  context?: { ready: Promise<void> };
  content?: {
    editor?: {
      setCursorPosition(position: { line: number; column: number }): void;
      revealPosition?(position: { line: number; column: number }): void;
      focus(): void;
    };
  };
}

/** Paths below the server's root that may be this file, most likely first. */
export function candidates(file: string, root: string): string[] {
  const clean = root.replace(/\/+$/, "");
  if (clean.startsWith("/") && file.startsWith(`${clean}/`)) return [file.slice(clean.length + 1)];
  const parts = file.split("/").filter((p) => p && p !== ".");
  if (parts.includes("..")) return [];
  if (!file.startsWith("/")) return [parts.join("/")];
  // The root is given as ~/…, or the program ran elsewhere: try the longest tail of the path first.
  const tails = parts.map((_, k) => parts.slice(k).join("/"));
  return tails.slice(0, -1).slice(-6);
}

export function sourceOpener(
  contents: Contents.IManager,
  commands: CommandRegistry,
): (file: string, line: number) => void {
  const open = async (file: string, line: number) => {
    for (const path of candidates(file, PageConfig.getOption("serverRoot"))) {
      try {
        await contents.get(path, { content: false });
      } catch {
        continue;
      }
      const found = (await commands.execute("docmanager:open", {
        path,
        factory: "Editor",
      })) as EditorDocument | undefined;
      await found?.context?.ready;
      const position = { line: Math.max(0, line - 1), column: 0 };
      found?.content?.editor?.setCursorPosition(position);
      found?.content?.editor?.revealPosition?.(position);
      found?.content?.editor?.focus();
      return;
    }
    Clipboard.copyToSystem(`${file}:${line}`);
    Notification.info(`${file}:${line} is not under the server's folder; its name was copied.`);
  };
  return (file, line) => void open(file, line);
}
