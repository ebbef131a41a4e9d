/** Pointer, wheel and touch events on the canvas, translated into gestures. */

export interface Gestures {
  pan(dx: number, dy: number): void;
  zoom(x: number, y: number, factor: number): void;
  hover(x: number, y: number): void;
  leave(): void;
  click(x: number, y: number, event: PointerEvent): void;
  doubleClick(x: number, y: number): void;
}

/** A pointer that moved less than this, in pixels, has clicked. */
const SLOP = 4;
/** A page that scrolls under the pointer keeps scrolling for this long, in milliseconds. */
const SCROLL_MEMORY = 350;

export function listen(canvas: HTMLCanvasElement, to: Gestures, signal: AbortSignal): void {
  const at = (event: MouseEvent): [number, number] => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const down = new Map<number, { x: number; y: number }>();
  let travelled = 0;
  let spread = 0;

  canvas.addEventListener(
    "pointerdown",
    (event) => {
      if (event.button > 1) return;
      canvas.setPointerCapture(event.pointerId);
      const [x, y] = at(event);
      down.set(event.pointerId, { x, y });
      if (down.size === 1) travelled = 0;
      spread = pinchSpread(down);
      // The focus ring is for the keyboard; a click does not need it.
      canvas.style.outline = "none";
      canvas.focus({ preventScroll: true });
    },
    { signal },
  );
  for (const type of ["blur", "keydown"]) {
    canvas.addEventListener(type, () => canvas.style.removeProperty("outline"), { signal });
  }
  canvas.addEventListener(
    "pointermove",
    (event) => {
      const [x, y] = at(event);
      const from = down.get(event.pointerId);
      scrolledOutside = 0;
      if (!from) {
        to.hover(x, y);
        return;
      }
      const dx = x - from.x;
      const dy = y - from.y;
      down.set(event.pointerId, { x, y });
      travelled += Math.abs(dx) + Math.abs(dy);
      if (travelled < SLOP && down.size === 1) {
        // Not a drag yet; once it is, the distance travelled so far is included.
        down.set(event.pointerId, from);
        travelled = Math.abs(dx) + Math.abs(dy);
        if (travelled < SLOP) return;
        down.set(event.pointerId, { x, y });
      }
      if (down.size === 2) {
        const now = pinchSpread(down);
        const [a, b] = [...down.values()];
        to.pan(-dx / 2, -dy / 2);
        if (spread > 0) to.zoom((a.x + b.x) / 2, (a.y + b.y) / 2, now / spread);
        spread = now;
      } else {
        canvas.style.cursor = "grabbing";
        to.pan(-dx, -dy);
      }
    },
    { signal },
  );
  const up = (event: PointerEvent): void => {
    const clicked = down.delete(event.pointerId) && travelled < SLOP && down.size === 0;
    spread = pinchSpread(down);
    canvas.style.cursor = "default";
    if (clicked && event.type === "pointerup" && event.button === 0) {
      const [x, y] = at(event);
      to.click(x, y, event);
    }
  };
  canvas.addEventListener("pointerup", up, { signal });
  canvas.addEventListener("pointercancel", up, { signal });
  canvas.addEventListener("pointerleave", () => to.leave(), { signal });
  canvas.addEventListener(
    "dblclick",
    (event) => {
      const [x, y] = at(event);
      to.doubleClick(x, y);
      event.preventDefault();
    },
    { signal },
  );

  // Scrolling a page must not stop because a graph comes under the pointer: a wheel movement that
  // began elsewhere belongs to the page until it pauses or the pointer moves.
  let scrolledOutside = 0;
  addEventListener(
    "wheel",
    (event) => {
      if (!event.composedPath().includes(canvas)) scrolledOutside = event.timeStamp;
    },
    { signal, passive: true, capture: true },
  );
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (scrolledOutside > 0 && event.timeStamp - scrolledOutside < SCROLL_MEMORY) {
        scrolledOutside = event.timeStamp;
        return;
      }
      event.preventDefault();
      const [x, y] = at(event);
      const lines = event.deltaMode === 1 ? 30 : event.deltaMode === 2 ? 400 : 1;
      const dx = event.deltaX * lines;
      const dy = event.deltaY * lines;
      if (event.ctrlKey || event.metaKey) {
        to.zoom(x, y, Math.exp(-Math.max(-60, Math.min(60, dy)) * 0.01));
      } else if (event.shiftKey) to.pan(dx || dy, dx ? dy : 0);
      // A wheel turns in large vertical steps; two fingers move in small ones, and sideways too.
      else if (dx === 0 && (event.deltaMode !== 0 || Math.abs(dy) >= 50)) {
        to.zoom(x, y, Math.exp(-Math.max(-240, Math.min(240, dy)) * 0.0018));
      } else to.pan(dx, dy);
    },
    { signal, passive: false },
  );
}

function pinchSpread(down: Map<number, { x: number; y: number }>): number {
  if (down.size !== 2) return 0;
  const [a, b] = [...down.values()];
  return Math.hypot(a.x - b.x, a.y - b.y);
}
