/**
 * The data blocks of a saved output. Its text/html is an <iframe srcdoc> whose page has them as
 *
 *     <script type="application/octet-stream;base64" id="hloscope-view">…</script>
 *
 * The markup is only parsed, by DOMParser, into documents that are never shown: nothing in
 * them runs, loads or is copied into the page. Only bytes leave this module.
 */
export interface SavedData {
  view: Uint8Array;
  analyses: Uint8Array | null;
  /** Figures on other chips, by id. */
  chips: Map<string, Uint8Array>;
  text: Uint8Array | null;
  stages: Uint8Array | null;
  /** Why there is no text. */
  noText: string;
  /** Why there are no texts of other stages. */
  noStages: string;
  /** Why there are no analyses. */
  noAnalyses: string;
  name: string | undefined;
}

export class NoSavedData extends Error {}

/** Whether the output has the view, the analyses and the text. */
export function isComplete(html: string): boolean {
  try {
    const { analyses, text } = savedData(html);
    return analyses !== null && text !== null;
  } catch {
    return false;
  }
}

/** The page in the frame of a saved output. */
export function savedPage(html: string): string {
  const frame = parse(html).querySelector("iframe[srcdoc]")?.getAttribute("srcdoc");
  if (!frame) throw new NoSavedData("This output was saved without its page. Run the cell again.");
  return frame;
}

export function savedData(html: string): SavedData {
  const outer = parse(html);
  const frame = outer.querySelector("iframe[srcdoc]")?.getAttribute("srcdoc");
  const page = frame ? parse(frame) : outer;
  const view = block(page, "hloscope-view");
  if (!view) throw new NoSavedData("This output was saved without its view. Run the cell again.");
  const about = page.getElementById("hloscope")?.dataset;
  return {
    view,
    analyses: block(page, "hloscope-analyses"),
    chips: chipsOf(page),
    text: block(page, "hloscope-text"),
    stages: block(page, "hloscope-stages"),
    noText: about?.noText || "this output was saved without it.",
    noStages: about?.noStages || "this output was saved without them.",
    noAnalyses: about?.noAnalyses || "this output was saved without them.",
    name: about?.name,
  };
}

/** The text/html of an output's data, which files keep as lines. */
export function htmlIn(data: Readonly<Record<string, unknown>>): string {
  const html = data["text/html"];
  return Array.isArray(html) ? html.join("") : String(html ?? "");
}

/**
 * The markup of a block within its output. Quotes are escaped in the attribute that is the page,
 * "<" and ">" are not, and base64 has none of them.
 */
const markupOf = (id: string) =>
  new RegExp(
    `(<script type=(?:"|&quot;)application/octet-stream;base64(?:"|&quot;) ` +
      `id=(?:"|&quot;)${id}(?:"|&quot;)>)[A-Za-z0-9+/=]*</script>`,
  );
const ANALYSES = markupOf("hloscope-analyses");
const VIEW = markupOf("hloscope-view");

/** The same output with these analyses; as it is where it has no view, such as a summary. */
export function withAnalyses(html: string, analyses: Uint8Array): string {
  const made = base64(analyses);
  if (ANALYSES.test(html)) return html.replace(ANALYSES, (_, start) => `${start}${made}</script>`);
  return html.replace(VIEW, (view, start: string) => {
    const own = start.replace("hloscope-view", "hloscope-analyses");
    return `${view}\n${own}${made}</script>`;
  });
}

/** The output apart from its analyses. */
export function withoutAnalyses(html: string): string {
  return html.replace(ANALYSES, "");
}

function base64(bytes: Uint8Array): string {
  let raw = "";
  const part = 0x8000; // arguments of one call
  for (let k = 0; k < bytes.length; k += part) {
    raw += String.fromCharCode(...bytes.subarray(k, k + part));
  }
  return btoa(raw);
}

function parse(html: string): Document {
  return new DOMParser().parseFromString(html, "text/html");
}

function chipsOf(page: Document): Map<string, Uint8Array> {
  const found = new Map<string, Uint8Array>();
  for (const element of page.querySelectorAll("script[data-chip]")) {
    const bytes = bytesIn(element);
    if (bytes) found.set((element as HTMLElement).dataset.chip ?? "", bytes);
  }
  return found;
}

const block = (page: Document, id: string): Uint8Array | null => bytesIn(page.getElementById(id));

function bytesIn(element: Element | null): Uint8Array | null {
  if (element?.getAttribute("type") !== "application/octet-stream;base64") return null;
  try {
    const raw = atob(element.textContent ?? "");
    const bytes = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
    return bytes;
  } catch {
    return null; // not base64
  }
}
