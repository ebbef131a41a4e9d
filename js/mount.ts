/**
 * `mount(element, host)`: the renderer's only API.
 *
 *     host.view() ─▶ decodeView ─▶ ViewModel ─▶ Store ─┬▶ graph pane (draw/)
 *                                                      ├▶ panels     (panels/index.ts)
 *                                                      └▶ toolbar, legend, strip, status
 *
 * Everything lives in one shadow root. Each part is added separately: if one throws, that becomes
 * a warning with its name and the others still work.
 */
import { BadBlock } from "./base/decode.ts";
import { fill, h } from "./base/dom.ts";
import { decodeView } from "./base/model.ts";
import { Explorer } from "./explorer/explorer.ts";
import { DEFAULT_OPTIONS } from "./state/store.ts";
import { styleSheet } from "./theme/sheet.ts";
import { resolveTheme, watchTheme } from "./theme/theme.ts";
import type { Host, Mounted, Options, Selection } from "./view.ts";

export function mount(element: HTMLElement, host: Host): Mounted {
  const life = new AbortController();
  const { signal } = life;
  // Typing here must not edit the notebook: this stops Lumino's shortcuts, the listeners below the rest.
  element.dataset.lmSuppressShortcuts = "true";
  const shadow = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  shadow.adoptedStyleSheets = [styleSheet()];
  const root = h("div", { class: "root", role: "region", "aria-label": "hloscope" });
  shadow.replaceChildren(root);
  for (const type of ["keydown", "keyup", "keypress", "paste", "copy", "cut"] as const) {
    element.addEventListener(type, (event) => event.stopPropagation(), { signal });
  }

  let options: Options = { ...DEFAULT_OPTIONS, ...host.options };
  let running: Explorer | null = null;
  let wanted: Selection | null = null;

  const dress = () => {
    const theme = resolveTheme(options.theme);
    const { classList } = root;
    classList.toggle("dark", theme.dark);
    classList.toggle("jupyter", theme.host === "jupyter");
    classList.toggle("vscode", theme.host === "vscode");
    running?.setTheme(theme.dark);
  };
  const size = () => {
    // 0: as high as the element, so that the page decides.
    root.classList.toggle("page", options.height === 0);
    root.classList.toggle("sized", options.height > 0);
    element.style.height = options.height === 0 ? "100%" : "";
    root.style.height = options.height > 0 ? `${options.height}px` : "100%";
  };
  watchTheme(dress, signal);
  const watch = new ResizeObserver(() => {
    root.classList.toggle("medium", root.clientWidth < 1140);
    root.classList.toggle("tight", root.clientWidth < 780);
    root.classList.toggle("narrow", root.clientWidth < 700);
    root.classList.toggle("short", root.clientHeight < 720);
  });
  watch.observe(root);
  signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  dress();
  size();

  const start = async () => {
    const bar = h("progress", { max: 1, "aria-label": "Loading the view" });
    const words = h("p", { role: "status" }, "Loading the view…");
    fill(root, h("div", { class: "loading" }, bar, words));
    try {
      const bytes = await host.view((fraction) => {
        if (fraction === null) bar.removeAttribute("value");
        else bar.value = fraction;
      }, signal);
      if (signal.aborted) return;
      bar.removeAttribute("value");
      words.textContent = "Reading the view…";
      const model = await decodeView(bytes);
      if (signal.aborted) return;
      fill(root);
      running = new Explorer(root, model, host, options, signal);
      running.store.on("options", () => {
        const before = options;
        options = running?.store.get("options") ?? options;
        if (before.theme !== options.theme) dress();
        if (before.height !== options.height) size();
        host.onOptions?.(options);
      });
      dress();
      if (wanted) running.select(wanted);
    } catch (error) {
      if (!signal.aborted) failed(error as Error);
    }
  };
  const failed = (error: Error) => {
    const known = error instanceof BadBlock;
    if (!known) console.error("hloscope:", error);
    fill(
      root,
      h(
        "div",
        { class: "failed", role: "alert" },
        h("h2", null, "The view could not be shown"),
        h("p", null, known ? error.message : `${error.name}: ${error.message}`),
        h("button", { class: "action", type: "button", onclick: () => void start() }, "Try again"),
      ),
    );
  };
  void start();

  return {
    select(selection) {
      wanted = selection;
      running?.select(selection);
    },
    setOptions(next) {
      if (running) running.store.setOptions(next);
      else {
        options = { ...options, ...next };
        dress();
        size();
      }
    },
    dispose() {
      life.abort();
      running?.dispose();
      shadow.replaceChildren();
    },
  };
}
