/**
 * Searches a text of which only the lines on screen are in the page, so that the browser's own
 * search finds little: a bar with "3 of 17", Enter and Shift+Enter, and :120 for line 120.
 */
import { h } from "../../../base/dom.ts";
import { count } from "../../../base/format.ts";
import type { TextPane } from "./pane.ts";

/** Number of lines searched before yielding to the page. */
const STEP = 20_000;
const MOST_FOUND = 5000;

export interface FindBar {
  element: HTMLElement;
  /** Shows the bar and focuses it; `start` is its initial text, such as ":". */
  open(start?: string): void;
  /** Lines that match, ascending. */
  readonly found: readonly number[];
  has(line: number): boolean;
}

export function findBar(
  pane: TextPane,
  name: string,
  changed: () => void,
  signal: AbortSignal,
): FindBar {
  let found: number[] = [];
  let set = new Set<number>();
  let at = -1;
  let running: AbortController | null = null;
  const said = h("span", { class: "hits", role: "status" });
  const tell = () => {
    const more = found.length >= MOST_FOUND ? "more than " : "";
    said.textContent = !input.value
      ? ""
      : found.length
        ? `${at >= 0 ? `${count(at + 1)} of ` : ""}${more}${count(found.length)}`
        : "not found";
  };
  const take = (lines: number[]) => {
    found = lines;
    set = new Set(lines);
    at = -1;
  };
  const go = (to: number) => {
    if (!found.length) return;
    at = (to + found.length) % found.length;
    pane.cursor = found[at];
    const low = pane.lines.text(found[at]).toLowerCase();
    pane.show(found[at], low.indexOf(input.value.toLowerCase()));
    tell();
    changed();
  };
  const search = async () => {
    running?.abort();
    running = new AbortController();
    const mine = running.signal;
    const { value } = input;
    const line = /^:(\d*)$/.exec(value);
    if (line) {
      const k = lineNamed(pane, line[1]);
      take(k >= 0 ? [k] : []);
      if (k >= 0) go(0);
      said.textContent = line[1] ? (k >= 0 ? "" : "no such line") : "a line's number";
      return;
    }
    const lines = value ? await linesWith(pane, value.toLowerCase(), mine) : [];
    if (mine.aborted) return;
    take(lines);
    const next = found.findIndex((k) => k >= Math.max(0, pane.cursor));
    if (found.length) go(Math.max(0, next));
    tell();
    changed();
  };
  const close = () => {
    running?.abort();
    element.hidden = true;
    take([]);
    changed();
    pane.element.focus();
  };
  const input = h("input", {
    type: "search",
    class: "find",
    placeholder: "Find, or :120 for a line",
    "aria-label": `Find in ${name}`,
    oninput: () => void search(),
    onkeydown: (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter") go(at + (event.shiftKey ? -1 : 1));
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
  });
  const button = (sign: string, words: string, onclick: () => void) =>
    h(
      "button",
      { class: "mini", type: "button", "aria-label": words, title: words, onclick },
      sign,
    );
  const element = h(
    "div",
    { class: "find-in", role: "search" },
    input,
    said,
    button("‹", "Previous match  Shift+Enter", () => go(at - 1)),
    button("›", "Next match  Enter", () => go(at + 1)),
    button("×", "Close  Esc", close),
  );
  element.hidden = true;
  signal.addEventListener("abort", () => running?.abort(), { once: true });
  return {
    element,
    open(start) {
      element.hidden = false;
      if (start !== undefined) input.value = start;
      input.focus();
      if (start === undefined) input.select();
      void search();
    },
    get found() {
      return found;
    },
    has: (line) => set.has(line),
  };
}

/** The line with that number beside it, or -1. */
function lineNamed({ lines }: TextPane, number: string): number {
  if (!number) return -1;
  if (!lines.number) return Number(number) <= lines.count ? Number(number) - 1 : -1;
  for (let k = 0; k < lines.count; k++) if (lines.number(k) === number) return k;
  return -1;
}

async function linesWith({ lines }: TextPane, low: string, signal: AbortSignal): Promise<number[]> {
  const out: number[] = [];
  for (let k = 0; k < lines.count && out.length < MOST_FOUND; k++) {
    if (lines.text(k).toLowerCase().includes(low)) out.push(k);
    if ((k + 1) % STEP) continue;
    await new Promise((resolve) => setTimeout(resolve));
    if (signal.aborted) return [];
  }
  return out;
}
