/** What `run.py` measures inside the browser. */
import { decodeView, type ViewModel } from "../../js/base/model.ts";
import { createGraphPane, type GraphPane, LIGHT } from "../../js/draw/graph-pane.ts";
import { Store } from "../../js/state/store.ts";
import { buildModel, transformer } from "../../tests/js/fixtures.ts";

const element = document.getElementById("graph") as HTMLElement;
let pane: GraphPane;
let current: ViewModel;
let life: AbortController | null = null;

const frame = (): Promise<number> => new Promise((done) => requestAnimationFrame(done));
const heap = (): number =>
  (performance as unknown as { memory: { usedJSHeapSize: number } }).memory.usedJSHeapSize;

function show(model: ViewModel): void {
  life?.abort();
  element.replaceChildren();
  life = new AbortController();
  pane = createGraphPane(element, model, new Store(model), LIGHT, life.signal);
}

function quantile(values: number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}

/** From gzip'd bytes to pixels on the canvas. */
async function firstPicture(base64: string): Promise<Record<string, number>> {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  await frame();
  const before = heap();
  const begin = performance.now();
  const model = await decodeView(bytes);
  const decoded = performance.now();
  show(model);
  const drawn = performance.now();
  await frame();
  const { boxes, containers } = pane.stats();
  return {
    instructions: model.instruction.count,
    decode: decoded - begin,
    picture: drawn - decoded,
    total: performance.now() - begin,
    boxes: boxes + containers,
    heap: heap() - before,
  };
}

/** Opens and closes groups that are on the picture; milliseconds until the new picture is drawn. */
async function openings(count: number): Promise<Record<string, number>> {
  const model = current;
  const times: number[] = [];
  let state = 1;
  for (let k = 0; k < count; k++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const target = { kind: "group" as const, index: state % model.group.count };
    if (!pane.canOpen(target)) continue;
    const begin = performance.now();
    pane.toggle(target);
    const { frames } = pane.stats();
    while (pane.stats().frames === frames) await frame();
    times.push(performance.now() - begin);
    if (pane.stats().boxes > 2000) pane.openDefault();
    // The transition plays out before the next one.
    await new Promise((done) => setTimeout(done, 320));
  }
  return { runs: times.length, median: quantile(times, 0.5), p95: quantile(times, 0.95) };
}
async function drive(scale: number | null): Promise<Record<string, number>> {
  const canvas = element.querySelector("canvas") as HTMLCanvasElement;
  pane.fit();
  await new Promise((done) => setTimeout(done, 400));
  if (scale !== null) pane.zoom(scale / pane.stats().scale);
  await frame();
  const gaps: number[] = [];
  const script: number[] = [];
  let last = await frame();
  for (let k = 0; k < 120; k++) {
    // Small steps with a sideways part are two fingers panning; with Ctrl they pinch.
    const pinch = k % 40 >= 30;
    const side = k % 80 < 40 ? 1 : -1;
    canvas.dispatchEvent(
      new WheelEvent("wheel", {
        deltaX: pinch ? 0 : 9 * side,
        deltaY: pinch ? 2 * side : 7 * side,
        ctrlKey: pinch,
        clientX: 500,
        clientY: 300,
        bubbles: true,
        cancelable: true,
      }),
    );
    const now = await frame();
    gaps.push(now - last);
    script.push(pane.stats().frameMs);
    last = now;
  }
  return {
    scale: pane.stats().scale,
    median: quantile(gaps, 0.5),
    p95: quantile(gaps, 0.95),
    script: quantile(script, 0.5),
  };
}

async function frames(): Promise<Record<string, unknown>> {
  const model = buildModel(transformer(500, 100));
  const before = heap();
  show(model);
  const begin = performance.now();
  pane.openAll(1_000_000);
  await frame();
  const opened = performance.now() - begin;
  const { boxes, containers } = pane.stats();
  return {
    boxes: boxes + containers,
    opened,
    heap: heap() - before,
    fit: await drive(null),
    far: await drive(0.05),
    middle: await drive(0.4),
    near: await drive(1.2),
  };
}

Object.assign(window, {
  bench: {
    async first(base64: string) {
      const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
      current = await decodeView(bytes);
      return firstPicture(base64);
    },
    openings,
    frames,
  },
});
