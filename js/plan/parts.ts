/** Small parts of planning pages: facts, texts, bars, the grid of devices. */
import { copyText, h, svg } from "../base/dom.ts";
import { quantity } from "../base/format.ts";
import type { Bars, Cell, Facts, Grid, Words } from "./view.ts";

/** Number of classes k0, k1, … in the style sheet. */
const COLOURS = 12;
/** Milliseconds for which a button says that it has copied. */
const SAID = 1500;

export const said = (value: Cell, unit = ""): string =>
  value === null ? "unknown" : typeof value === "number" ? quantity(value, unit) : value;

export function head(title: string | undefined, note?: string): (HTMLElement | null)[] {
  return [title ? h("h3", null, title) : null, note ? h("p", { class: "note" }, note) : null];
}

export function facts(s: Facts): HTMLElement {
  const rows = s.rows.map(([name, value]) =>
    h("div", null, h("dt", null, name), h("dd", null, value)),
  );
  const copy = s.copy === undefined ? null : h("div", { class: "bar" }, copying("Copy", s.copy));
  return h("section", null, ...head(s.title), h("dl", { class: "facts" }, ...rows), note(s), copy);
}

function note(s: { note?: string }): HTMLElement | null {
  return s.note ? h("p", { class: "note below" }, s.note) : null;
}

/** A button that puts a text on the clipboard; `text` may be a function of the moment. */
export function copying(name: string, text: string | (() => string)): HTMLButtonElement {
  const button = h("button", { class: "action", type: "button" }, name);
  button.addEventListener("click", async () => {
    const done = await copyText(typeof text === "string" ? text : text());
    button.textContent = done ? "Copied" : "Select it and press Ctrl+C";
    setTimeout(() => {
      button.textContent = name;
    }, SAID);
  });
  return button;
}

export function words(s: Words): HTMLElement {
  const bar = s.code ? h("div", { class: "bar" }, copying("Copy", s.text)) : null;
  return h("section", null, ...head(s.title), h("pre", { tabindex: "0" }, s.text), bar);
}

/** The colours of parts, of those in `used`. */
export function legend(parts: string[], used = parts): HTMLElement {
  return h(
    "div",
    { class: "legend" },
    ...parts.map((part, k) =>
      used.includes(part) ? h("span", null, h("i", { class: `k${k % COLOURS}` }), part) : null,
    ),
  );
}

const LABEL = 200;
const LETTERS = 36;
const WIDTH = 710;
const ROW = 24;

/** A picture that scrolls where it would be too small to read. */
export const picture = (drawn: SVGElement): HTMLElement =>
  h("div", { class: "spans" }, drawn as unknown as HTMLElement);

/** Rows of stacked parts, all on the same scale. */
export function stacked(s: Omit<Bars, "type" | "title">): SVGElement {
  const sums = s.rows.map((r) => r.values.reduce((a, v) => a + v, 0));
  const most = Math.max(...sums, Number.MIN_VALUE);
  const out = svg("svg", {
    viewBox: `0 0 ${LABEL + WIDTH + 90} ${s.rows.length * ROW + 4}`,
    role: "img",
    "aria-label": s.rows.map((r, k) => `${r.name}: ${quantity(sums[k], s.unit)}`).join("; "),
  });
  s.rows.forEach((row, k) => {
    const y = k * ROW + 2;
    const name = row.name.length > LETTERS ? `${row.name.slice(0, LETTERS - 1)}…` : row.name;
    out.append(
      svg(
        "text",
        { x: LABEL - 8, y: y + 15, "text-anchor": "end" },
        name,
        svg("title", null, row.name),
      ),
    );
    let x = LABEL;
    row.values.forEach((value, part) => {
      const width = (value / most) * WIDTH;
      if (!(width > 0)) return;
      const title = `${row.name}, ${s.parts[part]}: ${quantity(value, s.unit)}`;
      out.append(
        svg(
          "rect",
          { x, y, width, height: ROW - 6, class: `k${part % COLOURS}` },
          svg("title", null, title),
        ),
      );
      x += width;
    });
    out.append(svg("text", { x: x + 6, y: y + 15, class: "dim" }, quantity(sums[k], s.unit)));
  });
  return out;
}

export function bars(s: Bars): HTMLElement {
  const used = s.parts.filter((_, k) => s.rows.some((r) => r.values[k] > 0));
  const key = s.parts.length > 1 ? legend(s.parts, used) : null;
  return h("section", null, ...head(s.title, s.note), key, picture(stacked(s)));
}

const CELL = 46;

/** Devices as squares, coloured by the stage that runs on them. */
export function grid(s: Grid): HTMLElement {
  const out = svg("svg", {
    width: s.columns * CELL + 2,
    height: s.rows * CELL + 2,
    role: "img",
    "aria-label": s.stages
      .map((stage) => `${stage.label}: ${stage.devices.length} devices`)
      .join("; "),
  });
  s.stages.forEach((stage, k) => {
    for (const [row, column] of stage.devices) {
      const at = { x: column * CELL + 2, y: row * CELL + 2 };
      out.append(
        svg(
          "rect",
          { ...at, width: CELL - 4, height: CELL - 4, rx: 4, class: `k${k % COLOURS}` },
          svg("title", null, stage.label),
        ),
        svg(
          "text",
          { x: at.x + CELL / 2 - 2, y: at.y + CELL / 2 + 2, class: "on", "text-anchor": "middle" },
          `${k}`,
        ),
      );
    }
  });
  return h(
    "section",
    null,
    ...head(s.title, s.note),
    out,
    legend(s.stages.map((stage, k) => `${k}: ${stage.label}`)),
  );
}
