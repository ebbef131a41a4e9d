/**
 * A trace, event by event. Lanes are lines of devices; overlapping events of a lane, such as a
 * loop and its body or transfers in flight, are on separate rows:
 *
 *   XLA Ops        ├──────── while ────────┤├ fusion ┤
 *                   ├ dot ┤├ add ┤
 *   Async XLA Ops  ├──── copy ────┤
 *                      ├──── copy ────┤
 */
import type { ViewModel } from "../../base/model.ts";
import type { TraceExtras } from "../../view-extras.ts";
import { perModel } from "../members.ts";

/** Events that follow one another: starts and ends ascend. `events` are indices into the columns. */
export interface Row {
  events: Uint32Array;
  start: Float64Array;
  end: Float64Array;
}

export interface Lane {
  device: string;
  name: string;
  beside: boolean;
  events: number; // in the trace
  drawn: number;
  rows: Row[];
}

export interface Run {
  device: string;
  start: number;
  seconds: number;
}

export class Trace {
  readonly instruction: Int32Array;
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly seconds: Float64Array; // by the device's own clock
  readonly lanes: Lane[] = [];
  readonly devices: string[];
  readonly runs: Run[];
  readonly said: TraceExtras;
  /** Seconds from the first event to the end of the last. */
  readonly length: number;
  private readonly text: Uint32Array;
  private readonly model: ViewModel;
  private readonly laneOf: Uint32Array;
  private ofInstruction: Map<number, number[]> | null = null;

  constructor(model: ViewModel) {
    this.model = model;
    this.said = model.header.extras.trace as TraceExtras;
    this.instruction = model.column("trace.instruction");
    this.start = model.column("trace.start");
    this.end = model.column("trace.end");
    this.seconds = model.column("trace.seconds");
    this.text = model.column("trace.text");
    this.laneOf = model.column("trace.lane");
    const device = model.column<Uint32Array>("trace_lane.device");
    const name = model.column<Uint32Array>("trace_lane.name");
    const beside = model.column<Uint8Array>("trace_lane.beside");
    const events = model.column<Uint32Array>("trace_lane.events");
    let from = 0;
    for (let k = 0; k < device.length; k++) {
      let to = from;
      while (to < this.laneOf.length && this.laneOf[to] === k) to++;
      this.lanes.push({
        device: model.strings.get(device[k]),
        name: model.strings.get(name[k]),
        beside: beside[k] === 1,
        events: events[k],
        drawn: to - from,
        rows: this.rowsOf(from, to),
      });
      from = to;
    }
    this.devices = [...new Set(this.lanes.map((lane) => lane.device))];
    const runOf = model.column<Uint32Array>("trace_run.device");
    const begins = model.column<Float64Array>("trace_run.start");
    const took = model.column<Float64Array>("trace_run.seconds");
    this.runs = Array.from(runOf, (d, k) => ({
      device: model.strings.get(d),
      start: begins[k],
      seconds: took[k],
    }));
    let length = 0;
    for (const end of this.end) length = Math.max(length, end);
    this.length = length;
  }

  name(event: number): string {
    return this.model.strings.get(this.text[event]);
  }

  lane(event: number): Lane {
    return this.lanes[this.laneOf[event]];
  }

  /** Events of an instruction, ordered by lane, then by start. */
  of(instruction: number): readonly number[] {
    if (!this.ofInstruction) {
      this.ofInstruction = new Map();
      for (let e = 0; e < this.instruction.length; e++) {
        const i = this.instruction[e];
        if (i < 0) continue;
        const known = this.ofInstruction.get(i);
        if (known) known.push(e);
        else this.ofInstruction.set(i, [e]);
      }
    }
    return this.ofInstruction.get(instruction) ?? [];
  }

  /** Puts each event on the first free row; events that contain others come before them. */
  private rowsOf(from: number, to: number): Row[] {
    const ends: number[] = [];
    const rows: number[][] = [];
    for (let e = from; e < to; e++) {
      let row = 0;
      while (row < ends.length && ends[row] > this.start[e]) row++;
      if (row === rows.length) rows.push([]);
      rows[row].push(e);
      ends[row] = this.end[e];
    }
    return rows.map((list) => ({
      events: Uint32Array.from(list),
      start: Float64Array.from(list, (e) => this.start[e]),
      end: Float64Array.from(list, (e) => this.end[e]),
    }));
  }
}

/** Index of the first event of a row that ends after `time`. */
export function firstAfter(end: ArrayLike<number>, time: number, low = 0): number {
  let high = end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export const traceOf = perModel((model) =>
  model.optional("trace.lane") && model.header.extras.trace ? new Trace(model) : null,
);
