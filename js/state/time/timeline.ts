/** The modelled step as events on lanes; Python's analysis/cost/timeline.py walks the schedule. */
import type { ViewModel } from "../../base/model.ts";
import type { TimelineExtras } from "../../view-extras.ts";
import { perModel } from "../members.ts";
import type { Row } from "./trace.ts";

const NOTHING: Row = {
  events: new Uint32Array(),
  start: new Float64Array(),
  end: new Float64Array(),
};

/** Where an event is drawn: absolute seconds, and how many loops or calls deep. */
export interface Place {
  event: number;
  start: number;
  depth: number;
}

export class Timeline {
  readonly lanes: readonly string[];
  readonly seconds: number;
  readonly hardware: string;
  readonly entry: number;
  readonly instruction: Uint32Array;
  readonly lane: Uint8Array;
  readonly start: Float64Array; // within its computation
  readonly duration: Float64Array;
  readonly inside: Int32Array; // computation that runs `times` times inside it; -1 for an operation
  readonly times: Float64Array;
  private readonly computation: Uint32Array;
  private readonly rows = new Map<number, Row[]>();
  private readonly containers = new Map<number, Row>();
  private readonly ofInstruction = new Map<number, number>();
  private readonly caller = new Map<number, number>();

  constructor(model: ViewModel) {
    const said = model.header.extras.timeline as TimelineExtras;
    this.lanes = said.lanes;
    this.seconds = said.seconds;
    this.hardware = said.hardware;
    this.entry = said.entry;
    this.computation = model.column("timeline.computation");
    this.instruction = model.column("timeline.instruction");
    this.lane = model.column("timeline.lane");
    this.start = model.column("timeline.start");
    this.duration = model.column("timeline.seconds");
    this.inside = model.column("timeline.inside");
    this.times = model.column("timeline.times");
    const rows = new Map<number, number[][]>();
    for (let e = 0; e < this.start.length; e++) {
      const c = this.computation[e];
      let lanes = rows.get(c);
      if (!lanes) {
        lanes = this.lanes.map(() => []);
        rows.set(c, lanes);
      }
      lanes[this.lane[e]]?.push(e);
      const known = this.ofInstruction.get(this.instruction[e]);
      if (known === undefined || this.duration[e] > this.duration[known]) {
        this.ofInstruction.set(this.instruction[e], e);
      }
      if (this.inside[e] >= 0 && !this.caller.has(this.inside[e])) {
        this.caller.set(this.inside[e], e);
      }
    }
    for (const [c, lanes] of rows) {
      this.rows.set(c, lanes.map(this.byStart));
      this.containers.set(c, this.byStart(lanes[0].filter((e) => this.inside[e] >= 0)));
    }
  }

  private byStart = (events: number[]): Row => {
    events.sort((a, b) => this.start[a] - this.start[b]);
    return {
      events: Uint32Array.from(events),
      start: Float64Array.from(events, (e) => this.start[e]),
      end: Float64Array.from(events, (e) => this.start[e] + this.duration[e]),
    };
  };

  /** Events of a computation on a lane, one after another: both starts and ends ascend. */
  row(computation: number, lane: number): Row {
    return this.rows.get(computation)?.[lane] ?? NOTHING;
  }

  /** The loops and calls of a computation, which contain events of every lane. */
  loops(computation: number): Row {
    return this.containers.get(computation) ?? NOTHING;
  }

  /** Seconds of one execution of what is inside a loop or a call. */
  each(event: number): number {
    return this.duration[event] / Math.max(1, this.times[event]);
  }

  /** The first place of an instruction's longest event: in a loop's body, the first iteration. */
  place(instruction: number): Place | null {
    const event = this.ofInstruction.get(instruction);
    if (event === undefined) return null;
    let start = this.start[event];
    let depth = 0;
    let c = this.computation[event];
    for (; c !== this.entry && depth < 100; depth++) {
      const around = this.caller.get(c);
      if (around === undefined) return null;
      start += this.start[around];
      c = this.computation[around];
    }
    return { event, start, depth };
  }
}

export const timelineOf = perModel((model) =>
  model.optional("timeline.start") && model.header.extras.timeline ? new Timeline(model) : null,
);
