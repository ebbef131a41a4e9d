/** A canvas that panels paint on: sharp on any screen, and repainted when the theme changes. */
import { h, type Props } from "../../base/dom.ts";
import { type Ink, inkOf } from "../../theme/inks.ts";

export interface Painting {
  canvas: HTMLCanvasElement;
  /** Paints now, at the current size. */
  draw(): void;
  /** Position of an event on the canvas, in CSS pixels. */
  at(event: MouseEvent): [x: number, y: number];
}

export const FONT = "11px system-ui, sans-serif";

/** `size` is in CSS pixels, and so are coordinates in `paint`. It first paints in the next frame. */
export function painting(
  attributes: Props,
  size: () => readonly [width: number, height: number],
  paint: (g: CanvasRenderingContext2D, ink: Ink) => void,
  signal: AbortSignal,
): Painting {
  const canvas = h("canvas", { role: "img", ...attributes });
  const draw = () => {
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = size();
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.setProperty("width", `${width}px`);
    canvas.style.setProperty("height", `${height}px`);
    const g = canvas.getContext("2d");
    if (!g) return;
    g.scale(ratio, ratio);
    g.font = FONT;
    g.textBaseline = "middle";
    paint(g, inkOf(isDark(canvas)));
  };
  requestAnimationFrame(() => {
    const root = canvas.closest(".root");
    if (signal.aborted || !root) return;
    draw();
    const watch = new MutationObserver(() => {
      if (canvas.isConnected) draw();
      else watch.disconnect(); // it has been replaced, by another panel or another array
    });
    watch.observe(root, { attributes: true, attributeFilter: ["class"] });
    signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  });
  return {
    canvas,
    draw,
    at(event) {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    },
  };
}

function isDark(element: Element): boolean {
  return element.closest(".root")?.classList.contains("dark") ?? false;
}
