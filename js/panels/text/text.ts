/** The HLO text, linked with the graph both ways. Only lines on screen are in the page. */
import { copyText, fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { computationByName, entryComputation, instructionByName } from "../../state/members.ts";
import { NOTHING } from "../../state/store.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { note } from "../parts/parts.ts";
import { TextLines } from "../parts/text/lines.ts";
import { tokens } from "../parts/text/tokens.ts";
import { virtualList } from "../parts/virtual.ts";

const ROW = 19;
/** A constant's line can have a million characters, which no page displays well. */
const LONGEST = 3000;
const MOST_FOUND = 5000;

export const hloText: Panel = {
  id: "text",
  title: "Text",
  fills: true,
  width: 0.5,
  available: () => true,
  render(element, ctx) {
    fill(element, note("Loading text…"));
    ctx
      .text()
      .then((text) => {
        if (!ctx.signal.aborted) show(element, ctx, new TextLines(text));
      })
      .catch((error: Error) => {
        if (ctx.signal.aborted) return;
        fill(
          element,
          note(`The text is missing: ${error.message}`),
          h("button", { type: "button", onclick: () => hloText.render(element, ctx) }, "Try again"),
        );
      });
  },
};

function show(element: HTMLElement, ctx: PanelContext, lines: TextLines): void {
  const { model, store, graph, signal } = ctx;
  let current = -1;
  let found: number[] = [];
  let foundSet = new Set<number>();
  let at = -1;
  let needle = "";

  const named = (name: string) => {
    const i = instructionByName(model).get(name);
    if (i !== undefined) return () => pick(i);
    const c = computationByName(model).get(name);
    if (c !== undefined) return () => store.select({ kind: "computation", index: c });
    return null;
  };
  const pick = (i: number) => {
    store.selectInstruction(i);
    graph.reveal(i);
  };
  const code = (line: string) => {
    const clipped = line.length > LONGEST;
    const parts = tokens(clipped ? line.slice(0, LONGEST) : line).map(([kind, text]) => {
      if (kind === "plain") return text;
      const jump = kind === "name" ? named(text.slice(1)) : null;
      return h(
        "span",
        {
          class: jump ? "t-name jump" : `t-${kind}`,
          onclick: jump
            ? (event) => {
                event.stopPropagation();
                jump();
              }
            : undefined,
        },
        text,
      );
    });
    if (clipped)
      parts.push(h("span", { class: "dim" }, ` … ${format.count(line.length - LONGEST)} more`));
    return parts;
  };
  const digits = String(lines.count).length;
  const make = (k: number) => {
    const i = lines.instruction(k);
    return h(
      "div",
      {
        class: "text-line",
        onclick: () => {
          // A drag that selects text is not a click on the line.
          if (i >= 0 && !String(document.getSelection() ?? "")) pick(i);
        },
        onpointerenter: () => i >= 0 && store.hover({ kind: "instruction", index: i }),
      },
      h("span", { class: "number", style: { width: `${digits}ch` } }, k + 1),
      h("code", null, ...code(lines.line(k))),
    );
  };
  const refresh = (line: HTMLElement, k: number) => {
    const i = lines.instruction(k);
    line.classList.toggle("chosen", k === current);
    line.classList.toggle("found", foundSet.has(k));
    line.classList.toggle("lit", i >= 0 && Boolean(store.get("highlight")?.instructions.has(i)));
  };
  const list = virtualList(ROW, { key: (k) => k, make, refresh }, signal);
  list.element.classList.add("text");
  list.element.tabIndex = 0;
  list.element.addEventListener("pointerleave", () => store.hover(NOTHING));
  list.element.setAttribute("role", "region");
  list.element.setAttribute("aria-label", "HLO text");

  const status = h("span", { class: "note", role: "status" });
  const goTo = (k: number) => {
    at = k;
    current = found[k];
    status.textContent = `${format.count(k + 1)} of ${found.length >= MOST_FOUND ? "more than " : ""}${format.count(found.length)}`;
    list.show(current);
    const i = lines.instruction(current);
    if (i >= 0) store.selectInstruction(i);
  };
  let running: AbortController | null = null;
  const find = async () => {
    running?.abort();
    running = new AbortController();
    const mine = running;
    needle = input.value;
    found = needle ? await lines.find(needle, MOST_FOUND, mine.signal) : [];
    if (mine.signal.aborted) return;
    foundSet = new Set(found);
    at = -1;
    status.textContent = !needle
      ? ""
      : found.length
        ? `${format.count(found.length)} lines`
        : "not found";
    list.update(lines.count);
    const next = found.findIndex((k) => k >= Math.max(0, current));
    if (found.length) list.show(found[Math.max(0, next)]);
  };
  const input = h("input", {
    type: "search",
    class: "find",
    placeholder: "Find in text",
    "aria-label": "Find in text",
    oninput: find,
    onkeydown: async (event) => {
      if (event.key !== "Enter") return;
      if (needle !== input.value) await find();
      if (found.length) goTo((at + (event.shiftKey ? -1 : 1) + found.length) % found.length);
    },
  });
  const copy = h(
    "button",
    {
      class: "mini",
      type: "button",
      onclick: async () => {
        if (current < 0) return;
        copy.textContent = (await copyText(lines.line(current).trim())) ? "copied" : "failed";
        setTimeout(() => {
          copy.textContent = "copy line";
        }, 1200);
      },
    },
    "copy line",
  );
  fill(
    element,
    h(
      "div",
      { class: "column" },
      h("div", { class: "bar-row" }, input, status, copy),
      list.element,
    ),
  );
  const follow = () => {
    const { kind, index } = store.get("selection");
    if (kind === "instruction") {
      const line = lines.lineOfInstruction(index);
      if (line >= 0) current = line;
    } else if (kind === "computation") {
      const offset = lines.text.computationBegin[index];
      if (offset !== undefined && offset !== 0xffffffff) current = lines.lineOf(offset);
    }
    if (kind === "none") current = -1;
    copy.disabled = current < 0;
    list.update(lines.count);
    if (current >= 0) list.show(current);
  };
  // Start at ENTRY: tables of files and frames can fill whole screens above it.
  const entry = lines.text.computationBegin[entryComputation(model)];
  if (store.get("selection").kind === "none" && entry !== undefined && entry !== 0xffffffff) {
    requestAnimationFrame(() => {
      if (!signal.aborted && current < 0) list.begin(lines.lineOf(entry) - 1);
    });
  }
  store.on("selection", follow, signal);
  store.on("highlight", () => list.update(lines.count), signal);
  signal.addEventListener("abort", () => running?.abort(), { once: true });
  follow();
}
