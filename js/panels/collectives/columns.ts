/** Columns of the list of collectives: figures on one line, where each comes from on the other. */
import * as format from "../../base/format.ts";
import type { Costs } from "../../state/cost/costs.ts";
import { type CollectiveRow, executionsText, totalWire } from "../../state/devices/collectives.ts";
import { shortLine } from "../../state/source/places.ts";

/** Collectives that differ only in their place, such as those of twelve layers. */
export interface Alike {
  first: CollectiveRow;
  rows: CollectiveRow[];
  wire: number; // bytes of all executions
  /** Modelled seconds on the wire, and waited for; NaN without a chip or if bytes are unknown. */
  seconds: number;
  waited: number;
}

export interface ColumnDef {
  label: string;
  title?: string;
  number?: boolean;
  /** Most characters in a cell; the rest is shown on hover. Without it, cells are never cut. */
  most?: number;
  text(row: Alike): string;
  order(row: Alike): number | string;
}

const runs = ({ first }: Alike) => `× ${executionsText(first)}`;
const time = (v: number) => (v === 0 ? "0" : Number.isNaN(v) ? "unknown" : format.seconds(v));
const known = (v: number) => (Number.isNaN(v) ? -1 : v);
const hidden = (r: Alike) => Math.max(0, r.seconds - r.waited);
const nearly = (v: number, of: number) => (v <= 1e-6 * of ? 0 : v);

export const FIGURES: readonly ColumnDef[] = [
  {
    label: "Kind",
    text: (r) => `${r.first.kind}${r.rows.length > 1 ? ` ×${format.count(r.rows.length)}` : ""}`,
    order: (r) => r.first.kind,
  },
  { label: "Axes", text: (r) => r.first.axes, order: (r) => r.first.axes },
  {
    label: "Payload",
    title: "bytes of one execution of one collective",
    number: true,
    text: (r) => format.bytes(r.first.payload),
    order: (r) => r.first.payload,
  },
  {
    label: "Runs",
    title: "executions of each, loops multiplied",
    number: true,
    text: runs,
    order: (r) => (Number.isFinite(r.first.executions) ? r.first.executions : -1),
  },
  {
    label: "Wire",
    title: "bytes sent per device over all executions, by ring formulas",
    number: true,
    text: (r) => format.bytes(r.wire),
    order: (r) => (Number.isFinite(r.wire) ? r.wire : -1),
  },
];

/** Columns that are added if a chip is chosen. */
export const TIMES: readonly ColumnDef[] = [
  {
    label: "Time",
    title: "modelled seconds on the wire, all executions",
    number: true,
    text: (r) => time(r.seconds),
    order: (r) => known(r.seconds),
  },
  {
    label: "Hidden",
    title: "the part hidden behind other work",
    number: true,
    text: (r) => time(nearly(hidden(r), r.seconds)),
    order: (r) => known(hidden(r)),
  },
  {
    label: "Exposed",
    title: "what the chip waits for them, including while other transfers hold the links",
    number: true,
    text: (r) => time(nearly(r.waited, r.seconds)),
    order: (r) => known(r.waited),
  },
];

export const PLACES: readonly ColumnDef[] = [
  { label: "Line", text: (r) => shortLine(r.first.line), order: (r) => r.first.line },
  {
    label: "Type",
    title: "element types of what is sent",
    text: (r) => r.first.types || "unknown",
    order: (r) => r.first.types,
  },
  { label: "Moves", most: 24, text: (r) => r.first.moves, order: (r) => r.first.moves },
  { label: "Phase", text: (r) => r.first.phase, order: (r) => r.first.phase },
  {
    label: "By",
    title: "who wrote it",
    text: (r) => r.first.written,
    order: (r) => r.first.written,
  },
];

/** Replaces numbers, as layer numbers make no difference. */
const digits = (text: string) => text.replace(/\d+/g, "#");

export function foldAlike(
  rows: readonly CollectiveRow[],
  costs: Costs | null,
  fold: boolean,
): Alike[] {
  const found = new Map<string | number, Alike>();
  for (const r of rows) {
    const key = fold
      ? [r.kind, r.axes, r.types, r.payload, r.executions, r.phase, r.line, r.written].join(" ") +
        digits(`${r.moves} ${r.opName}`)
      : r.index;
    let row = found.get(key);
    if (!row) {
      row = { first: r, rows: [], wire: 0, seconds: 0, waited: 0 };
      found.set(key, row);
    }
    row.rows.push(r);
    row.wire += totalWire(r);
    // If the amount sent is unknown, so is the time.
    const { wire, waited } =
      costs?.chip && !Number.isNaN(r.wire)
        ? costs.transferTime(r.members)
        : { wire: Number.NaN, waited: Number.NaN };
    row.seconds += wire;
    row.waited += waited;
  }
  return [...found.values()];
}
