/**
 * Checks a planning page before it is drawn: a saved page can come from anywhere.
 *
 * What is not as `view.ts` declares it is not drawn, and says why: a list that is none, or a table
 * without a figure, would otherwise fail when somebody clicks, or draw for ever.
 */
import { difference, type Shapes } from "../base/difference.ts";
import type { Explorer, Gantt, Grid, Heatmap, Section, Spans, Table } from "./view.ts";

const HEAD = "title note?";
/** Squares of a grid and rows of a picture: more are no picture. */
const MOST = 100_000;
const SECTIONS: Record<Section["type"], Shapes[string]> = {
  facts: { string: "title? note? copy?", "[(string,string)]": "rows" },
  text: { string: "title text", boolean: "code?" },
  table: {
    string: `${HEAD} code_name? first_name?`,
    "[column]": "columns",
    "[[?string/number]]": "rows",
    "[?number]": "ids?",
    "[?string]": "links?",
    "[number]": "marked?",
    "[string]": "code?",
  },
  scatter: { string: HEAD, column: "x y", "[point]": "points" },
  heatmap: { string: HEAD, "[string]": "rows columns", "[metric]": "metrics", "[mark]": "marked" },
  gantt: { string: HEAD, "[schedule]": "options", number: "chosen", "[edited]": "edit?" },
  spans: {
    string: HEAD,
    "[string]": "lanes parts",
    number: "seconds",
    "[(number,number,number,number,string)]": "spans",
  },
  grid: { string: HEAD, "[stage]": "stages", number: "rows columns" },
  explorer: {
    string: HEAD,
    "[slider]": "sliders",
    "[column]": "facts",
    "[string]": "time memory",
    "[case]": "cases",
  },
  bars: { string: `${HEAD} unit`, "[string]": "parts", "[bar]": "rows" },
};
const SHAPES: Shapes = {
  ...SECTIONS,
  view: { string: "title", "[section]": "sections" },
  section: { string: "type" },
  column: { string: "name unit?", boolean: "wrap?" },
  point: { number: "id x y", string: "label", boolean: "front" },
  metric: { string: "name unit", "[[?number]]": "values" },
  mark: { number: "row column", string: "label" },
  schedule: {
    string: "kind",
    number: "microbatches seconds bubble",
    "[string]": "lanes",
    "[(number,number,number,F|B|W|,string)]": "work",
    "[?[(number,number)]]": "memory",
    "[number]": "inFlight",
  },
  edited: { string: "name label unit", number: "value" },
  stage: { string: "label", "[(number,number)]": "devices" },
  slider: { string: "name", "[number]": "values", number: "at" },
  case: { "[mesh]": "meshes", string: "why?" },
  mesh: { string: "label", boolean: "fits", "[number]": "facts time memory" },
  bar: { string: "name", "[number]": "values" },
};

/** What is wrong with the page as a whole, "sections is not a list"; "" if nothing is. */
export const damaged = (view: unknown): string =>
  sentence(difference(view, "view", SHAPES), "its data");

/** What is wrong with a section. */
export function damagedSection(section: Section): string {
  const { type } = section;
  if (!Object.hasOwn(SECTIONS, type)) return `nothing here draws ${type.slice(0, 40)}`;
  const found = sentence(difference(section, type, SHAPES), "it");
  return found || (LENGTHS[type]?.(section as never) ?? "");
}

/** ".rows[1] is not a list" as words; `whole` stands for the value itself. */
const sentence = (found: string, whole: string): string =>
  found.startsWith(" ") ? whole + found : found.replace(/^\./, "");

const all = (lists: readonly (readonly unknown[])[], length: number) =>
  lists.every((list) => list.length === length);

/** Figures that belong together, of those types that have such. */
const LENGTHS: Partial<Record<Section["type"], (section: never) => string>> = {
  table: ({ columns, rows }: Table) =>
    all(rows, columns.length) ? "" : "a row has not one cell for each column",
  heatmap: ({ rows, columns, metrics }: Heatmap) =>
    metrics.length &&
    metrics.every((m) => m.values.length === rows.length && all(m.values, columns.length))
      ? ""
      : "it has not one figure for each cell",
  gantt: ({ options }: Gantt) =>
    options.length && options.every((o) => all([o.memory, o.inFlight], o.lanes.length))
      ? ""
      : "it has not one row for each lane",
  spans: ({ lanes }: Spans) => (lanes.length <= MOST ? "" : "it has too many lanes"),
  grid: ({ rows, columns }: Grid) =>
    rows * columns <= MOST ? "" : "it has more devices than can be drawn",
  explorer: ({ sliders, cases, facts }: Explorer) => {
    const count = sliders.reduce((n, { values }) => n * values.length, 1);
    if (cases.length !== count) return "it has not one case for each choice";
    if (sliders.some(({ values, at }) => values[at] === undefined)) return "a slider is nowhere";
    const meshes = cases.flatMap((c) => c.meshes);
    return all(
      meshes.map((m) => m.facts),
      facts.length,
    )
      ? ""
      : "a mesh has not one figure for each column";
  },
};
