/**
 * The instructions of ENTRY in order as a strip, one column per bucket, in the current colouring:
 *
 *     categories: shares stacked          amounts: bars as high as the bucket's largest
 *     ▓▓▒▒░░▓▓▓▓░░▒▒                       ▂▁▇▁▁▃▁█▁▂
 *
 * Clicking selects and jumps, dragging highlights a range, arrow keys step.
 */
import { h, onFrame } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { entryComputation, instructionsOf } from "../../state/members.ts";
import { Flag } from "../../view.ts";
import type { Paint, PanelContext } from "../panel.ts";

export interface Strip {
  element: HTMLElement;
  setPaint(paint: Paint): void;
}

export function strip(ctx: PanelContext): Strip {
  const { model, store, graph, signal } = ctx;
  const entry = entryComputation(model);
  const order = instructionsOf(model, { kind: "computation", index: entry }).filter(
    (i) =>
      !model.has(i, Flag.Inline) && !model.has(i, Flag.Parameter) && !model.has(i, Flag.Plumbing),
  );
  const place = new Map(order.map((i, k) => [i, k]));
  const word = model.header.isScheduled ? "schedule" : "program order";
  const canvas = h("canvas", { "aria-hidden": "true" });
  const track = h(
    "div",
    {
      class: "track",
      tabindex: "0",
      role: "slider",
      "aria-label": `${word} of ENTRY`,
      "aria-valuemin": 1,
      "aria-valuemax": Math.max(1, order.length),
      "aria-valuenow": 1,
      title: "Click to jump, drag to highlight a range",
    },
    canvas,
  );
  const element = h("div", { class: "strip" }, h("span", { class: "what" }, word), track);
  element.hidden = order.length < 2;
  let paint: Paint | null = null;
  let brush: [number, number] | null = null;

  const selectedPlaces = (): [number, number] | null => {
    const selection = store.get("selection");
    if (selection.kind === "none") return null;
    if (selection.kind === "instruction") {
      const k = place.get(selection.index);
      return k === undefined ? null : [k, k];
    }
    let low = Number.POSITIVE_INFINITY;
    let high = -1;
    for (const i of instructionsOf(model, selection)) {
      const k = place.get(i);
      if (k === undefined) continue;
      low = Math.min(low, k);
      high = Math.max(high, k);
    }
    return high < 0 ? null : [low, high];
  };

  const draw = () => {
    const width = Math.round(track.clientWidth);
    const height = Math.round(track.clientHeight);
    if (!paint || !width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const g = canvas.getContext("2d");
    if (!g) return;
    g.scale(ratio, ratio);
    const { index, colors, numeric } = paint;
    // The colour of the stub drawn where nothing is known.
    const unknown = getComputedStyle(track).getPropertyValue("--line").trim();
    const columns = Math.min(order.length, width);
    const counts = new Uint32Array(colors.length);
    // The colour scale extends to the total; the highest bar is the largest single amount.
    let top = 2;
    if (numeric) for (const k of order) top = Math.max(top, index[k]);
    for (let c = 0; c < columns; c++) {
      const begin = Math.floor((c * order.length) / columns);
      const end = Math.floor(((c + 1) * order.length) / columns);
      const x = (c * width) / columns;
      const w = ((c + 1) * width) / columns - x;
      if (numeric) {
        let most = 0;
        for (let k = begin; k < end; k++) most = Math.max(most, index[order[k]]);
        if (most === 1) continue; // 0 is not a bar
        const known = most > 1;
        const tall = known ? Math.max(3, ((most - 1) / (top - 1)) * (height - 2)) : 2;
        g.fillStyle = known ? colors[most] : unknown;
        g.fillRect(x, height - tall, w + 0.3, tall);
        continue;
      }
      counts.fill(0);
      for (let k = begin; k < end; k++) counts[index[order[k]]]++;
      let y = height;
      for (let k = 0; k < counts.length; k++) {
        if (!counts[k]) continue;
        const tall = (counts[k] / (end - begin)) * height;
        y -= tall;
        g.fillStyle = colors[k];
        g.fillRect(x, y, w + 0.3, tall + 0.3);
      }
    }
    const style = getComputedStyle(track);
    const accent = style.getPropertyValue("--accent").trim();
    const text = style.getPropertyValue("--text").trim();
    const at = (k: number) => (k * width) / order.length;
    const lit = store.get("highlight");
    if (lit) {
      g.fillStyle = accent;
      for (let k = 0; k < order.length; k++) {
        if (lit.instructions.has(order[k])) g.fillRect(at(k), 0, Math.max(1, at(1)), 3);
      }
    }
    const mark = (from: number, to: number, color: string) => {
      const x = at(from);
      const w = Math.max(3, at(to + 1) - x);
      g.strokeStyle = color;
      g.lineWidth = 2;
      g.strokeRect(Math.min(width - w - 1, Math.max(1, x)), 1, w, height - 2);
    };
    const selected = selectedPlaces();
    if (selected) mark(selected[0], selected[1], text);
    if (brush) mark(Math.min(...brush), Math.max(...brush), accent);
  };
  const later = onFrame(draw, signal);

  const placeAt = (event: PointerEvent) => {
    const box = track.getBoundingClientRect();
    const k = Math.floor(((event.clientX - box.left) / box.width) * order.length);
    return Math.min(order.length - 1, Math.max(0, k));
  };
  const jump = (k: number) => {
    store.selectInstruction(order[k]);
    graph.reveal(order[k]);
  };
  /** The nearest landmark within two pixels, as that is what people aim at; else the place itself. */
  const near = (k: number) => {
    const reach = Math.ceil((2 * order.length) / Math.max(1, track.clientWidth)) - 1;
    for (let d = 0; d <= reach; d++) {
      for (const m of [k - d, k + d]) {
        if (order[m] !== undefined && model.has(order[m], Flag.Landmark)) return m;
      }
    }
    return k;
  };
  track.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    track.setPointerCapture(event.pointerId);
    const k = placeAt(event);
    brush = [k, k];
    later();
  });
  track.addEventListener("pointermove", (event) => {
    const k = placeAt(event);
    if (brush) {
      brush[1] = k;
      later();
    } else store.hover({ kind: "instruction", index: order[k] });
  });
  track.addEventListener("pointerleave", () => store.hover({ kind: "none", index: -1 }));
  track.addEventListener("pointercancel", () => {
    brush = null;
    later();
  });
  track.addEventListener("pointerup", () => {
    if (!brush) return;
    const [a, b] = [Math.min(...brush), Math.max(...brush)];
    brush = null;
    if (((b - a) * track.clientWidth) / order.length < 4) jump(near(a));
    else {
      const range = order.slice(a, b + 1);
      store.highlight({
        instructions: new Set(range),
        reason: `${word} ${format.count(a + 1)} to ${format.count(b + 1)}`,
      });
    }
    later();
  });
  track.addEventListener("keydown", (event) => {
    const now = selectedPlaces()?.[0] ?? -1;
    const steps: Record<string, number> = {
      ArrowRight: now + 1,
      ArrowUp: now + 1,
      ArrowLeft: now - 1,
      ArrowDown: now - 1,
      Home: 0,
      End: order.length - 1,
      PageUp: now + Math.ceil(order.length / 20),
      PageDown: now - Math.ceil(order.length / 20),
    };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    jump(Math.min(order.length - 1, Math.max(0, to)));
  });
  const onSelect = () => {
    const at = selectedPlaces();
    track.setAttribute("aria-valuenow", String(at ? at[0] + 1 : 1));
    track.setAttribute("aria-valuetext", at ? model.name(order[at[0]]) : "nothing selected");
    later();
  };
  store.on("selection", onSelect, signal);
  store.on("highlight", later, signal);
  const watch = new ResizeObserver(later);
  watch.observe(track);
  signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  onSelect();
  return {
    element,
    setPaint(next) {
      paint = next;
      later();
    },
  };
}
