/** Paints the modelled step; loops open into iterations once these are wide enough. */
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import type { Timeline } from "../../state/time/timeline.ts";
import { firstAfter } from "../../state/time/trace.ts";
import { type Brush, RULER } from "./brush.ts";
import { describe, type Lanes, type Mark } from "./chart.ts";
import { type ScopeRow, type ScopeSpan, scopeRows } from "./scopes.ts";

const NAME = 16;
const BAR = 26;
/** Height of a row of boxes, and of one with the gap below it. */
const SCOPE = 20;
const SCOPE_ROW = SCOPE + 3;
const LANE = NAME + BAR + 8;
/** Least width of an iteration, px; below it a loop is drawn as one box. */
const OPENS = 10;
const MOST_DEEP = 6;

/** An event as drawn, for the pointer; in CSS pixels. */
interface Drawn {
  event: number;
  x: number;
  y: number;
  w: number;
  start: number;
}

export function modelled(model: ViewModel, timeline: Timeline): Lanes {
  let drawn: Drawn[] = [];
  let boxes: (ScopeSpan & { y: number })[] = [];
  const rows = scopeRows(model, timeline);
  const above = RULER + rows.length * SCOPE_ROW;

  /** Paints a row of boxes with their names; what is too narrow for one is joined to a plain bar. */
  function scopes(b: Brush, row: ScopeRow, y: number): void {
    b.g.fillStyle = b.back;
    b.g.fillRect(0, y, b.span.width, SCOPE);
    row.spans(b).forEach((span, k) => {
      const left = Math.max(0, b.x(span.start));
      const w = Math.min(b.span.width, b.x(span.end)) - left;
      if (w < 0.5 || !span.label) return;
      b.bar(left, y, Math.max(1, w - 1), SCOPE, k % 2 ? b.other : b.line, span.label);
      boxes.push({ ...span, y });
    });
  }

  /** Paints the events of one lane in a computation that begins at `origin` seconds. */
  function events(b: Brush, c: number, lane: number, origin: number, depth: number, y: number) {
    const { from, to, width } = b.span;
    // Events inside loops occupy other lanes too, so containers are visited for each lane.
    if (lane !== 0) {
      const loops = timeline.loops(c);
      for (let k = firstAfter(loops.end, from - origin); k < loops.events.length; k++) {
        if (origin + loops.start[k] > to) break;
        loop(b, loops.events[k], lane, origin, depth, y);
      }
    }
    const row = timeline.row(c, lane);
    let k = firstAfter(row.end, from - origin);
    while (k < row.events.length && origin + row.start[k] <= to) {
      const e = row.events[k];
      const start = origin + row.start[k];
      const left = Math.max(0, b.x(start));
      const right = Math.min(width, b.x(origin + row.end[k]));
      const isShort = right - left < 1;
      const w = isShort ? 1 : right - left - (right - left > 3 ? 1 : 0);
      const i = timeline.instruction[e];
      const fill = b.families[model.instruction.family[i]];
      if (timeline.inside[e] >= 0) {
        const opened = lane === 0 && !isShort && loop(b, e, lane, origin, depth, y);
        if (!opened) bar(b, e, left, w, y, start, b.other, times(e));
      } else if (lane === 1 && w > 3) {
        b.hatched(left, y, w, BAR, fill);
        note(b, e, left, w, y, start);
      } else {
        bar(b, e, left, w, y, start, fill, model.label(i) || model.name(i));
      }
      // Of events too short to distinguish, only the first one in each pixel is drawn.
      const until = Math.max(row.end[k], from - origin + (left + 1) / b.scale);
      k = isShort ? firstAfter(row.end, until, k + 1) : k + 1;
    }
  }

  /** The label of a loop already gives the trip count, if that is known. */
  const times = (e: number) => model.label(timeline.instruction[e]) || `loop ×${timeline.times[e]}`;

  /** Paints the visible iterations of a loop; returns false if they are not wide enough. */
  function loop(b: Brush, e: number, lane: number, origin: number, depth: number, y: number) {
    const each = timeline.each(e);
    if (each * b.scale < OPENS || depth >= MOST_DEEP) return false;
    const begin = origin + timeline.start[e];
    const count = Math.max(1, timeline.times[e]);
    const first = Math.max(0, Math.floor((b.span.from - begin) / each));
    const last = Math.min(count - 1, Math.floor((b.span.to - begin) / each));
    for (let k = first; k <= last; k++) {
      events(b, timeline.inside[e], lane, begin + k * each, depth + 1, y);
      if (lane !== 0 || count < 2) continue;
      b.g.strokeStyle = b.accent;
      b.g.lineWidth = 1;
      b.g.beginPath();
      const at = Math.round(b.x(begin + k * each)) + 0.5;
      b.g.moveTo(at, y - 3);
      b.g.lineTo(at, y + BAR + 3);
      b.g.stroke();
    }
    return true;
  }

  function bar(
    b: Brush,
    e: number,
    x: number,
    w: number,
    y: number,
    start: number,
    fill: string,
    label: string,
  ): void {
    b.bar(x, y, w, BAR, fill, label);
    note(b, e, x, w, y, start);
  }

  function note(b: Brush, event: number, x: number, w: number, y: number, start: number): void {
    if (timeline.instruction[event] === b.span.selected) b.ring(x, y, w, BAR);
    drawn.push({ event, x, y, w: Math.max(3, w), start });
  }

  return {
    seconds: timeline.seconds,
    about: `Timeline of ${format.seconds(timeline.seconds)}`,
    height: above + timeline.lanes.length * LANE + 6,
    paint(brush, top) {
      drawn = [];
      boxes = [];
      rows.forEach((row, k) => {
        scopes(brush, row, RULER + k * SCOPE_ROW - top);
      });
      for (const box of boxes) box.y += top;
      timeline.lanes.forEach((name, lane) => {
        const y = above + lane * LANE + NAME;
        brush.lane(name, y - top, BAR);
        events(brush, timeline.entry, lane, 0, 0, y - top);
      });
      for (const d of drawn) d.y += top;
      brush.ruler();
    },
    at(x, y): Mark | null {
      // Search backwards, as the innermost is drawn last.
      for (let k = drawn.length - 1; k >= 0; k--) {
        const d = drawn[k];
        if (x < d.x || x > d.x + d.w || y < d.y || y > d.y + BAR) continue;
        const i = timeline.instruction[d.event];
        const seconds = timeline.duration[d.event];
        const often = timeline.times[d.event];
        const words = describe(
          [
            `%${model.name(i)}`,
            model.label(i),
            format.seconds(seconds) + (often > 1 ? `, ${format.count(often)} iterations` : ""),
            timeline.lanes[timeline.lane[d.event]],
          ],
          d.start,
        );
        return { start: d.start, seconds, instruction: i, words };
      }
      return null;
    },
    boxAt(seconds, y) {
      const found = boxes.find(
        (s) => y >= s.y && y <= s.y + SCOPE && seconds >= s.start && seconds <= s.end,
      );
      if (!found) return null;
      const words = describe([found.label, format.seconds(found.end - found.start)], found.start);
      return { group: found.group, words, start: found.start, seconds: found.end - found.start };
    },
    place(instruction) {
      const found = timeline.place(instruction);
      return found && { start: found.start, seconds: timeline.duration[found.event] };
    },
  };
}
