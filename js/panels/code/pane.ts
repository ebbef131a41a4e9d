/** One text of the code panel: its header, with buttons to step through linked lines, and the lines. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { StagesModel } from "../../base/stages.ts";
import type { Links, Lit } from "../../state/source/links.ts";
import type { StageText } from "../../view-extras.ts";
import { note } from "../parts/parts.ts";
import { findBar } from "../parts/text/find-in.ts";
import { type Lines, type TextPane, textPane } from "../parts/text/pane.ts";
import { mlirTokens, pythonTokens, tokens } from "../parts/text/tokens.ts";
import { ruler } from "./ruler.ts";

export interface CodePane {
  element: HTMLElement;
  /** Sets the text, the key of each line among its places (-1 none), and the line of a place. */
  set(
    lines: Lines,
    keyOf: (line: number) => number,
    lineOf: (place: number) => number,
    first?: number,
  ): void;
  fail(words: string): void;
  refresh(): void;
  /** Brings what is lit into view, unless some of it is visible already. */
  follow(lit: Lit): void;
  focus(): void;
}

/** What the panes have in common; linking.ts makes it. */
export interface Shared {
  panes: CodePane[];
  readonly links: Links;
  readonly pinned: boolean;
  readonly lit: Lit;
  /** Places that are pinned. */
  readonly pins: ReadonlySet<number>;
  point(place: number, from: CodePane | null): void;
  pin(place: number, from: CodePane | null): void;
  unpin(): void;
  /** A sentence on what became of the place pointed at or pinned. */
  sentence(): string;
  /** Redraws all panes. */
  refresh(): void;
  start(): void;
  onChange: () => void;
}

export function codePane(
  stages: StagesModel,
  stage: StageText,
  shared: Shared,
  signal: AbortSignal,
): CodePane {
  const { links } = shared;
  let keyOf: (line: number) => number = () => -1;
  let lineOf: (place: number) => number = () => -1;
  let ready = false;
  let steps: number[] = [];
  let waiting: Lit | null = null;
  const placeOf = (line: number) => {
    const key = keyOf(line);
    return key < 0 ? -1 : stages.placeAt(stage, key);
  };
  const colors = new Map<number, number[]>();
  const colorsOf = (place: number) => {
    let found = colors.get(place);
    if (!found) {
      found = links.colors(place);
      colors.set(place, found);
    }
    return found;
  };
  const pane: TextPane = textPane(
    {
      label: `${stage.title}, lines linked with the other texts`,
      tokens: stage.id === "source" ? pythonTokens : stage.id === "stablehlo" ? mlirTokens : tokens,
      look(line) {
        const place = placeOf(line);
        const found = finder.has(line);
        if (place < 0) return { found };
        const { lit, pins } = shared;
        return {
          found,
          colors: colorsOf(place),
          lit: lit.lit.has(place),
          near: lit.near.has(place),
          pinned: pins.has(place),
        };
      },
      point(line) {
        shared.point(line < 0 ? -1 : placeOf(line), self);
      },
      pick: (line) => shared.pin(placeOf(line), self),
    },
    signal,
  );
  const where = h("span", { class: "where" });
  const step = (by: number) => {
    if (!steps.length) return;
    let at = steps.indexOf(pane.cursor);
    if (at < 0) at = steps.findIndex((line) => pane.shows(line)) - (by > 0 ? 1 : 0);
    pane.cursor = steps[(at + by + 2 * steps.length) % steps.length];
    pane.show(pane.cursor);
    pane.refresh();
  };
  const stepper = (by: number, sign: string, words: string) =>
    h(
      "button",
      { class: "mini", type: "button", "aria-label": words, title: words, onclick: () => step(by) },
      sign,
    );
  const before = stepper(-1, "‹", `Previous linked line in ${stage.title}`);
  const after = stepper(1, "›", `Next linked line in ${stage.title}`);
  const finder = findBar(
    pane,
    stage.title,
    () => {
      pane.refresh();
      strip.draw();
    },
    signal,
  );
  const strip = ruler(
    () => ({
      count: pane.lines.count,
      lit: steps,
      pinned: shared.pinned,
      found: finder.found,
    }),
    (line) => pane.show(line),
    signal,
  );
  const seek = h(
    "button",
    {
      class: "mini",
      type: "button",
      title: "Find in this text  Ctrl+F; g goes to a line",
      "aria-label": `Find in ${stage.title}`,
      onclick: () => finder.open(),
    },
    "find",
  );
  const body = h("div", { class: "code-body" }, pane.element, strip.element);
  const element = h(
    "section",
    { class: "code-stage", "data-stage": stage.id, "aria-label": stage.title },
    h("header", null, h("h3", null, stage.title), where, before, after, seek),
    finder.element,
    ...stage.notes.map((words) => note(words)),
    body,
  );
  element.addEventListener(
    "keydown",
    (event) => {
      const searches = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f";
      const goes = event.key === "g" && !event.ctrlKey && !event.metaKey && !event.altKey;
      if (!searches && !(goes && event.target === pane.element)) return;
      finder.open(goes ? ":" : undefined);
      event.preventDefault();
      event.stopPropagation();
    },
    { signal },
  );
  const count = (lit: Lit) => {
    const keys = links.linesIn(stage, lit);
    steps = stage.own
      ? keys
          .map((key) => lineOf(stages.placeAt(stage, key)))
          .filter((line) => line >= 0)
          .sort((a, b) => a - b)
      : keys;
    where.textContent = steps.length ? format.plural(steps.length, "linked line") : "";
    before.hidden = after.hidden = steps.length < 2;
    strip.draw();
  };
  const self: CodePane = {
    element,
    set(lines, key, line, first = stage.count ? stages.line[stage.first] - 3 : 0) {
      keyOf = key;
      lineOf = line;
      ready = true;
      pane.set(lines);
      requestAnimationFrame(() => {
        if (signal.aborted) return;
        if (waiting) self.follow(waiting);
        else if (first > 1) pane.begin(first - 1);
        waiting = null;
      });
      self.refresh();
    },
    fail(words) {
      body.replaceChildren(note(words));
    },
    refresh() {
      if (!ready) return;
      count(shared.lit);
      pane.refresh();
    },
    follow(lit) {
      if (!ready) {
        waiting = lit;
        return;
      }
      count(lit);
      if (steps.length && !steps.some((line) => pane.shows(line))) pane.show(steps[0]);
    },
    focus: () => pane.element.focus(),
  };
  count(shared.lit);
  return self;
}
