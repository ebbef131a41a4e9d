/** The explorer of a saved page: one script, data blocks in the page, no network. */
import { mount } from "./mount.ts";
import { placed } from "./saved-page.ts";
import type { Host, Options } from "./view.ts";

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

function start(): void {
  const element = document.getElementById("hloscope");
  if (!element) return;
  const options = JSON.parse(element.dataset.options || "{}") as Partial<Options>;
  const noStages = element.dataset.noStages || "this page was saved without them.";
  const noText = element.dataset.noText || "this page was saved without it.";
  const host: Host = {
    options: { ...options, height: 0 },
    fileName: element.dataset.name,
    async view() {
      return block("hloscope-view", "This page has no data: it was cut off or edited.");
    },
    async analyses() {
      const missing = element.dataset.noAnalyses || "this page was saved without them.";
      return block("hloscope-analyses", missing);
    },
    async text() {
      return block("hloscope-text", noText);
    },
    async stages() {
      return block("hloscope-stages", noStages);
    },
    ...placed(element),
  };
  const noPasses = element.dataset.noPasses;
  if (noPasses || document.getElementById("hloscope-passes")) {
    host.passes = async (events) => {
      events.ended("");
      return block("hloscope-passes", noPasses || "this page was saved without them.");
    };
  }
  element.replaceChildren();
  mount(element, host);
  // A page is all explorer: keys work before anything in it was clicked.
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

start();
