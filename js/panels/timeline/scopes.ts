/** Rows above the lanes of the modelled step: its phases, and the boxes that its operations are in. */
import type { ViewModel } from "../../base/model.ts";
import { groupPath } from "../../state/members.ts";
import type { Timeline } from "../../state/time/timeline.ts";
import { firstAfter } from "../../state/time/trace.ts";
import type { Brush } from "./brush.ts";

/** Least width of an iteration, px; below it a loop is one span. */
const OPENS = 60;
const MOST_DEEP = 4;
/** Levels of boxes that have a row. */
const LEVELS = 2;
const UNNAMED = "";

/** Consecutive operations of one phase or box. */
export interface ScopeSpan {
  start: number;
  end: number;
  label: string;
  group: number; // -1: a phase, or outside every box
}

export interface ScopeRow {
  name: string;
  /** The spans that are in view, one after another. */
  spans(b: Brush): ScopeSpan[];
}

export function scopeRows(model: ViewModel, timeline: Timeline): ScopeRow[] {
  const boxes = pathsOf(model);
  const rows: ScopeRow[] = [];
  const phase = model.optional<Uint8Array>("phase.of");
  const names = model.header.extras.phases ?? [];
  const ran = new Set(Array.from(timeline.instruction, (i) => phase?.[i] ?? 0));
  if (phase && ran.size > 1) {
    rows.push({
      name: "phase",
      spans: (b) => spans(b, timeline, (i) => [names[phase[i]] ?? UNNAMED, -1]),
    });
  }
  for (let level = 0; level < LEVELS; level++) {
    const at = (i: number, inside: number): [string, number] => {
      const group = boxes(i, inside)[level];
      return group === undefined ? [UNNAMED, -1] : [model.groupLabel(group), group];
    };
    const { instruction, inside } = timeline;
    const named = Array.from(instruction).some((i, e) => at(i, inside[e])[1] >= 0);
    if (named)
      rows.push({ name: level ? "within it" : "box", spans: (b) => spans(b, timeline, at) });
  }
  return rows;
}

/**
 * The boxes around an instruction, outermost first, without ENTRY and the insides of fusions; for
 * one that runs a computation, such as a loop, those around and with that computation.
 */
function pathsOf(model: ViewModel): (i: number, inside: number) => number[] {
  const kept = new Map<number, number[]>();
  return (i, inside) => {
    const body = inside >= 0 ? model.computation.group[inside] : -1;
    const own = body >= 0 ? body : model.instruction.group[i];
    let path = kept.get(own);
    if (!path) {
      path = groupPath(model, { kind: "group", index: own }).filter(
        (g) => !["entry", "fusion", "reducer", "condition"].includes(model.groupKind(g)),
      );
      kept.set(own, path);
    }
    return path;
  };
}

function spans(
  b: Brush,
  timeline: Timeline,
  at: (i: number, inside: number) => [label: string, group: number],
): ScopeSpan[] {
  const out: ScopeSpan[] = [];
  const add = (start: number, end: number, [label, group]: [string, number]) => {
    const last = out[out.length - 1];
    if (last && last.label === label && last.group === group) last.end = Math.max(last.end, end);
    else out.push({ start, end, label, group });
  };
  const visit = (c: number, origin: number, depth: number) => {
    const row = timeline.row(c, 0);
    for (let k = firstAfter(row.end, b.span.from - origin); k < row.events.length; k++) {
      const start = origin + row.start[k];
      if (start > b.span.to) break;
      const e = row.events[k];
      const each = timeline.each(e);
      if (timeline.inside[e] >= 0 && depth < MOST_DEEP && each * b.scale >= OPENS) {
        const count = Math.max(1, timeline.times[e]);
        const first = Math.max(0, Math.floor((b.span.from - start) / each));
        const last = Math.min(count - 1, Math.floor((b.span.to - start) / each));
        for (let n = first; n <= last; n++) visit(timeline.inside[e], start + n * each, depth + 1);
      } else add(start, origin + row.end[k], at(timeline.instruction[e], timeline.inside[e]));
    }
  };
  visit(timeline.entry, 0, 0);
  return out;
}
