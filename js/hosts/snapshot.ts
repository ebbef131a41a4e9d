/** The explorer of a saved page: one script and data blocks in the page, with no network access. */

import { mount } from "../mount.ts";
import type { Host, Mounted, Options, Selection } from "../view.ts";
import { mostChanged, partner, running, together } from "./beside.ts";
import { placed } from "./saved-page.ts";

type WithFromBase64 = typeof Uint8Array & { fromBase64?(text: string): Uint8Array };

function fromBase64(text: string): Uint8Array {
  const native = (Uint8Array as WithFromBase64).fromBase64;
  if (native) return native.call(Uint8Array, text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  return bytes;
}

function block(id: string, missing: string): Uint8Array {
  const text = document.getElementById(id)?.textContent?.trim();
  if (!text) throw new Error(missing);
  return fromBase64(text);
}

/** Figures for other chips that the page was saved with; a page of two programs has none. */
function savedChips(suffix: string): Pick<Host, "chips" | "chip"> {
  const blocks = new Map<string, Element>();
  for (const script of suffix ? [] : document.querySelectorAll("script[data-chip]")) {
    blocks.set((script as HTMLElement).dataset.chip ?? "", script);
  }
  return {
    chips: [...blocks.keys()],
    async chip(id) {
      const text = blocks.get(id)?.textContent?.trim();
      if (!text) throw new Error("this page was saved without them.");
      return fromBase64(text);
    },
  };
}

/** One explorer of the page. The ids of blocks of a second one beside it end in "-other". */
function open(element: HTMLElement, suffix: string, more: Partial<Host>): Mounted {
  const options = JSON.parse(element.dataset.options || "{}") as Partial<Options>;
  const noStages = element.dataset.noStages || "this page was saved without them.";
  const noText = element.dataset.noText || "this page was saved without it.";
  const host: Host = {
    options: { ...options, height: 0 },
    fileName: element.dataset.name,
    async view() {
      return block(`hloscope-view${suffix}`, "This page has no data: it was cut off or edited.");
    },
    async analyses() {
      const missing = element.dataset.noAnalyses || "this page was saved without them.";
      return block(`hloscope-analyses${suffix}`, missing);
    },
    ...savedChips(suffix),
    async text() {
      return block(`hloscope-text${suffix}`, noText);
    },
    async stages() {
      return block(`hloscope-stages${suffix}`, noStages);
    },
    // The user's place is kept only if the page has a single explorer.
    ...(document.getElementById("hloscope-second") ? {} : placed(element)),
    ...more,
  };
  const noPasses = element.dataset.noPasses;
  if (noPasses || document.getElementById("hloscope-passes")) {
    host.passes = async (events) => {
      events.ended("");
      return block("hloscope-passes", noPasses || "this page was saved without them.");
    };
  }
  element.replaceChildren();
  return mount(element, host);
}

/** Two programs side by side: selecting in one selects the counterpart in the other. */
function beside(first: HTMLElement, second: HTMLElement): void {
  const sides = [first, second];
  const sent: (Selection | null)[] = [null, null];
  const follow = (from: number) => (selection: Selection) => {
    const asked = sent[from];
    sent[from] = null;
    // A selection that came from the other side is not sent back.
    if (asked?.kind === selection.kind && asked.index === selection.index) return;
    const there = partner(sides[from], sides[1 - from], selection);
    if (!there) return;
    sent[1 - from] = there;
    mounted[1 - from].select(there);
  };
  const mounted = [
    open(first, "", { onSelect: follow(0) }),
    open(second, "-other", { onSelect: follow(1), bare: true }),
  ];
  // Both pictures start at the change that costs the most.
  const begin = () => {
    const explorer = running(second);
    const index = explorer ? mostChanged(explorer.model) : -1;
    if (index >= 0) mounted[1].select({ kind: "instruction", index });
    return explorer?.model.optional("diff.of") != null;
  };
  const waiting = setInterval(() => {
    const [a, b] = [running(first), running(second)];
    if (!a?.model.optional("diff.pair") || !b || !begin()) return;
    clearInterval(waiting);
    together([a, b], (side, selection) => partner(sides[side], sides[1 - side], selection));
  }, 200);
  // The lists beside the pictures name instructions of either side.
  document.addEventListener("click", (event) => {
    const row = event.target instanceof Element ? event.target.closest("[data-side]") : null;
    if (!(row instanceof HTMLElement)) return;
    const side = row.dataset.side === "second" ? 1 : 0;
    const index = Number(row.dataset.instruction);
    const explorer = running(sides[side]);
    if (!explorer || !(index >= 0 && index < explorer.model.instruction.count)) return;
    const selection: Selection = { kind: "instruction", index };
    mounted[side].select(selection); // the other side follows
  });
}

export function start(): void {
  const element = document.getElementById("hloscope");
  if (!element) return;
  const other = document.getElementById("hloscope-second");
  if (other) beside(element, other);
  else open(element, "", {});
  // The page is nothing but the explorer, so keys work before anything in it is clicked.
  document.addEventListener("keydown", (event) => {
    if (event.target !== document.body) return;
    const root = element.shadowRoot?.querySelector(".root");
    const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
    const copy = new KeyboardEvent("keydown", {
      key,
      ctrlKey,
      metaKey,
      altKey,
      shiftKey,
      cancelable: true,
    });
    if (root && !root.dispatchEvent(copy)) event.preventDefault();
  });
}
