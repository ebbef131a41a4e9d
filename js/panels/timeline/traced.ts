/** Paints the lanes of a trace: events at least a pixel wide as bars, shorter ones merged by colour. */
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { firstAfter, type Lane, type Row, type Trace } from "../../state/time/trace.ts";
import { type Brush, RULER } from "./brush.ts";
import { describe, type Lanes, type Mark } from "./chart.ts";

const NAME = 16;
const TALL = 18;
const APART = 2;
const GAP = 8;

interface Placed {
  lane: Lane;
  y: number; // of its first row
}

export function traced(model: ViewModel, trace: Trace, device: string | null): Lanes {
  const placed: Placed[] = [];
  let y = RULER;
  for (const lane of trace.lanes) {
    if ((device !== null && lane.device !== device) || lane.events === 0) continue;
    placed.push({ lane, y: y + NAME });
    y += NAME + Math.max(1, lane.rows.length) * (TALL + APART) + GAP;
  }
  const height = y;
  let last: Brush | null = null;

  const name = ({ lane }: Placed) =>
    device === null ? `${lane.device} · ${lane.name}` : lane.name;

  function row(brush: Brush, { events, start, end }: Row, top: number): void {
    const { from, to, width, selected } = brush.span;
    const { scale } = brush;
    const pixel = 1 / scale;
    const ringed: [number, number][] = [];
    let k = firstAfter(end, from);
    // Bars without labels, grouped by colour, as bars of a row do not overlap.
    const plain = new Map<string, number[]>();
    const put = (fill: string, x: number, w: number) => {
      const held = plain.get(fill);
      if (held) held.push(x, w);
      else plain.set(fill, [x, w]);
    };
    // Adjacent pixels of one colour, from events too short to distinguish.
    let [dense, until, shade] = [0, 0, ""];
    const flush = () => {
      if (until > dense) put(shade, dense, until - dense);
      dense = until;
    };
    while (k < events.length && start[k] < to) {
      const left = Math.max(0, (start[k] - from) * scale);
      const right = Math.min(width, (end[k] - from) * scale);
      const e = events[k];
      const i = trace.instruction[e];
      const own = i >= 0;
      const fill = own ? brush.families[model.instruction.family[i]] : brush.other;
      if (right - left >= 1) {
        const w = right - left - (right - left > 3 ? 1 : 0);
        if (w > 25) brush.bar(left, top, w, TALL, fill, label(e));
        else put(fill, left, w);
        k++;
      } else {
        // Only the first event in each pixel is drawn.
        if (fill !== shade || left > until + 0.5) {
          flush();
          [dense, shade] = [left, fill];
        }
        until = left + 1;
        k = firstAfter(end, Math.max(end[k], from + (left + 1) * pixel), k + 1);
      }
      if (own && i === selected) ringed.push([left, right - left]);
    }
    flush();
    for (const [fill, bars] of plain) {
      brush.g.fillStyle = fill;
      for (let n = 0; n < bars.length; n += 2) brush.g.fillRect(bars[n], top, bars[n + 1], TALL);
    }
    for (const [x, w] of ringed) brush.ring(x, top, w, TALL);
  }

  function label(e: number): string {
    const i = trace.instruction[e];
    const said = i >= 0 ? model.label(i) : "";
    return said && said !== model.opcode(i) ? said : trace.name(e);
  }

  /** The clocks of a device and its host may disagree, even by jumps; lanes share the host's. */
  function clocks(e: number): string {
    const long = trace.end[e] - trace.start[e];
    const far = Math.abs(long - trace.seconds[e]) > 0.01 * trace.seconds[e] + 1e-8;
    return far ? `${format.seconds(long)} by the host's clock, as drawn` : "";
  }

  function find(x: number, y: number): number {
    if (!last) return -1;
    const place = placed.find(
      (p) => y >= p.y && y < p.y + Math.max(1, p.lane.rows.length) * (TALL + APART),
    );
    const found = place?.lane.rows[Math.floor((y - place.y) / (TALL + APART))];
    if (!found) return -1;
    // The event at the pointer, or else the one that is about a pixel away.
    const at = last.span.from + x / last.scale;
    const near = 1.5 / last.scale;
    let k = firstAfter(found.end, at - near);
    if (k >= found.events.length || found.start[k] > at + near) return -1;
    while (
      k + 1 < found.events.length &&
      found.end[k] < at &&
      found.start[k + 1] <= at + near / 3
    ) {
      k++;
    }
    return found.events[k];
  }

  return {
    seconds: trace.length,
    about: `Every event of ${device ?? "all devices"}, ${format.seconds(trace.length)}`,
    height,
    paint(brush, top) {
      last = brush;
      for (const p of placed) {
        const rows = Math.max(1, p.lane.rows.length) * (TALL + APART);
        if (p.y + rows < top || p.y - NAME > top + brush.span.height) continue;
        brush.lane(name(p), p.y - top, rows - APART);
        p.lane.rows.forEach((r, k) => {
          const at = p.y + k * (TALL + APART) - top;
          if (at + TALL > 0 && at < brush.span.height) row(brush, r, at);
        });
      }
      brush.ruler();
    },
    at(x, y): Mark | null {
      const e = find(x, y);
      if (e < 0) return null;
      const i = trace.instruction[e];
      const lane = trace.lane(e);
      const words = describe(
        [
          i >= 0 ? `%${model.name(i)}` : trace.name(e),
          i >= 0 && model.label(i) !== model.name(i) ? model.label(i) : "",
          format.seconds(trace.seconds[e]),
          clocks(e),
          `${lane.device}, ${lane.name}`,
          i >= 0 ? "" : "not an operation of this program",
        ],
        trace.start[e],
      );
      return { start: trace.start[e], seconds: trace.seconds[e], instruction: i, words };
    },
    place(instruction, near) {
      let best = -1;
      for (const e of trace.of(instruction)) {
        if (device !== null && trace.lane(e).device !== device) continue;
        const far = Math.abs(trace.start[e] - near);
        if (best < 0 || far < Math.abs(trace.start[best] - near)) best = e;
      }
      return best < 0 ? null : { start: trace.start[best], seconds: trace.seconds[best] };
    },
  };
}
