/** Creates elements. Text goes in as text nodes only: names from programs are data, never markup. */

export type Child = Node | string | number | null | undefined | false;

type Handlers = {
  [K in keyof HTMLElementEventMap as `on${K}`]?: (event: HTMLElementEventMap[K]) => void;
};

export interface Props extends Handlers {
  class?: string;
  /** Set through CSSOM, which works even where the page's CSP forbids inline styles. */
  style?: Record<string, string>;
  [attribute: string]: unknown;
}

function apply(element: Element, props: Props | null): void {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "style") {
      const style = (element as HTMLElement).style;
      for (const [name, text] of Object.entries(value as Record<string, string>)) {
        style.setProperty(name, text);
      }
    } else if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value as EventListener);
    } else {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props?: Props | null,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, props ?? null);
  add(element, children);
  return element;
}

export function svg(tag: string, props?: Props | null, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(element, props ?? null);
  add(element, children);
  return element;
}

export function add(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === "number" ? String(child) : child);
  }
}

/** Replaces the children. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  add(element, children);
}

/** Returns a function that runs `work` once on the next frame, however often it is called before. */
export function onFrame(work: () => void, signal?: AbortSignal): () => void {
  let asked = 0;
  signal?.addEventListener("abort", () => cancelAnimationFrame(asked), { once: true });
  return () => {
    if (asked || signal?.aborted) return;
    asked = requestAnimationFrame(() => {
      asked = 0;
      work();
    });
  };
}

/** Copies text; sandboxed frames have no clipboard API, so there is a fallback. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", {
      "aria-hidden": "true",
      style: { position: "fixed", top: "-99px" },
    });
    area.value = text;
    const before = document.activeElement as HTMLElement | null;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus();
    return done;
  }
}

/** Offers `data` for download as a file of that name. */
export function saveFile(name: string, data: BlobPart, type: string): void {
  const url = URL.createObjectURL(new Blob([data], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
