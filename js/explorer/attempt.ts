/** Parts that may fail without taking the others with them, and requests that are made once. */

/** Runs a part; an exception becomes a warning that names the part, and the result null. */
export function attempt<T>(part: string, work: () => T): T | null {
  try {
    return work();
  } catch (error) {
    console.warn(`hloscope: ${part} failed`, error);
    return null;
  }
}

/** The same promise for every caller. A failure is not kept: the next caller tries again. */
export function once<T>(request: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | null = null;
  return () => {
    if (!made) {
      made = request();
      made.catch(() => {
        made = null;
      });
    }
    return made;
  };
}

/** Runs `work` once a picture has been painted; in a hidden tab, after a short while. */
export function afterPaint(work: () => void, signal: AbortSignal): void {
  let begun = false;
  const begin = () => {
    if (!begun && !signal.aborted) work();
    begun = true;
  };
  requestAnimationFrame(() => setTimeout(begin, 0));
  setTimeout(begin, 300);
}
