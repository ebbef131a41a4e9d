/** Above the table of passes: where the time of the compile went, and its slowest passes. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { PassLoader } from "../../state/passes/loader.ts";
import type { Passes } from "../../state/passes/passes.ts";
import type { PassTimesExtras } from "../../view-extras.ts";
import { bars, note } from "../parts/parts.ts";

export interface Times {
  element: HTMLElement;
  /** To be called when times have arrived, or did not. */
  update(): void;
}

export function compileTimes(
  passes: Passes,
  loader: PassLoader,
  go: (row: number) => void,
  signal: AbortSignal,
): Times {
  const element = h("div", { class: "pass-times" });
  let shown: unknown = null;
  const update = () => {
    const { times } = passes;
    const key = times ?? `${loader.measuring}${loader.notMeasured}`;
    if (key === shown) return;
    shown = key;
    if (times) fill(element, ...told(times, go));
    else fill(element, offer(loader, signal));
    element.hidden = !element.childElementCount;
  };
  update();
  return { element, update };
}

/** "12 %", "0.34 %". */
export function share(seconds: number, whole: number): string {
  const percent = whole > 0 ? (100 * seconds) / whole : 0;
  if (percent < 0.01) return "under 0.01 %";
  return `${percent >= 10 ? Math.round(percent) : Number(percent.toPrecision(2))} %`;
}

function told(times: PassTimesExtras, go: (row: number) => void): HTMLElement[] {
  const whole = times.total ?? times.parts.reduce((sum, part) => sum + part.seconds, 0);
  const of = (seconds: number) => `${format.seconds(seconds)} · ${share(seconds, whole)}`;
  const what = times.total === null ? "Passes" : "Compiled in";
  const most = times.parts.reduce((a, b) => (b.seconds > a.seconds ? b : a), times.parts[0]);
  const summary = [`${what} ${format.seconds(whole)}, measured once`];
  if (most) summary.push(`mostly ${most.name}`);
  return [
    h(
      "details",
      null,
      h("summary", null, summary.join(": ")),
      bars(
        times.parts.map((part) => ({
          label: part.name,
          value: part.seconds,
          text: of(part.seconds),
          title: MEANING[part.name],
        })),
      ),
      h("h3", null, "Slowest passes"),
      bars(
        times.slowest.map((pass) => ({
          label: pass.times > 1 ? `${pass.name} ×${format.count(pass.times)}` : pass.name,
          value: pass.seconds,
          text: of(pass.seconds),
          title: `${pass.name} in ${pass.pipeline}${pass.row < 0 ? ": it changed nothing, or which of its runs did is unknown" : ""}`,
          onclick: pass.row < 0 ? undefined : () => go(pass.row),
        })),
      ),
      times.note ? note(times.note) : null,
    ),
  ];
}

const MEANING: Record<string, string> = {
  "passes of this list": "passes that changed the program",
  "other passes": "passes that changed nothing, and those of which it is unknown which run did",
  "between passes": "what the compiler does between the passes of a pipeline",
  "code generation": "LLVM and what calls it",
  "around the compiler": "JAX and the runtime",
};

/** A button that measures the compile, or how it goes; nothing where that is impossible. */
function offer(loader: PassLoader, signal: AbortSignal): HTMLElement | null {
  if (!loader.measurable) return null;
  if (loader.measuring) return note("Compiling once more, to measure every pass…");
  return h(
    "div",
    { class: "pass-offer" },
    h(
      "button",
      { class: "mini", type: "button", onclick: () => void loader.measure(signal) },
      "measure the passes",
    ),
    note(loader.notMeasured || "How long each pass takes: this compiles the program once more."),
  );
}
