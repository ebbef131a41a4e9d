/** Rows of a traced lane, and the search by time used for drawing and pointing. */

import { describe, expect, it } from "vitest";
import type { ViewModel } from "../../js/base/model.ts";
import { firstAfter, Trace } from "../../js/state/time/trace.ts";

function trace(lanes: [start: number, end: number][][]): Trace {
  const rows = lanes.flatMap((events, lane) => events.map((e) => [lane, ...e]));
  const column = (k: number) => rows.map((r) => r[k]);
  const names = ["", "TPU:0", "lane"];
  const columns: Record<string, ArrayLike<number>> = {
    "trace.lane": Uint32Array.from(column(0)),
    "trace.start": Float64Array.from(column(1)),
    "trace.end": Float64Array.from(column(2)),
    "trace.seconds": Float64Array.from(rows.map((r) => r[2] - r[1])),
    "trace.instruction": Int32Array.from(rows.map((_, k) => (k % 2 ? 0 : -1))),
    "trace.text": Uint32Array.from(rows.map(() => 2)),
    "trace_lane.device": Uint32Array.from(lanes.map(() => 1)),
    "trace_lane.name": Uint32Array.from(lanes.map(() => 2)),
    "trace_lane.beside": Uint8Array.from(lanes.map(() => 0)),
    "trace_lane.events": Uint32Array.from(lanes.map((events) => events.length)),
    "trace_run.device": new Uint32Array(),
    "trace_run.start": new Float64Array(),
    "trace_run.seconds": new Float64Array(),
  };
  return new Trace({
    column: (name: string) => columns[name],
    header: { extras: { trace: { events: rows.length, shortest: null, elsewhere: [], runs: 0 } } },
    strings: { get: (id: number) => names[id] },
  } as unknown as ViewModel);
}

describe("rows of a lane", () => {
  it("what a loop holds stands below it, what follows beside it", () => {
    const [lane] = trace([
      [
        [0, 10],
        [0, 4],
        [1, 2],
        [4, 9],
        [10, 12],
      ],
    ]).lanes;
    expect(lane.rows.map((row) => [...row.events])).toEqual([[0, 4], [1, 3], [2]]);
  });

  it("transfers that overlap never share a row, and every event has one", () => {
    let seed = 7;
    const next = () => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return seed / 2 ** 32;
    };
    const events = Array.from({ length: 400 }, (): [number, number] => {
      const start = next() * 100;
      return [start, start + next() * 9];
    }).sort((a, b) => a[0] - b[0]);
    const made = trace([events, events.slice(0, 7)]);
    expect(made.lanes.map((lane) => lane.drawn)).toEqual([400, 7]);
    for (const { rows, drawn } of made.lanes) {
      expect(rows.reduce((sum, row) => sum + row.events.length, 0)).toBe(drawn);
      for (const { start, end } of rows) {
        for (let k = 1; k < start.length; k++) expect(start[k]).toBeGreaterThanOrEqual(end[k - 1]);
      }
    }
  });

  it("the last event counts for the whole length, and instructions know theirs", () => {
    const made = trace([
      [
        [0, 5],
        [1, 2],
      ],
      [[3, 4]],
    ]);
    expect(made.length).toBe(5);
    expect(made.of(0)).toEqual([1]);
    expect(made.of(3)).toEqual([]);
  });
});

it("the first that ends after a time, as a walk from the front finds it", () => {
  const ends = [1, 2, 2, 5, 9];
  for (let time = 0; time <= 10; time += 0.5) {
    for (let low = 0; low <= ends.length; low++) {
      const walked = ends.findIndex((end, k) => k >= low && end > time);
      expect(firstAfter(ends, time, low)).toBe(walked < 0 ? ends.length : walked);
    }
  }
});
