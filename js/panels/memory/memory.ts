/** Live bytes over the schedule, what holds them, donation, copies, and what loops store. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { type Memory, memoryOf } from "../../state/memory.ts";
import type { Panel } from "../panel.ts";
import { chapters } from "../parts/chapters.ts";
import { facts, note, plotWidth, section } from "../parts/parts.ts";
import { carries, donation, recomputing } from "./audits.ts";
import { liveList } from "./live.ts";
import { timeline } from "./timeline.ts";

export const memory: Panel = {
  id: "memory",
  title: "Memory",
  width: 0.42,
  available: (model) => memoryOf(model) !== null,
  render(element, ctx) {
    const found = memoryOf(ctx.model);
    if (!found) return;
    const list = liveList(ctx, found, () => show(found.extras.peakPoint));
    const line = timeline(found, plotWidth(element), (point) => show(point));
    let point = found.extras.peakPoint;
    const show = (next: number) => {
      point = next;
      line.show(point);
      list.show(point);
    };
    // Selecting an instruction that is in the schedule moves the marker there.
    const where = new Map<number, number>();
    found.schedule.forEach((i, p) => {
      where.set(i, p);
    });
    ctx.store.on(
      "selection",
      () => {
        const s = ctx.store.get("selection");
        const p = s.kind === "instruction" ? where.get(s.index) : undefined;
        if (p !== undefined && p !== point) show(p);
      },
      ctx.signal,
    );
    element.append(
      h(
        "div",
        { class: "memory" },
        chapters(ctx, "memory", [
          {
            title: "At the peak",
            build: () => [
              peaks(found, ctx.model.header.summary.shapes === "global"),
              section("Live bytes over the schedule", line.element),
              list.element,
            ],
          },
          {
            title: "Donation",
            about: "Arguments whose memory outputs reuse, or could reuse",
            build: () => donation(ctx, found),
          },
          {
            title: "Recomputing",
            about: "What is stored for the backward pass, and what runs again",
            build: () => recomputing(ctx, found),
          },
          ...(found.extras.loops.length
            ? [{ title: "Loops", about: "What loops carry", build: () => carries(ctx, found) }]
            : []),
        ]),
      ),
    );
    show(point);
  },
};

function peaks(memory: Memory, isGlobal: boolean): HTMLElement {
  const x = memory.extras;
  const rows: [string, string][] = [
    [
      x.spaces[0] ? `Peak of ${x.spaces[0].name}` : "Peak",
      `${format.bytes(x.peakBytes)} (${format.count(x.peakBytes)} B, ${x.peakSource})`,
    ],
  ];
  if (!x.peakSource.startsWith("simulated")) {
    rows.push(["Simulated", `${format.bytes(x.simulatedBytes)} from the schedule`]);
  }
  if (x.xlaPeakBytes !== null && x.xlaPeakBytes !== x.peakBytes) {
    rows.push(["XLA's peak_memory", `${format.bytes(x.xlaPeakBytes)}${x.xlaPeakNote}`]);
  }
  for (const s of x.spaces) {
    if (s.space !== 0 && s.peak > 0) {
      rows.push([s.name, `${format.bytes(s.peak)} at its own peak (${s.source})`]);
    }
  }
  if (!isGlobal) return facts(rows);
  return h(
    "div",
    null,
    facts(rows),
    note(
      "Of whole arrays, before partitioning: a bound for all devices together, and no peak of any one of them.",
    ),
  );
}
