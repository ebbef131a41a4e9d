/** A table with sortable columns whose rows can be selected: one to open, two to compare. */
import { fill, h } from "../base/dom.ts";
import { copying, head, said } from "./parts.ts";
import type { Cell, Table } from "./view.ts";

export interface Selecting {
  /** Selected ids in the order of selection; at most two. */
  ids: number[];
  changed: (() => void)[];
}

/** Selects an id, or deselects it; with `alone`, selects only that one. */
export function choose(selecting: Selecting, id: number, alone = false): void {
  const { ids } = selecting;
  if (alone) ids.splice(0, ids.length, id);
  else if (ids.includes(id)) ids.splice(ids.indexOf(id), 1);
  else {
    ids.push(id);
    if (ids.length > 2) ids.shift();
  }
  for (const f of selecting.changed) f();
}

const compare = (a: Cell, b: Cell): number => {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  return typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b));
};

const texts = (s: Table, n: number): string[] =>
  s.rows[n].map((value, k) => said(value, s.columns[k].unit));

export function table(
  s: Table,
  selecting: Selecting,
  ask?: (what: string, ids: number[]) => void,
): HTMLElement {
  let sorted = -1;
  let up = true;
  const isNumber = s.columns.map((_, k) => s.rows.some((r) => typeof r[k] === "number"));
  const order = s.rows.map((_, k) => k);
  const body = h("tbody", null);
  const heads = s.columns.map((c, k) => {
    const button = h("button", { type: "button" }, c.name);
    const cell = h("th", { scope: "col", class: isNumber[k] ? "n" : undefined }, button);
    button.addEventListener("click", () => {
      up = sorted === k ? !up : true;
      sorted = k;
      for (const other of heads) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      order.sort((a, b) => (up ? 1 : -1) * compare(s.rows[a][k], s.rows[b][k]) || a - b);
      draw();
    });
    return cell;
  });
  const rowOf = new Map<number, HTMLElement>();
  const line = (n: number): HTMLElement => {
    const id = s.ids?.[n] ?? null;
    const cells = s.rows[n].map((value, k) =>
      h(
        "td",
        { class: isNumber[k] ? "n" : s.columns[k].wrap ? "wrap" : undefined },
        said(value, s.columns[k].unit),
      ),
    );
    const link = s.links?.[n];
    if (link) cells[0].replaceChildren(h("a", { href: link }, cells[0].textContent));
    const row = h(
      "tr",
      {
        class: s.marked?.includes(n) ? "front" : undefined,
        tabindex: id === null ? undefined : "0",
      },
      ...cells,
    );
    if (id !== null) {
      row.addEventListener("click", () => choose(selecting, id));
      row.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose(selecting, id);
      });
      rowOf.set(id, row);
    }
    return row;
  };
  const lines = s.rows.map((_, n) => line(n));
  const draw = () => fill(body, ...order.map((n) => lines[n]));
  draw();
  const rows = h(
    "div",
    { class: "wide" },
    h("table", null, h("thead", null, h("tr", null, ...heads)), body),
  );
  const out = h("section", null, ...head(s.title, s.note), rows);
  /** As it is sorted, with tabs between cells: spreadsheets take it apart. */
  const asText = () =>
    [s.columns.map((c) => c.name), ...order.map((n) => texts(s, n))]
      .map((cells) => cells.join("\t"))
      .join("\n");
  const copyAll = copying("Copy the table", asText);
  if (!s.ids) {
    rows.before(h("div", { class: "bar" }, copyAll));
    return out;
  }
  const open = h("button", { class: "action", type: "button" }, "Open the capture");
  const diff = h("button", { class: "action", type: "button" }, "Compare two");
  const first = s.ids.find((id) => id !== null) ?? -1;
  const copy = copying(`Copy its ${s.code_name ?? "code"}`, () => code.textContent ?? "");
  const code = h("pre", { tabindex: "0" });
  const codeOf = (id: number) => s.code?.[s.ids?.indexOf(id) ?? -1] ?? "";
  const show = () => {
    for (const [id, row] of rowOf) {
      row.setAttribute("aria-selected", String(selecting.ids.includes(id)));
    }
    open.disabled = selecting.ids.length !== 1;
    const alone = selecting.ids.length === 1 && selecting.ids[0] !== first;
    diff.disabled = selecting.ids.length !== 2 && !alone;
    diff.textContent = alone ? `Compare with ${s.first_name ?? "the best"}` : "Compare two";
    code.textContent = selecting.ids.map(codeOf).filter(Boolean).join("\n\n");
    code.hidden = copy.hidden = !code.textContent;
  };
  open.addEventListener("click", () => ask?.("open", selecting.ids));
  diff.addEventListener("click", () => {
    ask?.("diff", selecting.ids.length === 1 ? [first, ...selecting.ids] : selecting.ids);
  });
  const buttons = h(
    "div",
    { class: "bar" },
    ask ? open : null,
    ask ? diff : null,
    s.code ? copy : null,
    copyAll,
  );
  rows.before(buttons); // above the rows, as nobody would find them below hundreds of rows
  out.append(code);
  selecting.changed.push(show);
  show();
  return out;
}
