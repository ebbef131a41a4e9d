/**
 * A list that keeps only the rows on screen in the page; all rows have the same height.
 *
 * A row that stays on screen keeps its element, whatever is redrawn around it, so that a press
 * before and a release after still make a click.
 */
import { h, onFrame } from "../../base/dom.ts";

/** Browsers stop at about 17 million pixels; beyond this the scroll position is scaled. */
const MOST_PIXELS = 12_000_000;

export interface Rows {
  /** Identity of a row: the same key reuses the same element. Keys on screen must be unique. */
  key(row: number): string | number;
  /** Makes the element, without what `refresh` sets. */
  make(row: number): HTMLElement;
  /** Updates what can change while the row stays the same: whether it is chosen, lit, found. */
  refresh?(element: HTMLElement, row: number): void;
}

export interface VirtualList {
  element: HTMLElement;
  /** Redraws with `count` rows. */
  update(count: number): void;
  /** Brings a row to the top. */
  begin(row: number): void;
  /** Brings a row into view, in the middle if it was off screen. */
  show(row: number): void;
}

export function virtualList(
  height: number | (() => number),
  of: Rows,
  signal: AbortSignal,
): VirtualList {
  const heightNow = typeof height === "number" ? () => height : height;
  const rows = h("div", { class: "rows", role: "presentation" });
  const space = h("div", { class: "space", role: "presentation" }, rows);
  const element = h("div", { class: "virtual" }, space);
  let count = 0;
  let scale = 1;
  let drawn = new Map<string | number, HTMLElement>();
  const draw = () => {
    const rowHeight = heightNow();
    const first = element.scrollTop / scale / rowHeight;
    const begin = Math.max(0, Math.floor(first) - 8);
    const end = Math.min(count, Math.ceil(first + element.clientHeight / rowHeight) + 8);
    const wanted = new Map<string | number, number>();
    for (let row = begin; row < end; row++) wanted.set(of.key(row), row);
    // Remove obsolete rows first, so that remaining ones need not be moved.
    for (const [key, gone] of drawn) if (!wanted.has(key)) gone.remove();
    const now: typeof drawn = new Map();
    let at = rows.firstElementChild;
    for (const [key, row] of wanted) {
      const made = drawn.get(key) ?? of.make(row);
      of.refresh?.(made, row);
      if (made === at) at = at.nextElementSibling;
      else rows.insertBefore(made, at);
      now.set(key, made);
    }
    drawn = now;
    // At scale 1 this is begin * rowHeight; otherwise rows stay aligned with the scroll position.
    rows.style.transform = `translateY(${element.scrollTop - (first - begin) * rowHeight}px)`;
  };
  const later = onFrame(draw, signal);
  element.addEventListener("scroll", later, { signal, passive: true });
  const watch = new ResizeObserver(later);
  watch.observe(element);
  signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  return {
    element,
    update(next) {
      count = next;
      const full = count * heightNow();
      scale = full > MOST_PIXELS ? MOST_PIXELS / full : 1;
      space.style.height = `${Math.min(full, MOST_PIXELS)}px`;
      draw();
    },
    begin(row) {
      element.scrollTop = Math.max(0, row * heightNow() * scale);
      draw();
    },
    show(row) {
      const top = row * heightNow() * scale;
      const view = element.clientHeight;
      if (top < element.scrollTop || top + heightNow() > element.scrollTop + view) {
        element.scrollTop = Math.max(0, top - view / 2);
      }
      draw();
    },
  };
}
