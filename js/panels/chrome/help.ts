/** The table of keys, which keys.ts and the panels bind, and of signs in the picture. */
import { type Child, h } from "../../base/dom.ts";

export const KEYS: [keys: string[], what: string][] = [
  [["/"], "search by name, opcode, scope, shape, source line"],
  [["↑", "↓", "←", "→"], "in the graph: to operands, users, neighbours"],
  [["Enter"], "open or close the selected group, fusion or loop"],
  [["Esc"], "clear: search, then highlights, then selection"],
  [["Ctrl+Z", "Ctrl+Shift+Z"], "undo and redo what was opened and closed"],
  [["[", "]"], "back and forward through what was selected"],
  [["f"], "fit the picture"],
  [["+", "−"], "zoom"],
  [["n"], "highlight the neighbourhood of the selected instruction"],
  [["p"], "highlight the paths from the previously selected instruction to this one"],
  [["d", "t", "c", "o"], "details, text, code side by side, outline"],
  [["←", "→", "Enter"], "in the code: to the next text; pin the line; c copies it"],
  [["Ctrl+F", "g"], "in the code: search the text; go to a line"],
  [["k", "j", "x"], "in the passes: previous pass, next pass; graph or text"],
  [["?"], "this table"],
];

/** What the signs in the picture mean. */
const SIGNS: [sign: string, what: string][] = [
  ["×6", "stacked box: equal groups; opens one at a time"],
  ["+ −", "opens and closes: a group, a fusion, a loop, what an op calls"],
  ["↓ name", "a value made far above; hover to see its other end"],
  ["↑ name", "a value made further down"],
  ["→ 3", "used three times far below"],
  ["↺ 2", "used twice further up"],
  ["◆", "the value changes its sharding on the way"],
  ["○ ●", "copied or sent beside the computation: covered by other work, or waited for"],
  ["▬", "bar in a group: what is inside; of amounts, its share of the whole"],
];

export function help(root: HTMLElement, back: HTMLElement | null): void {
  const close = () => {
    sheet.remove();
    back?.focus();
  };
  const button = h("button", { class: "primary", type: "button", onclick: close }, "Close");
  const sheet = h(
    "div",
    {
      class: "sheet",
      role: "dialog",
      "aria-modal": "true",
      "aria-label": "Keys and gestures",
      onclick: (event) => event.target === sheet && close(),
      onkeydown: (event) => {
        // The button is all that can have focus: Tab stays on it, and no key reaches the graph behind.
        event.stopPropagation();
        if (event.key === "Escape" || event.key === "?") close();
        if (event.key === "Tab") event.preventDefault();
      },
    },
    h(
      "div",
      null,
      h("header", null, h("h2", null, "Keys and gestures"), button),
      h(
        "div",
        { class: "columns" },
        table([
          ...KEYS.map(([keys, what]): [Child[], string] => [
            keys.flatMap((k) => [h("kbd", null, k), " "]),
            what,
          ]),
          [["wheel, drag"], "zoom and move; double-click opens and closes"],
          [["right click, Shift+F10"], "what a box offers: isolate, follow, source, copy, why"],
          [["right click in a panel"], "copies a figure, its row or its table"],
          [["Ctrl+click"], "select several boxes and sum them"],
          [["schedule strip"], "click to jump, drag to highlight a range"],
        ]),
        h(
          "div",
          null,
          h("h3", null, "In the picture"),
          table(SIGNS.map(([sign, what]): [Child[], string] => [[sign], what])),
        ),
      ),
    ),
  );
  root.append(sheet);
  button.focus();
}

function table(rows: [Child[], string][]): HTMLElement {
  return h(
    "table",
    { class: "keys" },
    h(
      "tbody",
      null,
      ...rows.map(([head, what]) =>
        h("tr", null, h("th", { scope: "row" }, ...head), h("td", null, what)),
      ),
    ),
  );
}
