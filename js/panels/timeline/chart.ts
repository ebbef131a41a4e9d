/** A window of time, zoomed and panned as in a trace viewer; its content is a `Lanes`. */
import { h, onFrame } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { NOTHING } from "../../state/store.ts";
import type { PanelContext } from "../panel.ts";
import { Brush } from "./brush.ts";

const STEP = 1.25;

/** An event that is drawn; times are absolute seconds. */
export interface Mark {
  start: number;
  seconds: number;
  instruction: number; // -1: not of this program
  words: string;
}

/** The content of a chart. Coordinates are CSS pixels of its full height, and seconds. */
export interface Lanes {
  seconds: number;
  /** Description for screen readers. */
  about: string;
  height: number;
  /** Paints the part between `top` and `top` + the span's height. */
  paint(brush: Brush, top: number): void;
  /** The event at a position, as last painted, or null. */
  at(x: number, y: number): Mark | null;
  /** The box of a row of boxes at a position, if there are such rows. */
  boxAt?(
    seconds: number,
    y: number,
  ): { group: number; words: string; start: number; seconds: number } | null;
  /** When an instruction runs; of several events, the one nearest to `near`. */
  place(instruction: number, near: number): { start: number; seconds: number } | null;
}

export interface Chart {
  element: HTMLElement;
  show(from: number, to: number): void;
  zoom(factor: number): void;
  /** Shows other lanes, for example of another device, in the same window of time. */
  change(lanes: Lanes): void;
  all(): void;
}

export function chart(ctx: PanelContext, first: Lanes, said: HTMLElement): Chart {
  const { model, store, graph, signal } = ctx;
  let lanes = first;
  let from = 0;
  let to = first.seconds;
  const canvas = h("canvas", { role: "img", tabindex: "0" });
  const room = h("div", { class: "timeline-room" });
  const box = h("div", { class: "timeline-box" }, canvas, room);
  const hint = "Drag to move, scroll to zoom, double-click to fill the view with one event.";
  said.textContent = hint;
  let [wide, high] = [0, 0];

  const paint = () => {
    if (!(to > from)) return;
    const width = box.clientWidth || 600;
    const height = Math.min(lanes.height, box.clientHeight || lanes.height);
    const ratio = globalThis.devicePixelRatio || 1;
    if (wide !== width * ratio || high !== height * ratio) {
      [wide, high] = [width * ratio, height * ratio];
      canvas.width = Math.round(wide);
      canvas.height = Math.round(high);
      canvas.style.setProperty("width", `${width}px`);
      canvas.style.setProperty("height", `${height}px`);
    }
    const g = canvas.getContext("2d");
    if (!g) return;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    const selection = store.get("selection");
    const selected = selection.kind === "instruction" ? selection.index : -1;
    lanes.paint(new Brush(g, model, { from, to, width, height, selected }), box.scrollTop);
  };
  const draw = onFrame(paint, signal);
  const show = (a: number, b: number) => {
    const width = Math.min(lanes.seconds, Math.max(lanes.seconds * 1e-9, b - a));
    from = Math.min(Math.max(0, a), lanes.seconds - width);
    to = from + width;
    draw();
  };
  const zoom = (factor: number, at = (from + to) / 2) => {
    show(at - (at - from) / factor, at + (to - at) / factor);
  };
  const move = (share: number) => show(from + (to - from) * share, to + (to - from) * share);
  const all = () => show(0, lanes.seconds);
  const change = (next: Lanes) => {
    lanes = next;
    for (const e of [box, room]) e.style.setProperty("height", `${lanes.height}px`);
    canvas.setAttribute(
      "aria-label",
      `${lanes.about}: arrows move, plus and minus zoom, 0 shows all. The tables of Cost, Collectives and Measured have the figures.`,
    );
    show(from, to);
  };
  const markAt = (event: MouseEvent): Mark | null => {
    const rect = canvas.getBoundingClientRect();
    return lanes.at(event.clientX - rect.left, event.clientY - rect.top + box.scrollTop);
  };

  const boxAt = (event: MouseEvent) => {
    const rect = canvas.getBoundingClientRect();
    const share = (event.clientX - rect.left) / Math.max(1, rect.width);
    return (
      lanes.boxAt?.(from + (to - from) * share, event.clientY - rect.top + box.scrollTop) ?? null
    );
  };

  box.addEventListener("scroll", () => draw(), { passive: true });
  canvas.addEventListener(
    "wheel",
    (event) => {
      // Shift scrolls lanes up and down if they do not all fit.
      if (event.shiftKey && lanes.height > box.clientHeight) return;
      event.preventDefault();
      const x = event.clientX - canvas.getBoundingClientRect().left;
      const at = from + ((to - from) * x) / Math.max(1, canvas.clientWidth);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / canvas.clientWidth);
      else zoom(event.deltaY < 0 ? STEP : 1 / STEP, at);
    },
    { passive: false },
  );
  let held: { x: number; y: number; from: number; to: number; top: number; moved: boolean } | null =
    null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held = { x: event.clientX, y: event.clientY, from, to, top: box.scrollTop, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const by = event.clientX - held.x;
      const down = event.clientY - held.y;
      held.moved ||= Math.abs(by) > 3 || Math.abs(down) > 3;
      const shift = ((held.to - held.from) * by) / Math.max(1, canvas.clientWidth);
      if (!held.moved) return;
      box.scrollTop = held.top - down;
      show(held.from - shift, held.to - shift);
      return;
    }
    const mark = markAt(event);
    said.textContent = mark?.words ?? boxAt(event)?.words ?? hint;
    const i = mark?.instruction ?? -1;
    store.hover(i >= 0 ? { kind: "instruction", index: i } : NOTHING);
  });
  canvas.addEventListener("pointerleave", () => store.hover(NOTHING));
  const released = (event: PointerEvent) => {
    const moved = held?.moved;
    held = null;
    const mark = moved ? null : markAt(event);
    const around = moved || mark ? null : boxAt(event);
    if (around && around.group >= 0) {
      store.select({ kind: "group", index: around.group });
      graph.revealGroup(around.group);
    }
    if (!mark || mark.instruction < 0) return;
    store.selectInstruction(mark.instruction);
    graph.reveal(mark.instruction);
  };
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", () => {
    held = null;
  });
  canvas.addEventListener("dblclick", (event) => {
    const mark = markAt(event) ?? boxAt(event);
    if (!mark) return;
    const around = mark.seconds * 0.1;
    show(mark.start - around, mark.start + mark.seconds + around);
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
      "0": all,
      Home: () => show(0, to - from),
      End: () => show(lanes.seconds - (to - from), lanes.seconds),
      PageDown: () => box.scrollBy(0, box.clientHeight * 0.8),
      PageUp: () => box.scrollBy(0, -box.clientHeight * 0.8),
    };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  /** Brings an instruction selected elsewhere into view. */
  store.on(
    "selection",
    () => {
      const { kind, index } = store.get("selection");
      const place = kind === "instruction" ? lanes.place(index, (from + to) / 2) : null;
      if (place && (place.start > to || place.start + place.seconds < from)) {
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
  change(first);
  return { element: box, show, zoom: (factor) => zoom(factor), change, all };
}

/** "%fusion.3 · gelu · 12 µs · begins at 3 ms" */
export function describe(parts: readonly string[], start: number): string {
  return [...parts.filter(Boolean), `begins at ${format.seconds(start)}`].join(" · ");
}
