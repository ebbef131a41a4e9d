/** Live bytes over the schedule with the peak marked; a click or arrow keys pick a point. */
import { h, svg } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Memory } from "../../state/memory.ts";

const HEIGHT = 150;
const LEFT = 62;
const TOP = 12;
const BOTTOM = 20;
const THUMB = 16; // approximate width of the slider's thumb

export interface Timeline {
  element: HTMLElement;
  /** Moves the marker. */
  show(point: number): void;
}

/** Highest value of each of `columns` equal parts. */
export function highest(values: Float64Array, columns: number): Float64Array {
  const out = new Float64Array(Math.min(columns, values.length));
  for (let k = 0; k < out.length; k++) {
    const begin = Math.floor((k * values.length) / out.length);
    const end = Math.max(begin + 1, Math.floor(((k + 1) * values.length) / out.length));
    let most = 0;
    for (let i = begin; i < end; i++) if (values[i] > most) most = values[i];
    out[k] = most;
  }
  return out;
}

export function timeline(memory: Memory, width: number, pick: (point: number) => void): Timeline {
  const { live, extras } = memory;
  const n = live.length;
  const points = highest(live, width - LEFT);
  const most = Math.max(1, ...points);
  const bottom = HEIGHT - BOTTOM;
  const x = (k: number) => LEFT + (k / Math.max(1, points.length)) * (width - LEFT);
  const xOf = (point: number) => LEFT + ((point + 0.5) / Math.max(1, n)) * (width - LEFT);
  const y = (v: number) => bottom - (v / most) * (bottom - TOP);
  let path = `M${LEFT},${bottom}`;
  points.forEach((v, k) => {
    path += `L${x(k).toFixed(1)},${y(v).toFixed(1)}L${x(k + 1).toFixed(1)},${y(v).toFixed(1)}`;
  });
  path += `L${width},${bottom}Z`;
  const marker = svg("line", { class: "marker", y1: TOP - 6, y2: bottom });
  const grid = [0, 0.5, 1].flatMap((part) => [
    svg("line", {
      class: "grid",
      x1: LEFT,
      x2: width,
      y1: y(most * part),
      y2: y(most * part),
    }),
    svg(
      "text",
      { x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" },
      format.bytes(most * part),
    ),
  ]);
  const picture = svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" },
    ...grid,
    svg("path", { class: "area", d: path }),
    svg("path", {
      class: "peak",
      d: `M${xOf(extras.peakPoint)},${y(most) - 1}l-5,-8h10z`,
    }),
    svg("text", { x: LEFT, y: HEIGHT - 5 }, "start of the schedule"),
    svg("text", { x: width, y: HEIGHT - 5, "text-anchor": "end" }, "end"),
    marker,
  );
  const slider = h("input", {
    type: "range",
    min: 0,
    max: Math.max(0, n - 1),
    step: 1,
    "aria-label": "Position in the schedule",
    // aligned with the plot's axis, so that the thumb is below the marker
    style: {
      "margin-left": `${((100 * (LEFT - THUMB / 2)) / width).toFixed(2)}%`,
      width: `${((100 * (width - LEFT + THUMB)) / width).toFixed(2)}%`,
    },
    oninput: () => pick(Number(slider.value)),
  });
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    pick(Math.min(n - 1, Math.max(0, Math.floor(((at - LEFT) / (width - LEFT)) * n))));
  });
  return {
    element: h("div", { class: "timeline" }, picture as unknown as HTMLElement, slider),
    show(point) {
      marker.setAttribute("x1", String(xOf(point)));
      marker.setAttribute("x2", String(xOf(point)));
      slider.value = String(point);
    },
  };
}
