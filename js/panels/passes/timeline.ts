/** A table of the passes: one row each, pipelines as headings, metadata-only passes folded. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Passes } from "../../state/passes/passes.ts";
import type { PassCost } from "../../view.ts";
import { type VirtualList, virtualList } from "../parts/virtual.ts";
import { share } from "./times.ts";

const ROW = 24;

type Row =
  | { is: "pass"; row: number }
  | { is: "pipeline"; name: string; rows: number[] }
  | { is: "folded"; rows: number[] };

/** A column: its heading, what it means, and for a row the change and the new value. */
interface Column {
  head: string;
  /** Left out where there is little room. */
  wide?: boolean;
  title: string;
  of(passes: Passes, row: number): Cell | null;
}
interface Cell {
  change: number | null;
  /** The value after the pass, as text; null not known. */
  now: string | null;
  /** Text in the table. */
  text: string;
  note?: string;
}

const signed = (value: number, text: string) =>
  value > 0 ? `+${text}` : value < 0 ? `−${text}` : "";

const wide = (column: Column): Column => ({ ...column, wide: true });

const counted = (head: string, title: string, ...keys: string[]): Column => ({
  head,
  title,
  of(passes, row) {
    const { counts, change } = passes.rows[row];
    const sum = (of: Record<string, number>) => keys.reduce((n, key) => n + (of[key] ?? 0), 0);
    const now = sum(counts);
    if (row === 0) return { change: null, now: format.count(now), text: format.count(now) };
    const by = sum(change);
    return { change: by, now: format.count(now), text: signed(by, format.count(Math.abs(by))) };
  },
});

const costed = (
  head: string,
  title: string,
  key: "flops" | "bytes_accessed" | "peak_bytes",
  unit: string,
): Column => ({
  head,
  title,
  of(passes, row) {
    const { cost } = passes.rows[row];
    if (!cost) return null;
    const now = cost[key] ?? null;
    const whole = cost.shapes === "global" ? ", of all devices together" : "";
    const words = (value: number) =>
      unit ? format.bytes(value) : format.quantity(value, "FLOP").replace("FLOP", "");
    if (now === null) {
      const unknown = cost.failed ? "failed" : key === "peak_bytes" ? "" : "?";
      return { change: null, now, text: unknown, note: cost.failed ?? whole };
    }
    let before: PassCost | null = null;
    for (let k = row - 1; k >= 0 && !before; k--) before = passes.rows[k].cost;
    const was = before?.shapes === cost.shapes ? (before?.[key] ?? null) : null;
    // When figures change from all devices to one, a difference would be meaningless.
    const is = words(now);
    if (was === null) return { change: null, now: is, text: `= ${is}`, note: whole };
    const by = now - was;
    return { change: by, now: is, text: signed(by, words(Math.abs(by))), note: whole };
  },
});

const COLUMNS: Column[] = [
  counted("Instr.", "instructions", "instructions"),
  counted("Fusions", "fusions", "fusions"),
  wide(counted("Copies", "copies and transposes", "copies", "transposes")),
  counted("Coll.", "collectives", "collectives"),
  wide(costed("FLOPs", "FLOPs", "flops", "")),
  costed("Bytes", "bytes accessed", "bytes_accessed", "B"),
  wide(costed("Peak", "bytes live at the peak; known once there is a schedule", "peak_bytes", "B")),
];

/** All figures of one pass: the values after it, and the changes. */
export function figures(passes: Passes, row: number): HTMLElement {
  const box = h("div", { class: "pass-figures" });
  const { times } = passes;
  if (times) {
    const took = passes.secondsOf(row);
    const of = took !== null && times.total ? share(took, times.total) : "";
    box.append(
      h("span", { class: "what" }, "time, measured"),
      h("span", null, took === null ? "not known" : format.seconds(took)),
      h("span", { class: "change" }, of && `${of} of ${format.seconds(times.total ?? 0)}`),
    );
  }
  for (const column of COLUMNS) {
    const cell = column.of(passes, row);
    const now = cell ? (cell.now ?? "not known") : "not worked out yet";
    const change = cell?.change ? cell.text : "";
    const by = cell?.change ? (cell.change > 0 ? " up" : " down") : "";
    box.append(
      h("span", { class: "what" }, column.title.split(";")[0]),
      h("span", null, now),
      h("span", { class: `change${by}` }, `${change}${cell?.note ?? ""}`.replace(/^, /, "")),
    );
  }
  return box;
}

export interface Timeline {
  element: HTMLElement;
  /** Marks another row as chosen. */
  update(chosen: number): void;
  /** Redraws after new figures have arrived. */
  renew(): void;
  focus(): void;
  /** The next row that is not folded; at the end, the last one. */
  next(row: number, by: 1 | -1): number;
}

export function timeline(
  passes: Passes,
  pick: (row: number) => void,
  signal: AbortSignal,
): Timeline {
  let all = false;
  let chosen = -1;
  let edition = 0;
  let rows: Row[] = [];
  /** Seconds of the longest bar. */
  let longest = 0;
  const list: VirtualList = virtualList(
    ROW,
    {
      key: (k) => edition * 1e6 + k,
      make: (k) => make(rows[k]),
      refresh: (element, k) => {
        const row = rows[k];
        const is = row.is === "pass" && row.row === chosen;
        element.classList.toggle("chosen", is);
        if (row.is === "pass") element.setAttribute("aria-selected", String(is));
      },
    },
    signal,
  );
  list.element.classList.add("pass-rows");
  list.element.setAttribute("role", "listbox");
  list.element.setAttribute("aria-label", "Passes");
  list.element.tabIndex = 0;

  const arrange = () => {
    edition++;
    rows = [];
    let pipeline = "";
    let folded: number[] = [];
    const flush = () => {
      if (folded.length) rows.push({ is: "folded", rows: folded });
      folded = [];
    };
    passes.rows.forEach((row, k) => {
      if (row.onlyMetadata && !all) {
        folded.push(k);
        return;
      }
      flush();
      if (row.pipeline !== pipeline) {
        pipeline = row.pipeline;
        if (pipeline) rows.push({ is: "pipeline", name: pipeline, rows: [] });
      }
      rows.push({ is: "pass", row: k });
    });
    flush();
    let heading: number[] = [];
    let at = 0;
    // Passes that are folded count for the heading before them, if they are of its pipeline.
    for (const row of rows) {
      if (row.is === "pipeline") heading = row.rows;
      for (const k of row.is === "pass" ? [row.row] : row.is === "folded" ? row.rows : []) {
        if (row.is === "pass" || passes.rows[k].pipeline === passes.rows[at].pipeline)
          heading.push(k);
        if (row.is === "pass") at = k;
      }
    }
    longest = Math.max(
      0,
      ...rows.map((row) =>
        row.is === "pipeline"
          ? (passes.pipelineSeconds(row.rows)?.whole ?? 0)
          : row.is === "pass"
            ? (passes.secondsOf(row.row) ?? 0)
            : 0,
      ),
    );
  };
  const make = (row: Row): HTMLElement => {
    if (row.is === "pipeline") {
      const took = passes.pipelineSeconds(row.rows);
      const others = took ? `, of that ${format.seconds(took.others)} passes without a row` : "";
      return h(
        "div",
        { class: "pass-pipeline", role: "presentation" },
        passes.times && timeCell(took?.whole ?? null, longest, others),
        h("span", { class: "clip", title: row.name }, row.name),
      );
    }
    if (row.is === "folded") {
      return h(
        "button",
        {
          class: "pass-folded",
          type: "button",
          onclick: () => {
            all = true;
            arrange();
            update(chosen);
          },
        },
        `${format.plural(row.rows.length, "pass", "passes")} changed nothing but metadata`,
      );
    }
    const { title: pass, about } = passes.rows[row.row];
    return h(
      "div",
      {
        class: "pass-row",
        role: "option",
        "data-row": row.row,
        onclick: () => pick(row.row),
      },
      passes.times && timeCell(passes.secondsOf(row.row), longest),
      h("span", { class: "pass-name clip", title: about ? `${pass}: ${about}` : pass }, pass),
      ...COLUMNS.map((column) => {
        const cell = column.of(passes, row.row);
        const kind = column.wide ? "num wide" : "num";
        if (!cell) return h("span", { class: `${kind} dim`, title: "not worked out yet" }, "·");
        const now = cell.now ?? "not known";
        const by =
          cell.change === null ? "" : cell.change > 0 ? " up" : cell.change < 0 ? " down" : "";
        return h(
          "span",
          {
            class: `${kind}${by}`,
            title: `${column.title}: ${now} after this pass${cell.note ?? ""}`,
          },
          cell.text,
        );
      }),
    );
  };
  const update = (row: number) => {
    chosen = row;
    list.update(rows.length);
    const at = rows.findIndex((r) => r.is === "pass" && r.row === chosen);
    if (at >= 0) list.show(at);
  };
  arrange();
  const head = h("div", { class: "pass-row pass-head" });
  const element = h("div", { class: "column pass-table" }, head, list.element);
  const headings = () => {
    element.classList.toggle("timed", passes.times !== null);
    fill(
      head,
      passes.times && h("span", { class: "num", title: "time that it took, measured" }, "Time"),
      h("span", null, "Pass"),
      ...COLUMNS.map((c) =>
        h("span", { class: c.wide ? "num wide" : "num", title: c.title }, c.head),
      ),
    );
  };
  headings();
  return {
    element,
    update,
    renew() {
      headings();
      arrange();
      list.update(rows.length);
    },
    focus: () => list.element.focus({ preventScroll: true }),
    next(row, by) {
      const shown = rows.flatMap((r) => (r.is === "pass" ? [r.row] : []));
      if (by > 0) return shown.find((r) => r > row) ?? shown[shown.length - 1] ?? row;
      return shown.filter((r) => r < row).pop() ?? shown[0] ?? row;
    },
  };
}

/** Seconds with a bar behind them; nothing where they are unknown. */
function timeCell(seconds: number | null, longest: number, more = ""): HTMLElement {
  if (seconds === null) return h("span", { class: "num took dim", title: "time: not known" }, "·");
  const width = longest > 0 ? (100 * seconds) / longest : 0;
  const text = format.seconds(seconds);
  return h(
    "span",
    { class: "num took", title: `${text}, measured${more}` },
    h("i", { "aria-hidden": "true", style: { width: `${width.toFixed(1)}%` } }),
    h("span", null, text),
  );
}
