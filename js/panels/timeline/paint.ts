/** Draws a window of the timeline: lanes below one another, a ruler, events that can be told apart. */
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import type { Timeline } from "../../state/timeline.ts";

/** What was drawn, for the pointer: CSS pixels, and absolute seconds. */
export interface Span {
  event: number;
  x: number;
  y: number;
  w: number;
  h: number;
  start: number;
  seconds: number;
}

export interface Picture {
  model: ViewModel;
  timeline: Timeline;
  from: number;
  to: number;
  selected: number; // instruction; -1 none
}

const RULER = 20;
const NAME = 16;
const BAR = 26;
const LANE = NAME + BAR + 8;
/** Pixels that an iteration needs to be drawn; a loop below it is one box. */
const OPENS = 10;
const MOST_DEEP = 6;

export function paintTimeline(
  canvas: HTMLCanvasElement,
  box: HTMLElement,
  { model, timeline, from, to, selected }: Picture,
): Span[] {
  const { lanes } = timeline;
  const width = box.clientWidth || 600;
  const height = RULER + lanes.length * LANE + 6;
  const ratio = globalThis.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  const g = canvas.getContext("2d");
  if (!g || !(to > from)) return [];
  const style = getComputedStyle(canvas);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const text = color("--text");
  const dim = color("--dim");
  const line = color("--line");
  const back = color("--bg2");
  const accent = color("--accent");
  const families = model.header.families.map((_, k) => color(`--hlo-family-${k}`) || dim);
  const scale = width / (to - from);
  const x = (t: number) => (t - from) * scale;
  const spans: Span[] = [];
  g.scale(ratio, ratio);
  g.font = "11px system-ui, sans-serif";
  g.textBaseline = "middle";

  function ruler(): void {
    // About a hundred pixels apart, at 1, 2 or 5 times a power of ten.
    const rough = 100 / scale;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) ?? rough;
    if (!g) return;
    g.fillStyle = dim;
    g.strokeStyle = line;
    g.beginPath();
    for (let k = Math.ceil(from / step); k * step <= to; k++) {
      const at = Math.round(x(k * step)) + 0.5;
      g.moveTo(at, RULER - 5);
      g.lineTo(at, height);
      g.fillText(format.seconds(Number((k * step).toPrecision(6))), at + 3, 9);
    }
    g.stroke();
  }

  /** Events of one lane in a computation that begins at `origin` seconds. */
  function events(c: number, lane: number, origin: number, depth: number, y: number, tall: number) {
    if (!g) return;
    let drawn = Number.NEGATIVE_INFINITY; // the last pixel that has something
    // What stands in loops occupies other lanes too: containers are looked into on each.
    const through = lane === 0 ? [] : timeline.after(c, 0, from - origin);
    for (const e of through) {
      if (origin + timeline.start[e] > to) break;
      if (timeline.inside[e] >= 0) loop(e, lane, origin, depth, y, tall);
    }
    for (const e of timeline.after(c, lane, from - origin)) {
      const start = origin + timeline.start[e];
      if (start > to) break;
      const seconds = timeline.duration[e];
      const left = Math.max(0, x(start));
      const right = Math.min(width, x(start + seconds));
      if (right < drawn + 1 && right - left < 1) continue;
      drawn = Math.max(left + 1, right);
      const w = Math.max(1, right - left - (right - left > 3 ? 1 : 0));
      const i = timeline.instruction[e];
      if (timeline.inside[e] >= 0) {
        const opened = lane === 0 && loop(e, lane, origin, depth, y, tall);
        if (!opened) bar(e, left, w, y, tall, start, color("--bg3"), times(e));
        continue;
      }
      const fill = lane === 1 ? "" : families[model.instruction.family[i]];
      bar(e, left, w, y, tall, start, fill, model.label(i) || model.name(i));
    }
  }

  /** The label of a loop says how often already, where that is known. */
  const times = (e: number) => model.label(timeline.instruction[e]) || `loop ×${timeline.times[e]}`;

  /** The visible iterations of a loop, when they are wide enough; false when they are not. */
  function loop(e: number, lane: number, origin: number, depth: number, y: number, tall: number) {
    const each = timeline.each(e);
    if (each * scale < OPENS || depth >= MOST_DEEP) return false;
    const begin = origin + timeline.start[e];
    const count = Math.max(1, timeline.times[e]);
    const first = Math.max(0, Math.floor((from - begin) / each));
    const last = Math.min(count - 1, Math.floor((to - begin) / each));
    for (let k = first; k <= last; k++) {
      events(timeline.inside[e], lane, begin + k * each, depth + 1, y, tall);
      if (!g || lane !== 0 || count < 2) continue;
      g.strokeStyle = accent;
      g.beginPath();
      const at = Math.round(x(begin + k * each)) + 0.5;
      g.moveTo(at, y - 3);
      g.lineTo(at, y + tall + 3);
      g.stroke();
    }
    return true;
  }

  function bar(
    e: number,
    left: number,
    w: number,
    y: number,
    tall: number,
    start: number,
    fill: string,
    label: string,
  ): void {
    if (!g) return;
    const chosen = timeline.instruction[e] === selected;
    if (fill) {
      g.fillStyle = fill;
      g.fillRect(left, y, w, tall);
    } else {
      // Waiting: hatched, so that it is told apart without colour too.
      g.save();
      g.beginPath();
      g.rect(left, y, w, tall);
      g.clip();
      g.strokeStyle = families[model.instruction.family[timeline.instruction[e]]];
      g.lineWidth = 2;
      g.beginPath();
      for (let at = left - tall - ((left - tall) % 6); at < left + w; at += 6) {
        g.moveTo(at, y + tall);
        g.lineTo(at + tall, y);
      }
      g.stroke();
      g.restore();
    }
    if (chosen) {
      g.strokeStyle = accent;
      g.lineWidth = 2;
      g.strokeRect(left + 1, y + 1, Math.max(2, w - 2), tall - 2);
      g.lineWidth = 1;
    }
    if (fill && w > 34) {
      g.save();
      g.beginPath();
      g.rect(left, y, w, tall);
      g.clip();
      g.fillStyle = text;
      g.fillText(label, left + 4, y + tall / 2);
      g.restore();
    }
    spans.push({
      event: e,
      x: left,
      y,
      w: Math.max(3, w),
      h: tall,
      start,
      seconds: timeline.duration[e],
    });
  }

  ruler();
  lanes.forEach((name, lane) => {
    const top = RULER + lane * LANE;
    g.fillStyle = dim;
    g.fillText(name, 4, top + NAME / 2);
    g.fillStyle = back;
    g.fillRect(0, top + NAME, width, BAR);
  });
  lanes.forEach((_, lane) => {
    events(timeline.entry, lane, 0, 0, RULER + lane * LANE + NAME, BAR);
  });
  return spans;
}
