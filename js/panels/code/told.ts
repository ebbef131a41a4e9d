/** The sentence about what is pointed at, with code formatted and a way to expand long ones. */
import { fill, h } from "../../base/dom.ts";
import { copyButton } from "../parts/parts.ts";

export interface Told {
  element: HTMLElement;
  /** `quiet`: the text is not about a particular line. */
  say(words: string, quiet: boolean, pinned: boolean): void;
}

export function told(unpin: () => void, signal: AbortSignal): Told {
  let words = "";
  const said = h("p", { class: "said", role: "status" });
  const release = h(
    "button",
    { class: "mini", type: "button", title: "Unpin  Esc", onclick: unpin },
    "unpin",
  );
  const copy = copyButton(() => words, "this sentence");
  const more = h("button", { class: "mini", type: "button", "aria-expanded": "false" }, "more");
  const element = h("div", { class: "told" }, said, more, copy, release);
  const open = (yes: boolean) => {
    element.classList.toggle("open", yes);
    more.setAttribute("aria-expanded", String(yes));
    more.textContent = yes ? "less" : "more";
  };
  more.addEventListener("click", () => open(!element.classList.contains("open")));
  const room = () => {
    const whole = element.classList.contains("open");
    more.hidden = !whole && said.scrollHeight <= said.clientHeight + 2;
  };
  const watch = new ResizeObserver(room);
  watch.observe(element);
  signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  return {
    element,
    say(next, quiet, pinned) {
      copy.hidden = quiet;
      release.hidden = !pinned;
      if (next === words) return;
      words = next;
      said.classList.toggle("dim", quiet);
      fill(said, ...withCode(words));
      // What is pointed at changes constantly, so it must not take space from the texts.
      if (!pinned) open(false);
      said.scrollTop = 0;
      room();
    },
  };
}

/** Text in which parts between backticks are code elements. */
export function withCode(words: string): (string | HTMLElement)[] {
  return words
    .split("`")
    .map((part, k) => (k % 2 ? h("code", null, part) : part))
    .filter((part) => part !== "");
}
