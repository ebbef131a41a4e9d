/**
 * `mountPlan(element, host)`: a planning page in a shadow root, section by section.
 * A section that fails shows an error, and the others are still shown.
 */
import { fill, h } from "../base/dom.ts";
import { resolveTheme, watchTheme } from "../theme/theme.ts";
import { heatmap, scatter } from "./charts.ts";
import { damaged, damagedSection } from "./check.ts";
import { explorer } from "./explorer.ts";
import { gantt } from "./gantt.ts";
import { bars, facts, grid, words } from "./parts.ts";
import css from "./plan.css";
import { spans } from "./spans.ts";
import { type Selecting, table } from "./table.ts";
import type { PlanHost, PlanView, Section } from "./view.ts";

const AGAIN = "Make it again with hloscope.";

export function mountPlan(
  element: HTMLElement,
  host: PlanHost,
  page = false,
): { show(view: PlanView): void; dispose(): void } {
  const life = new AbortController();
  const shadow = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  shadow.adoptedStyleSheets = [sheet];
  const root = h("div", {
    class: page ? "plan page" : "plan",
    role: "region",
    "aria-label": "hloscope plan",
  });
  shadow.replaceChildren(root);
  element.dataset.lmSuppressShortcuts = "true";
  for (const type of ["keydown", "keyup", "keypress"] as const) {
    element.addEventListener(type, (e) => e.stopPropagation(), { signal: life.signal });
  }
  const dress = () => root.classList.toggle("dark", resolveTheme("auto").dark);
  watchTheme(dress, life.signal);
  dress();

  const status = h("p", { class: "status", role: "status" });
  const below = h("div", { class: "opened" });

  let asked = 0; // of several answers, only that to the last request is shown
  const ask = host.ask
    ? async (what: string, values: Record<string, unknown>) => {
        const mine = ++asked;
        status.textContent = "Working…";
        try {
          const answer = (await host.ask?.(what, values)) ?? {};
          if (mine !== asked) return;
          status.textContent = "";
          if (answer.view) show(answer.view);
          if (answer.html !== undefined) {
            const frame = h("iframe", {
              sandbox: "allow-scripts allow-downloads",
              title: "opened",
            });
            frame.srcdoc = answer.html;
            fill(below, frame);
            frame.scrollIntoView({ block: "nearest" });
          }
        } catch (error) {
          if (mine === asked) status.textContent = (error as Error).message;
        }
      }
    : undefined;

  const section = (s: Section, selecting: Selecting): HTMLElement => {
    switch (s.type) {
      case "facts":
        return facts(s);
      case "text":
        return words(s);
      case "table":
        return table(s, selecting, ask && ((what, ids) => void ask(what, { ids })));
      case "scatter":
        return scatter(s, selecting, ask && ((id) => void ask("open", { ids: [id] })));
      case "heatmap":
        return heatmap(s);
      case "gantt":
        return gantt(s, ask && ((values) => void ask("change", values)));
      case "grid":
        return grid(s);
      case "explorer":
        return explorer(s);
      case "spans":
        return spans(s);
      case "bars":
        return bars(s);
    }
  };

  function show(view: PlanView): void {
    const selecting: Selecting = { ids: [], changed: [] };
    const wrong = damaged(view);
    if (wrong) {
      fill(root, h("p", { role: "alert" }, `The page is damaged: ${wrong}. ${AGAIN}`));
      return;
    }
    const parts = view.sections.map((s) => {
      try {
        const lacks = damagedSection(s);
        if (lacks) throw new Error(lacks);
        return section(s, selecting);
      } catch (error) {
        return h(
          "section",
          { role: "alert" },
          `This part could not be shown: ${(error as Error).message}`,
        );
      }
    });
    fill(root, h("h2", null, view.title), ...parts, status, below);
  }
  show(host.view);
  return {
    show,
    dispose() {
      life.abort();
      root.remove();
    },
  };
}
