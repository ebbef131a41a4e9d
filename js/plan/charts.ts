/** The Pareto plot and the heat map. */
import { fill, h, svg } from "../base/dom.ts";
import { quantity } from "../base/format.ts";
import { head, said } from "./parts.ts";
import { choose, type Selecting } from "./table.ts";
import type { Heatmap, Scatter } from "./view.ts";

const W = 860;
const H = 300;
const LEFT = 84;
const BOTTOM = 34;

/** Two to six round numbers between lo and hi; bytes are round in the unit in which they are shown. */
function ticks(lo: number, hi: number, unit = ""): number[] {
  const raw = (hi - lo) / 6;
  const binary = unit === "B" ? 1024 ** Math.floor(Math.log(Math.max(hi, 1)) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(raw / binary)) * binary;
  const step = [1, 2, 5, 10].map((f) => f * power).find((f) => f >= raw) ?? raw;
  const first = Math.ceil(lo / step);
  const last = Math.floor(hi / step + 1e-9);
  // none where the figures are larger than numbers are exact: adding a step changes nothing
  const steps = last - first <= 10 ? last - first + 1 : 0;
  return Array.from({ length: Math.max(0, steps) }, (_, k) => (first + k) * step);
}

// Up to so many points all have their names beside them; of more, those of the front.
const NAMED = 12;
const LETTERS = 30; // of a name: the whole one is in the point's title
const LETTER = 6.2; // pixels of one, about, at 11 px
const LINE = 13;

interface Box {
  x0: number;
  x1: number;
  y0: number;
  y1: number;
}

const overlap = (a: Box, b: Box) => a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1;

/** Names beside points, where they cover neither a point nor another name. */
function names(points: { x: number; y: number; label: string }[], all: Box[]): SVGElement[] {
  const taken = [...all];
  return points.flatMap(({ x, y, label }) => {
    const text = label.length > LETTERS ? `${label.slice(0, LETTERS - 1)}…` : label;
    const w = text.length * LETTER;
    const sides = [
      [x + 9, y + 4],
      [x - 9 - w, y + 4],
      [x - w / 2, y - 10],
      [x - w / 2, y + 18],
      [x + 9, y - 8],
      [x + 9, y + 16],
    ];
    for (const [left, base] of sides) {
      const box = { x0: left, x1: left + w, y0: base - LINE + 3, y1: base + 3 };
      const isInside = box.x0 > LEFT && box.x1 < W && box.y0 > 0 && box.y1 < H - BOTTOM;
      if (!isInside || taken.some((other) => overlap(box, other))) continue;
      taken.push(box);
      return [svg("text", { x: left, y: base, class: "name" }, text)];
    }
    return [];
  });
}

/** `open` is what a click on a dot does besides selecting it; with Shift, it only selects. */
export function scatter(
  s: Scatter,
  selecting: Selecting,
  open?: (id: number) => void,
): HTMLElement {
  const shown = s.points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y));
  // room for a name below the lowest point, which is of the front
  const range = (values: number[], room: number): [number, number] => {
    const lo = Math.min(...values);
    const hi = Math.max(...values);
    const pad = (hi - lo || Math.abs(hi) || 1) * room;
    return [Math.max(0, lo - pad), hi + pad];
  };
  const [x0, x1] = range(
    shown.map((p) => p.x),
    0.06,
  );
  const [y0, y1] = range(
    shown.map((p) => p.y),
    0.12,
  );
  const at = (p: { x: number; y: number }) => ({
    x: LEFT + ((p.x - x0) / (x1 - x0)) * (W - LEFT - 16),
    y: 10 + (1 - (p.y - y0) / (y1 - y0)) * (H - BOTTOM - 10),
  });
  const out = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": s.title });
  for (const v of ticks(x0, x1, s.x.unit)) {
    const { x } = at({ x: v, y: y0 });
    out.append(
      svg("line", { x1: x, x2: x, y1: 10, y2: H - BOTTOM, class: "axis" }),
      svg(
        "text",
        { x, y: H - BOTTOM + 14, "text-anchor": "middle", class: "dim" },
        quantity(v, s.x.unit),
      ),
    );
  }
  for (const v of ticks(y0, y1, s.y.unit)) {
    const { y } = at({ x: x0, y: v });
    out.append(
      svg("line", { x1: LEFT, x2: W - 16, y1: y, y2: y, class: "axis" }),
      svg(
        "text",
        { x: LEFT - 6, y: y + 4, "text-anchor": "end", class: "dim" },
        quantity(v, s.y.unit),
      ),
    );
  }
  out.append(
    svg("text", { x: W - 16, y: H - 4, "text-anchor": "end" }, s.x.name),
    svg("text", { x: 2, y: 10 }, s.y.name),
  );
  const front = shown.filter((p) => p.front).sort((a, b) => a.x - b.x);
  if (front.length > 1) {
    const points = front.map((p) => Object.values(at(p)).join(",")).join(" ");
    out.append(svg("polyline", { points, class: "frontier" }));
  }
  const dots = new Map<number, SVGElement>();
  for (const p of [...shown].sort((a, b) => Number(a.front) - Number(b.front))) {
    const { x, y } = at(p);
    const words = `${p.label}: ${quantity(p.x, s.x.unit)}, ${quantity(p.y, s.y.unit)}`;
    const dot = svg(
      "circle",
      {
        cx: x,
        cy: y,
        r: p.front ? 6 : 5,
        class: p.front ? "dot front" : "dot",
        tabindex: "0",
        role: "button",
        "aria-label": words,
      },
      svg("title", null, words),
    );
    const pressed = (event: Event) => {
      if (!open || (event as MouseEvent | KeyboardEvent).shiftKey) choose(selecting, p.id);
      else {
        choose(selecting, p.id, true);
        open(p.id);
      }
    };
    dot.addEventListener("click", pressed);
    dot.addEventListener("keydown", (event) => {
      if ((event as KeyboardEvent).key === "Enter") pressed(event);
    });
    dots.set(p.id, dot);
    out.append(dot);
  }
  const named = shown.length <= NAMED ? shown : front.length <= NAMED ? front : [];
  const around = shown.map(at).map(({ x, y }) => ({ x0: x - 6, x1: x + 6, y0: y - 6, y1: y + 6 }));
  out.append(
    ...names(
      // those of the front first: there may be no room for all
      [...named]
        .sort((a, b) => Number(b.front) - Number(a.front))
        .map((p) => ({ ...at(p), label: p.label })),
      around,
    ),
  );
  selecting.changed.push(() => {
    for (const [id, dot] of dots) dot.classList.toggle("chosen", selecting.ids.includes(id));
  });
  const left = s.points.length - shown.length;
  const how = open ? "A click opens the capture, with Shift it selects one to compare." : "";
  const lost = left ? `${left} without these figures are not drawn.` : "";
  const note = [s.note, how, lost].filter(Boolean).join(" ");
  return h("section", null, ...head(s.title, note), out as unknown as HTMLElement);
}

export function heatmap(s: Heatmap): HTMLElement {
  const body = h("div", { class: "wide" });
  const draw = (metric: number) => {
    const m = s.metrics[metric];
    const known = m.values.flat().filter((v): v is number => v !== null);
    const most = Math.max(...known, Number.MIN_VALUE);
    const rows = s.rows.map((name, r) =>
      h(
        "tr",
        null,
        h("th", { scope: "row" }, name),
        ...s.columns.map((column, c) => {
          const value = m.values[r][c];
          const mark = s.marked.find((x) => x.row === r && x.column === c);
          const cell = h(
            "td",
            {
              class: mark ? "marked" : undefined,
              title: `${name}, ${column}${mark ? `: ${mark.label}` : ""}`,
            },
            value === null ? "" : said(value, m.unit),
          );
          if (value !== null) {
            cell.style.setProperty(
              "background",
              `rgba(var(--heat),${(0.05 + 0.5 * (value / most)).toFixed(3)})`,
            );
          }
          return cell;
        }),
      ),
    );
    const top = h(
      "tr",
      null,
      h("th", null, ""),
      ...s.columns.map((c) => h("th", { scope: "col" }, c)),
    );
    fill(body, h("table", { class: "heat" }, h("thead", null, top), h("tbody", null, ...rows)));
  };
  const select = h(
    "select",
    { "aria-label": "figure" },
    ...s.metrics.map((m, k) => h("option", { value: String(k) }, m.name)),
  );
  select.addEventListener("change", () => draw(Number(select.value)));
  draw(0);
  const bar = h("div", { class: "bar" }, h("label", null, "figure", select));
  return h("section", null, ...head(s.title, s.note), bar, body);
}
