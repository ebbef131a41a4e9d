/** A strip beside a text that shows where highlighted lines are in all of it; a click goes there. */
import { h, onFrame } from "../../base/dom.ts";

const WIDTH = 10;

export interface Ruler {
  element: HTMLElement;
  draw(): void;
}

export interface Marks {
  /** Number of lines in the whole text. */
  count: number;
  lit: readonly number[];
  pinned: boolean;
  found: readonly number[];
}

export function ruler(marks: () => Marks, go: (line: number) => void, signal: AbortSignal): Ruler {
  const canvas = h("canvas", { width: WIDTH, "aria-hidden": "true" });
  const element = h(
    "div",
    { class: "ruler", title: "Where highlighted lines are; click to go there" },
    canvas,
  );
  const lineAt = (event: MouseEvent) => {
    const { top, height } = element.getBoundingClientRect();
    return Math.floor(((event.clientY - top) / Math.max(1, height)) * marks().count);
  };
  element.addEventListener(
    "click",
    (event) => {
      const at = lineAt(event);
      const { lit, found, count } = marks();
      // A mark is only two pixels high, so a click nearby counts too.
      const reach = (4 / Math.max(1, element.clientHeight)) * count;
      let best = at;
      let nearest = reach;
      for (const line of [...lit, ...found]) {
        const away = Math.abs(line - at);
        if (away <= nearest) {
          nearest = away;
          best = line;
        }
      }
      go(Math.max(0, Math.min(count - 1, best)));
    },
    { signal },
  );
  const draw = onFrame(() => {
    const { count, lit, pinned, found } = marks();
    const height = element.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(WIDTH * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const ink = canvas.getContext("2d");
    if (!ink || !count) return;
    ink.scale(ratio, ratio);
    const style = getComputedStyle(element);
    const paint = (lines: readonly number[], color: string, left: number, width: number) => {
      ink.fillStyle = color;
      let last = -1;
      for (const line of lines) {
        const y = Math.round((line / count) * (height - 2));
        if (y === last) continue;
        ink.fillRect(left, y, width, 2);
        last = y;
      }
    };
    paint(lit, style.getPropertyValue("--accent").trim(), pinned ? 1 : 3, pinned ? 8 : 6);
    paint(found, style.getPropertyValue("--found").trim(), 1, 8);
  }, signal);
  const watch = new ResizeObserver(draw);
  watch.observe(element);
  signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  return { element, draw };
}
