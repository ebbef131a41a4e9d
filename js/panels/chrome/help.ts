/** The keyboard table; its rows are the truth that mount.ts binds. */
import { h } from "../../base/dom.ts";

export const KEYS: [keys: string[], what: string][] = [
  [["/"], "search by name, opcode, scope, shape, source line"],
  [["↑", "↓", "←", "→"], "in the graph: to operands, users, neighbours"],
  [["Enter"], "open or close the selected group, fusion or loop"],
  [["Esc"], "clear: search, then lit boxes, then selection"],
  [["[", "]"], "back and forward through what was selected"],
  [["f"], "fit the picture"],
  [["+", "−"], "zoom"],
  [["n"], "light the neighbourhood of the selected instruction"],
  [["p"], "light the paths from the instruction selected before to this one"],
  [["d", "t", "o"], "details, text, outline"],
  [["?"], "this table"],
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
        // The only thing to focus is the button: Tab stays, and no key reaches the graph behind.
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
        "table",
        { class: "keys" },
        h(
          "tbody",
          null,
          ...KEYS.map(([keys, what]) =>
            h(
              "tr",
              null,
              h("th", { scope: "row" }, ...keys.flatMap((k) => [h("kbd", null, k), " "])),
              h("td", null, what),
            ),
          ),
          h(
            "tr",
            null,
            h("th", { scope: "row" }, "wheel, drag"),
            h("td", null, "zoom and move; double-click opens and closes"),
          ),
          h(
            "tr",
            null,
            h("th", { scope: "row" }, "schedule strip"),
            h("td", null, "click to jump, drag to light a range"),
          ),
        ),
      ),
    ),
  );
  root.append(sheet);
  button.focus();
}
