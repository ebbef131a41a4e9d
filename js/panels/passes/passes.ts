/** The passes of the compiler: fetched on request, with progress, then shown by browser.ts. */
import { fill, h } from "../../base/dom.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { note } from "../parts/parts.ts";
import { PassBrowser } from "./browser.ts";

export const passes: Panel = {
  id: "passes",
  title: "Passes",
  ofNoChip: true,
  fills: true,
  width: 0.44,
  available: (_model, host) => host?.passes !== undefined,
  render(element, ctx) {
    const loader = ctx.passes;
    let browser: PassBrowser | null = null;
    let waiting: Waiting | null = null;
    const draw = () => {
      const { state } = loader;
      if (state.is !== "loading") waiting = null;
      if (state.is === "ready") {
        browser ??= new PassBrowser(element, ctx, state.passes);
        browser.update();
      } else if (state.is === "loading") {
        if (!waiting) {
          waiting = new Waiting(() => loader.cancel());
          fill(element, waiting.element);
        }
        waiting.update(state);
      } else fill(element, offer(ctx, state.is === "failed" ? state.message : ""));
    };
    loader.on(draw, ctx.signal);
    draw();
    if (loader.state.is === "idle" && !loader.price) void loader.start();
  },
};

/** Progress, in passes once their number is known. */
class Waiting {
  private readonly bar = h("progress", { "aria-label": "Working out the passes" });
  private readonly words = h("p", { class: "note pass-words" }, "");
  readonly element: HTMLElement;

  constructor(cancel: () => void) {
    this.element = h(
      "div",
      { class: "empty", role: "status" },
      this.bar,
      this.words,
      h("button", { class: "action", type: "button", onclick: cancel }, "Cancel"),
    );
  }
  update({ words, done, of }: { words: string; done: number; of: number }): void {
    if (of > 0) {
      this.bar.max = of;
      this.bar.value = done;
    } else this.bar.removeAttribute("value");
    this.words.textContent = of ? `${words}: ${done} of ${of} passes` : `${words}…`;
  }
}

/** A button that fetches them, with what that costs or why it failed before. */
function offer({ passes: loader }: PanelContext, failed: string): HTMLElement {
  const reason = failed === "Cancelled." ? failed : failed && `The passes are missing: ${failed}`;
  return h(
    "div",
    { class: "empty" },
    reason ? note(reason) : null,
    note(loader.price),
    h(
      "button",
      { class: "action", type: "button", onclick: () => void loader.start() },
      failed ? "Try again" : "Show the passes",
    ),
  );
}
