/**
 * Redrawing waits while the pointer is down: it could replace the pressed element, and no click
 * is fired if that element is gone at the release.
 */

/** Touch fires its click shortly after the release. */
const AFTER_MS = 60;

export type WhenReleased = (work: () => void) => void;

/** Runs `work` at once, or after the release of a press that began in `root`. */
export function whenReleased(root: HTMLElement, signal: AbortSignal): WhenReleased {
  const waiting = new Set<() => void>();
  let pressed = false;
  const release = () => {
    if (!pressed) return;
    pressed = false;
    if (waiting.size) setTimeout(run, AFTER_MS);
  };
  const run = () => {
    if (pressed || signal.aborted) return; // pressed again: wait for the next release
    for (const work of waiting) queueMicrotask(work); // if one throws, the others still run
    waiting.clear();
  };
  root.addEventListener(
    "pointerdown",
    (event) => {
      // The drop-down of a <select> swallows the release; nor is it redrawn.
      const inList = event.composedPath().some((e) => e instanceof HTMLSelectElement);
      if (event.button === 0 && !inList) pressed = true;
    },
    { signal, capture: true },
  );
  const options = { signal, capture: true };
  for (const type of ["pointerup", "pointercancel", "contextmenu", "dragend"] as const) {
    window.addEventListener(type, release, options);
  }
  window.addEventListener("blur", (e) => e.target === window && release(), options);
  // A release that was not reported: outside the window, or over another frame.
  window.addEventListener("pointermove", (e) => e.buttons === 0 && release(), options);
  return (work) => {
    if (pressed || waiting.size) waiting.add(work);
    else work();
  };
}
