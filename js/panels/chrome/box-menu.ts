/** What a box offers on a right click, Shift+F10 or the menu key. */
import { copyText, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { TextModel, ViewModel } from "../../base/model.ts";
import { collectivesOf } from "../../state/devices/collectives.ts";
import { followed } from "../../state/follow.ts";
import { foldMembers, instructionsOf, nameOf } from "../../state/members.ts";
import { placeOf } from "../../state/source/places.ts";
import type { Selection } from "../../view.ts";
import type { PanelContext } from "../panel.ts";
import { type MenuItem, menu } from "./popover.ts";

interface Target {
  kind: "group" | "fold" | "instruction";
  index: number;
}

/** What the menu uses of the graph. */
export interface Boxes {
  at(x: number, y: number): Selection | null;
  locate(selection: Selection): { x: number; y: number } | null;
  canOpen(target: Target): boolean;
  isOpen(target: Target): boolean;
  toggle(target: Target): void;
  isApart(fold: number): boolean;
  setApart(fold: number, apart: boolean): void;
  isolate(target: Target | null): void;
  readonly isolated: Selection | null;
}

interface Parts {
  root: HTMLElement;
  graph: HTMLElement;
  ctx: PanelContext;
  boxes: Boxes;
  showPanel(id: string): void;
}

export function boxMenu({ root, graph, ctx, boxes, showPanel }: Parts): void {
  const { store, signal } = ctx;
  let box: HTMLElement | null = null;
  const close = () => {
    box?.remove();
    box = null;
  };
  const open = (selection: Selection, x: number, y: number) => {
    close();
    const named = nameOf(ctx.model, selection) || "this box";
    box = menu(itemsOf(ctx, boxes, selection, showPanel), () => {
      close();
      graph.querySelector("canvas")?.focus();
    });
    box.classList.add("popover", "box-menu");
    box.setAttribute("aria-label", `What to do with ${named}`);
    root.append(box);
    const frame = root.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(x - frame.left, frame.width - box.offsetWidth - 8))}px`;
    box.style.top = `${Math.max(4, Math.min(y - frame.top, frame.height - box.offsetHeight - 8))}px`;
    (box.querySelector("button:not(:disabled)") as HTMLElement | null)?.focus();
  };
  graph.addEventListener(
    "contextmenu",
    (event) => {
      const at = graph.getBoundingClientRect();
      const found = boxes.at(event.clientX - at.left, event.clientY - at.top);
      event.preventDefault();
      if (!found) return close();
      store.select(found);
      open(found, event.clientX, event.clientY);
    },
    { signal },
  );
  root.addEventListener(
    "keydown",
    (event) => {
      if (box && event.key === "Escape") {
        close();
        graph.querySelector("canvas")?.focus();
        event.preventDefault();
        event.stopImmediatePropagation();
        return;
      }
      const wanted = event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey);
      const selection = store.get("selection");
      if (!wanted || selection.kind === "none") return;
      const place = boxes.locate(selection);
      if (!place) return;
      const at = graph.getBoundingClientRect();
      event.preventDefault();
      open(selection, at.left + place.x + 12, at.top + place.y + 12);
    },
    { signal, capture: true },
  );
  root.addEventListener(
    "pointerdown",
    (event) => {
      if (box && !event.composedPath().includes(box)) close();
    },
    { signal, capture: true },
  );
  signal.addEventListener("abort", close, { once: true });
}

function itemsOf(
  ctx: PanelContext,
  boxes: Boxes,
  selection: Selection,
  showPanel: (id: string) => void,
): MenuItem[] {
  const { model, store } = ctx;
  const target = selection as Target;
  const members = instructionsOf(model, selection);
  const alone = boxes.isolated;
  const isAlone = alone?.kind === selection.kind && alone.index === selection.index;
  const opens = boxes.canOpen(target);
  const fold = foldOf(model, selection);
  const place = members.length ? placeOf(model, members[0]) : null;
  const collective = members.find((i) => collectivesOf(model)?.byInstruction.has(i));
  const follow = (direction: "down" | "up", reason: string) => () => {
    const instructions = followed(model, members, direction);
    store.highlight({ instructions, reason: `${reason} ${nameOf(model, selection)}` });
  };
  return [
    ...(opens
      ? [
          {
            label: boxes.isOpen(target) ? "Close" : "Open",
            key: "Enter",
            run: () => boxes.toggle(target),
          },
        ]
      : []),
    ...(fold < 0 ? [] : [apartItem(boxes, fold, foldMembers(model, fold).length)]),
    ...(alone ? [{ label: "Show everything again", run: () => boxes.isolate(null) }] : []),
    ...(opens && !isAlone
      ? [{ label: "Isolate: show it alone", run: () => boxes.isolate(target) }]
      : []),
    { label: "Details", key: "d", run: () => showPanel("details") },
    {
      label: place ? `Source: ${place.short}` : "Source: no line is known",
      disabled: !place || !model.optional("source.frame"),
      run: () => {
        const at = place?.text.lastIndexOf(":") ?? -1;
        if (place && at > 0)
          store.showLine(place.text.slice(0, at), Number(place.text.slice(at + 1)));
      },
    },
    { label: "HLO text", key: "t", run: () => showPanel("text") },
    ...(collective === undefined
      ? []
      : [
          {
            label: "Why: what needs this collective",
            run: () => {
              store.selectInstruction(collective);
              showPanel("collectives");
            },
          },
        ]),
    { label: "Follow: what depends on it", run: follow("down", "depends on") },
    { label: "Follow: what it depends on", run: follow("up", "needed by") },
    { label: "Copy name", run: () => void copyText(nameOf(model, selection)) },
    ...(members.length === 1 && model.header.summary.partitions > 1
      ? [
          {
            label: "Copy as a sharding constraint to try",
            run: () => void copyText(`cap.what_if(constrain={"${model.name(members[0])}": P()})`),
          },
        ]
      : []),
    {
      label: "Copy HLO",
      run: () => void copyHlo(ctx, (text) => members.map((i) => text.instruction(i))),
    },
    {
      label: "Copy HLO with what it calls",
      run: () => void copyHlo(ctx, (text) => [...calledText(ctx, text, members)]),
    },
  ];
}

/** The run of equal groups that a box stands for or is one of; -1 if there is none. */
function foldOf(model: ViewModel, { kind, index }: Selection): number {
  if (kind === "fold") return index;
  return kind === "group" ? model.group.fold[index] : -1;
}

function apartItem(boxes: Boxes, fold: number, members: number): MenuItem {
  const apart = boxes.isApart(fold);
  return {
    label: apart ? `Show all ${members} as one` : `Show each of the ${members} by itself`,
    run: () => boxes.setApart(fold, !apart),
  };
}

/** Computations that the instructions call, innermost first, then the instructions. */
function calledText(ctx: PanelContext, text: TextModel, members: readonly number[]): string[] {
  const { called, computation } = ctx.model;
  const found = new Set<number>();
  const visit = (i: number, depth: number) => {
    for (let e = called.offsets[i]; e < called.offsets[i + 1]; e++) {
      const c = called.values[e];
      if (found.has(c) || depth > 50) continue;
      for (let k = 0; k < computation.size[c]; k++) visit(computation.first[c] + k, depth + 1);
      found.add(c);
    }
  };
  for (const i of members) visit(i, 0);
  const whole = [...found].map((c) => text.slice(text.computationBegin[c], text.computationEnd[c]));
  return [...whole, members.map((i) => text.instruction(i)).join("\n")];
}

async function copyHlo(ctx: PanelContext, lines: (text: TextModel) => string[]): Promise<void> {
  try {
    const found = lines(await ctx.text()).filter(Boolean);
    const done = await copyText(found.join("\n"));
    ctx.note(done ? `Copied ${format.plural(found.length, "piece")} of HLO.` : "Not allowed here.");
  } catch (error) {
    ctx.note(`No HLO text: ${(error as Error).message}`);
  }
}

/** Says that only one box is shown, and leads back. */
export function isolationNote(
  graph: HTMLElement,
  ctx: PanelContext,
  boxes: Boxes & { onOpenChange(callback: () => void): () => void },
): void {
  const words = h("span", { class: "clip" });
  const chip = h(
    "div",
    { class: "only-note", role: "status" },
    words,
    h(
      "button",
      { class: "mini", type: "button", onclick: () => boxes.isolate(null) },
      "show everything",
    ),
  );
  chip.hidden = true;
  graph.append(chip);
  const off = boxes.onOpenChange(() => {
    const { isolated } = boxes;
    chip.hidden = !isolated;
    if (isolated) words.textContent = `Only ${nameOf(ctx.model, isolated)} is shown`;
  });
  ctx.signal.addEventListener("abort", off, { once: true });
}
