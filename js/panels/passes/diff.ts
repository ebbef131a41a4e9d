/** The text of what a pass changed: removed and new lines, with some context. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { DiffKind, type Passes } from "../../state/passes/passes.ts";
import { type TextPane, textPane } from "../parts/text/pane.ts";
import { tokens } from "../parts/text/tokens.ts";

export interface DiffPane {
  element: HTMLElement;
  /** Shows the changes of a row. */
  show(row: number): void;
  /** Brings an instruction's line into view, if it is among the changes. */
  reveal(instruction: number): void;
}

export function diffPane(
  passes: Passes,
  pick: (instruction: number) => void,
  chosen: () => number,
  signal: AbortSignal,
): DiffPane {
  let begin = 0;
  let end = 0;
  const kind = (k: number): DiffKind => passes.diffKind[begin + k];
  const value = (k: number): number => passes.diffValue[begin + k];
  const isLine = (k: number) => kind(k) < DiffKind.Computation;
  const instruction = (k: number) => (isLine(k) ? passes.instructionOf(value(k)) : -1);
  const empty = h("p", { class: "note pass-same" }, "No line changed here.");
  const pane: TextPane = textPane(
    {
      label: "Lines that the pass changed",
      tokens,
      look: (k) => ({
        pinned: isLine(k) && instruction(k) >= 0 && instruction(k) === chosen(),
        change: !isLine(k)
          ? undefined
          : kind(k) === DiffKind.New
            ? "added"
            : kind(k) === DiffKind.Gone
              ? "removed"
              : kind(k) === DiffKind.Moved
                ? "changed"
                : undefined,
      }),
      pick: (k) => {
        if (instruction(k) >= 0) pick(instruction(k));
      },
    },
    signal,
  );
  return {
    element: h("div", { class: "column pass-diff" }, empty, pane.element),
    show(row) {
      begin = passes.diffOffsets[row];
      end = passes.diffOffsets[row + 1];
      empty.hidden = end > begin;
      empty.textContent =
        row === 0 ? "The module begins here: step on to see changes." : "No line changed here.";
      pane.set({
        count: end - begin,
        text: (k) => {
          if (kind(k) === DiffKind.Computation) return passes.model.strings.get(value(k));
          if (kind(k) === DiffKind.Skipped) {
            return `… ${format.plural(value(k), "line")} as before`;
          }
          return passes.lineOf(value(k));
        },
        number: (k) => (kind(k) === DiffKind.Moved ? "↕" : " "),
        heading: (k) => !isLine(k),
      });
    },
    reveal(i) {
      pane.refresh();
      for (let k = 0; k < end - begin; k++) {
        if (instruction(k) === i && kind(k) !== DiffKind.Same) return pane.show(k);
      }
    },
  };
}
