/** The captures that a notebook shows, read from its outputs, which are untrusted data. */
import { bytes, plural } from "../../js/base/format.ts";

export const MARKER = "application/vnd.hloscope.view+json";

/** The part of a notebook's model that is used. */
export interface Outputs {
  length: number;
  get(index: number): { data: Readonly<Record<string, unknown>> };
}
export interface Cells {
  length: number;
  get(index: number): { type: string; trusted: boolean; outputs?: Outputs };
}

/** An output that shows a capture: what python/hloscope/show/shown.py wrote, checked. */
export interface Shown {
  /** Id of the capture in its kernel; "" in outputs from before 0.1. */
  id: string;
  /** Unique per row: the id, or the position. */
  key: string;
  /** The variable when it was shown, or "". */
  name: string;
  title: string;
  module: string;
  stage: string;
  devices: string;
  instructions: number | null;
  peakBytes: number | null;
  collectives: number | null;
  wireBytes: number | null;
  wireIsLeast: boolean;
  wireIsOneTrip: boolean;
  shown: Date | null;
  cell: number;
  output: number;
  trusted: boolean;
  html: string;
}

/** Captures in notebook order; one that is shown twice appears at its last place. */
export function capturesIn(cells: Cells): Shown[] {
  const found = new Map<string, Shown>();
  for (let cell = 0; cell < cells.length; cell++) {
    const { type, trusted, outputs } = cells.get(cell);
    if (type !== "code" || !outputs) continue;
    for (let output = 0; output < outputs.length; output++) {
      const { data } = outputs.get(output);
      if (!(MARKER in data)) continue;
      const shown = read(data, cell, output, trusted);
      found.delete(shown.key);
      found.set(shown.key, shown);
    }
  }
  return [...found.values()];
}

function read(
  data: Readonly<Record<string, unknown>>,
  cell: number,
  output: number,
  trusted: boolean,
): Shown {
  const marker = (data[MARKER] ?? {}) as Record<string, unknown>;
  const word = (key: string) => (typeof marker[key] === "string" ? marker[key].slice(0, 300) : "");
  const count = (key: string) => {
    const value = marker[key];
    return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : null;
  };
  const id = word("id");
  const time = new Date(word("shown"));
  return {
    id,
    key: id || `${cell}.${output}`,
    name: word("name"),
    title: word("title") || joined(data["text/plain"]).split(/ · |\n/, 1)[0] || "capture",
    module: word("module"),
    stage: word("stage"),
    devices: word("devices"),
    instructions: count("instructions"),
    peakBytes: count("peak_bytes"),
    collectives: count("collectives"),
    wireBytes: count("wire_bytes"),
    wireIsLeast: marker.wire_is_least === true,
    wireIsOneTrip: marker.wire_is_one_trip === true,
    shown: Number.isNaN(time.getTime()) ? null : time,
    cell,
    output,
    trusted,
    html: joined(data["text/html"]),
  };
}

/** A value of a MIME bundle, which files may store as a list of lines. */
function joined(value: unknown): string {
  return Array.isArray(value) ? value.join("") : typeof value === "string" ? value : "";
}

/** The lines of a row below its name. */
export function facts(shown: Shown, name: string): string[] {
  const { instructions, peakBytes, collectives, wireBytes } = shown;
  const words = [shown.title, shown.module].filter((word) => word !== name);
  const of = [...new Set(words), shown.stage, shown.devices];
  const size = [
    instructions === null ? "" : plural(instructions, "instruction"),
    peakBytes === null ? "" : `peak ${bytes(peakBytes)}`,
  ];
  const figure = `${shown.wireIsLeast ? "≥ " : ""}${bytes(wireBytes ?? 0)}`;
  const sent = wireBytes ? `, ${figure}${shown.wireIsOneTrip ? " (1 trip)" : ""} sent` : "";
  const moved = collectives ? plural(collectives, "collective") + sent : "";
  return [of.filter(Boolean).join(" · "), size.filter(Boolean).join(" · "), moved].filter(Boolean);
}

/** "14:03" if it is today, else with the date. */
export function clock(time: Date, now: Date): string {
  const hour = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const today = time.toDateString() === now.toDateString();
  return today ? hour : `${time.toLocaleDateString([], { dateStyle: "medium" })}, ${hour}`;
}
