/** Search results: every match with its place; arrow keys step through them. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { shortPlace } from "../../base/lines.ts";
import type { ViewModel } from "../../base/model.ts";
import { AMOUNTS, type Amount, amountOf } from "../../state/cost/amounts.ts";
import { groupPath, instructionsOf } from "../../state/members.ts";
import { inferredLine } from "../../state/source/lines.ts";
import { NOTHING } from "../../state/store.ts";
import type { Selection } from "../../view.ts";
import type { Panel } from "../panel.ts";
import { longList, note, selectionLink } from "../parts/parts.ts";
import { stackOf } from "../parts/source.ts";
import { virtualList } from "../parts/virtual.ts";

/** As many boxes are listed before a button shows the rest. */
const BOXES = 5;
const HELP: [string, string][] = [
  ["dot", "any field: name, opcode, scope, shape, source, box, function, kind"],
  ["opcode:all-reduce", "by opcode, exactly where there is one of that name"],
  ["attention", "a box by the name it bears, and all that is in it"],
  ["scope:mlp", "by op_name, or by the boxes around it"],
  ["shape:f32[8,", "by shape"],
  ["file:train.py:31", "by source line, anywhere in its stack"],
  ["line:31", "by line number, in any file of its stack"],
  ["bytes>1MiB", "by output bytes; also time>1ms and flops>1G, with >=, <, <="],
  ["/fusion\\.\\d+$/", "a regular expression; name:/…/ and the like for one field"],
  ["opcode:dot scope:layer_3", "all of them"],
  ["opcode:fusion -scope:loss", "without those; !word leaves out any match"],
];

export const searchResults: Panel = {
  id: "search",
  title: "Search",
  ofNoChip: true,
  fills: true,
  available: () => true,
  render(element, ctx) {
    const { model, search, store, graph, signal } = ctx;
    const status = h("p", { class: "note", role: "status" });
    const words: Record<Amount, (value: number) => string> = {
      bytes: format.bytes,
      time: format.seconds,
      flops: (v) => format.quantity(v, "FLOP"),
    };
    const known = AMOUNTS.flatMap((a) => {
      const values = amountOf(model, a);
      return values ? [{ a, values }] : [];
    });
    const figures = (i: number) =>
      known
        .filter(({ a, values }) => values[i] > 0 && (a !== "flops" || search.order === a))
        .map(({ a, values }) => words[a](values[i]))
        .join(" · ");
    const sort = h(
      "select",
      {
        "aria-label": "Order of results",
        onchange: () => search.sortBy(sort.value as typeof search.order),
      },
      h("option", { value: "match" }, "best match first"),
      ...known.map(({ a }) =>
        h("option", { value: a }, `most ${a === "flops" ? "FLOPs" : a} first`),
      ),
    );
    sort.value = search.order;
    const make = (k: number) => {
      const i = search.results[k];
      const frame = stackOf(model, i)[0];
      const guess = inferredLine(model, i);
      return h(
        "div",
        {
          class: "result",
          id: `result-${k}`,
          role: "option",
          "aria-posinset": k + 1,
          onclick: () => {
            search.go(k);
            go();
          },
          onpointerenter: () => store.hover({ kind: "instruction", index: i }),
        },
        h(
          "div",
          { class: "line" },
          // An argument is best known by its path.
          h("span", { class: "mono strong" }, pathOf(model, i) || model.name(i)),
          pathOf(model, i) ? h("span", { class: "mono dim" }, model.name(i)) : null,
          h("span", { class: "tag" }, model.opcode(i)),
          h("span", { class: "clip dim", title: model.opName(i) }, placeOf(model, i)),
          h("span", { class: "figure" }, figures(i)),
        ),
        h(
          "div",
          { class: "line dim" },
          h("span", { class: "mono" }, model.denseShape(i)),
          frame && h("span", null, shortPlace(frame.file, frame.line)),
          guess &&
            h("span", { class: "clip" }, `inferred: ${guess.words} %${model.name(guess.via)}`),
        ),
      );
    };
    const refresh = (result: HTMLElement, k: number) => {
      const chosen = k === search.current;
      result.classList.toggle("chosen", chosen);
      result.setAttribute("aria-selected", String(chosen));
      result.setAttribute("aria-setsize", String(search.results.length));
    };
    // The same instruction at another position is another row.
    const key = (k: number) => `${k} ${search.results[k]}`;
    const list = virtualList(46, { key, make, refresh }, signal);
    list.element.setAttribute("role", "listbox");
    list.element.setAttribute("aria-label", "Search results");
    list.element.tabIndex = 0;
    list.element.addEventListener("pointerleave", () => store.hover(NOTHING));
    const go = () => {
      const i = search.results[search.current];
      if (i === undefined) return;
      store.selectInstruction(i);
      graph.reveal(i);
    };
    list.element.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") search.step(1);
      else if (event.key === "ArrowUp") search.step(-1);
      else if (event.key === "Enter") go();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const help = h(
      "div",
      { class: "empty" },
      note("Type in the search box at the top, or press /. All words must match. For example:"),
      h(
        "dl",
        { class: "examples" },
        ...HELP.flatMap(([query, meaning]) => [
          h(
            "dt",
            null,
            h(
              "button",
              { class: "link mono", type: "button", onclick: () => search.set(query) },
              query,
            ),
          ),
          h("dd", null, meaning),
        ]),
      ),
    );
    const boxList = h("div", { class: "found-boxes" });
    const boxRow = (selection: Selection) =>
      h(
        "li",
        null,
        selectionLink(ctx, selection),
        h("span", { class: "dim clip" }, around(model, selection)),
        h(
          "span",
          { class: "figure" },
          format.plural(instructionsOf(model, selection).length, "instruction"),
        ),
      );
    let shown: Uint32Array | null = null;
    const update = () => {
      const { query, results, current } = search;
      if (!query.trim()) {
        fill(element, help);
        shown = null;
        return;
      }
      const { boxes } = search;
      fill(
        boxList,
        boxes.length > 0 && h("h3", null, format.plural(boxes.length, "box", "boxes")),
        boxes.length > 0 && longList(boxes, boxRow, BOXES),
      );
      boxList.hidden = !boxes.length;
      status.textContent = results.length
        ? `${format.plural(results.length, "match", "matches")}${current >= 0 ? `, at ${format.count(current + 1)}` : ""}`
        : "Nothing matches. Try fewer words, or one of the prefixes opcode:, scope:, shape:, file:, line:.";
      if (shown === null)
        fill(
          element,
          h(
            "div",
            { class: "column" },
            h("div", { class: "bar-row" }, status, sort),
            boxList,
            list.element,
          ),
        );
      if (shown !== results) {
        shown = results;
        list.element.scrollTop = 0;
      }
      list.update(results.length);
      if (current >= 0) {
        list.element.setAttribute("aria-activedescendant", `result-${current}`);
        list.show(current);
      } else list.element.removeAttribute("aria-activedescendant");
    };
    search.on(update, signal);
    update();
  },
};

/** The boxes around a box, which distinguish one "attention" from the next. */
function around(model: ViewModel, selection: Selection): string {
  const path = groupPath(model, selection);
  if (selection.kind === "group") path.pop();
  return path.map((g) => model.groupLabel(g)).join(" / ");
}

/** The two innermost scopes around it, which distinguish one dot from the next. */
function placeOf(model: ViewModel, i: number): string {
  const path = groupPath(model, { kind: "instruction", index: i });
  return path
    .filter((g) => model.groupKind(g) === "scope")
    .map((g) => model.groupLabel(g))
    .slice(-2)
    .join("/");
}

/** "params['layers'][0]['up']" for an argument; "" for anything else. */
function pathOf(model: ViewModel, i: number): string {
  const label = model.opcode(i) === "parameter" ? model.label(i) : "";
  return label !== model.name(i) && !/^(parameter|p\d)/.test(label) ? label : "";
}
