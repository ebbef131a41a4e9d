/**
 * The modelled step over time: compute, waiting, and each way that transfers go. Zoomed and panned
 * like a trace; loops open into their iterations as they get wide enough.
 */
import { h, onFrame } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { NOTHING } from "../../state/store.ts";
import { timelineOf } from "../../state/timeline.ts";
import type { Panel } from "../panel.ts";
import { note } from "../parts/parts.ts";
import { paintTimeline, type Span } from "./paint.ts";

const STEP = 1.25;

export const timeline: Panel = {
  id: "timeline",
  title: "Timeline",
  width: 0.5,
  fills: true,
  available: (model) => timelineOf(model) !== null,
  render(element, ctx) {
    const { model, store, graph, signal } = ctx;
    const found = timelineOf(model);
    if (!found) return;
    let from = 0;
    let to = found.seconds;
    let spans: Span[] = [];
    const canvas = h("canvas", {
      role: "img",
      tabindex: "0",
      "aria-label": `Timeline of ${format.seconds(found.seconds)}: arrows move, plus and minus zoom, 0 shows all. The tables of Cost and Collectives have the figures.`,
    });
    const box = h("div", { class: "timeline-box" }, canvas);
    const said = h("p", { class: "note", "aria-live": "polite" });
    const hint = "Drag to move, turn the wheel to zoom, double-click to fill the view with one.";
    said.textContent = hint;

    const draw = onFrame(() => {
      const selection = store.get("selection");
      const selected = selection.kind === "instruction" ? selection.index : -1;
      spans = paintTimeline(canvas, box, { model, timeline: found, from, to, selected });
    }, signal);
    const show = (a: number, b: number) => {
      const least = found.seconds * 1e-9;
      const width = Math.min(found.seconds, Math.max(least, b - a));
      from = Math.min(Math.max(0, a), found.seconds - width);
      to = from + width;
      draw();
    };
    const zoom = (factor: number, at = (from + to) / 2) => {
      show(at - (at - from) / factor, at + (to - at) / factor);
    };
    const move = (share: number) => show(from + (to - from) * share, to + (to - from) * share);
    const timeAt = (x: number) => from + ((to - from) * x) / Math.max(1, canvas.clientWidth);
    const spanAt = (event: MouseEvent): Span | undefined => {
      const rect = canvas.getBoundingClientRect();
      const x = event.clientX - rect.left;
      const y = event.clientY - rect.top;
      // The innermost is drawn last.
      return [...spans]
        .reverse()
        .find((s) => x >= s.x && x <= s.x + s.w && y >= s.y && y <= s.y + s.h);
    };
    const words = (s: Span) => {
      const i = found.instruction[s.event];
      const took = format.seconds(found.duration[s.event]);
      const times =
        found.times[s.event] > 1 ? `, ${format.count(found.times[s.event])} iterations` : "";
      const lane = found.lanes[found.lane[s.event]];
      return `%${model.name(i)} · ${model.label(i)} · ${took}${times} · ${lane} · begins at ${format.seconds(s.start)}`;
    };

    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const at = timeAt(event.clientX - canvas.getBoundingClientRect().left);
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
          move(event.deltaX / canvas.clientWidth);
        else zoom(event.deltaY < 0 ? STEP : 1 / STEP, at);
      },
      { passive: false },
    );
    let held: { x: number; from: number; to: number; moved: boolean } | null = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      held = { x: event.clientX, from, to, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (held) {
        const by = event.clientX - held.x;
        held.moved ||= Math.abs(by) > 3;
        const shift = ((held.to - held.from) * by) / Math.max(1, canvas.clientWidth);
        if (held.moved) show(held.from - shift, held.to - shift);
        return;
      }
      const span = spanAt(event);
      said.textContent = span ? words(span) : hint;
      store.hover(span ? { kind: "instruction", index: found.instruction[span.event] } : NOTHING);
    });
    canvas.addEventListener("pointerleave", () => store.hover(NOTHING));
    canvas.addEventListener("pointerup", (event) => {
      const moved = held?.moved;
      held = null;
      const span = moved ? undefined : spanAt(event);
      if (!span) return;
      const i = found.instruction[span.event];
      store.selectInstruction(i);
      graph.reveal(i);
    });
    canvas.addEventListener("dblclick", (event) => {
      const span = spanAt(event);
      if (!span) return;
      const room = span.seconds * 0.1;
      show(span.start - room, span.start + span.seconds + room);
    });
    canvas.addEventListener("keydown", (event) => {
      const acts: Record<string, () => void> = {
        ArrowLeft: () => move(-0.2),
        ArrowRight: () => move(0.2),
        ArrowUp: () => zoom(STEP),
        ArrowDown: () => zoom(1 / STEP),
        "+": () => zoom(STEP),
        "=": () => zoom(STEP),
        "-": () => zoom(1 / STEP),
        "0": () => show(0, found.seconds),
        Home: () => show(0, to - from),
        End: () => show(found.seconds - (to - from), found.seconds),
      };
      const act = acts[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    });

    const button = (text: string, title: string, onclick: () => void) =>
      h("button", { class: "mini", type: "button", title, onclick }, text);
    element.append(
      h(
        "div",
        { class: "column" },
        h(
          "div",
          { class: "bar-row" },
          h(
            "span",
            null,
            `${format.seconds(found.seconds)} modelled on ${found.hardware}, one step on one device`,
          ),
          button("−", "Zoom out (-)", () => zoom(1 / STEP ** 3)),
          button("+", "Zoom in (+)", () => zoom(STEP ** 3)),
          button("all", "Show the whole step (0)", () => show(0, found.seconds)),
        ),
        box,
        said,
        note(
          "A lower bound: one operation after the other at the chip's peak, transfers beside them. “Waiting” is communication that nothing runs beside.",
        ),
      ),
    );
    /** Brings what was selected elsewhere into view. */
    store.on(
      "selection",
      () => {
        const { kind, index } = store.get("selection");
        const place = kind === "instruction" ? found.place(index) : null;
        if (place && (place.start > to || place.start + found.duration[place.event] < from)) {
          const half = (to - from) / 2;
          show(place.start - half, place.start + half);
        } else draw();
      },
      signal,
    );
    store.on("paint", draw, signal);
    const watch = new ResizeObserver(() => draw());
    watch.observe(box);
    signal.addEventListener("abort", () => watch.disconnect(), { once: true });
    draw();
  },
};
