/** The theme to use: the option's, else the host's, else the system's. Follows changes. */
import type { Options } from "../view.ts";

export type HostKind = "jupyter" | "vscode" | "none";

export interface Theme {
  dark: boolean;
  /** Whose CSS variables to use; "none" without a host, or if the option asks for its opposite. */
  host: HostKind;
}

function hostTheme(): Theme {
  const { body, documentElement } = document;
  const jupyter = body?.getAttribute("data-jp-theme-light");
  if (jupyter) return { dark: jupyter === "false", host: "jupyter" };
  const code = body?.getAttribute("data-vscode-theme-kind") ?? "";
  if (code) return { dark: /dark|high-contrast(?!-light)/.test(code), host: "vscode" };
  // Pages that mark their theme on html or body, such as marimo.
  for (const element of [body, documentElement]) {
    const mark = element?.dataset.theme ?? "";
    if (element?.classList.contains("dark") || /dark/.test(mark))
      return { dark: true, host: "none" };
    if (element?.classList.contains("light") || /light/.test(mark)) {
      return { dark: false, host: "none" };
    }
  }
  return { dark: matchMedia("(prefers-color-scheme: dark)").matches, host: "none" };
}

export function resolveTheme(option: Options["theme"]): Theme {
  const found = hostTheme();
  if (option === "auto") return found;
  const dark = option === "dark";
  return { dark, host: found.dark === dark ? found.host : "none" };
}

export function watchTheme(changed: () => void, signal: AbortSignal): void {
  const observer = new MutationObserver(changed);
  const options = {
    attributes: true,
    attributeFilter: [
      "class",
      "data-theme",
      "data-jp-theme-light",
      "data-jp-theme-name",
      "data-vscode-theme-kind",
    ],
  };
  if (document.body) observer.observe(document.body, options);
  observer.observe(document.documentElement, options);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed, { signal });
  signal.addEventListener("abort", () => observer.disconnect(), { once: true });
}
