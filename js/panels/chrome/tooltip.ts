/** A card beside the pointer that says what a box is, while the pointer rests on it. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { costsOf } from "../../state/cost/costs.ts";
import { instructionsOf, nameOf } from "../../state/members.ts";
import { placeOf } from "../../state/source/places.ts";
import type { Selection } from "../../view.ts";
import type { PanelContext } from "../panel.ts";

/** The pointer rests for this long, in milliseconds, before the card is shown. */
const DELAY = 350;
/** Sums of larger groups take longer than a hover may. */
const MOST = 200_000;

export function tooltip(graph: HTMLElement, ctx: PanelContext): void {
  const { store, model, signal } = ctx;
  const card = h("div", { class: "tip box-tip", "aria-hidden": "true" });
  card.hidden = true;
  graph.append(card);
  let timer = 0;
  let at = { x: 0, y: 0 };
  const hide = () => {
    clearTimeout(timer);
    card.hidden = true;
  };
  const show = () => {
    const hover = store.get("hover");
    if (hover.kind === "none") return hide();
    fill(card, ...contents(model, hover));
    card.hidden = false;
    const { clientWidth, clientHeight } = graph;
    card.style.left = `${Math.max(4, Math.min(at.x + 14, clientWidth - card.offsetWidth - 6))}px`;
    const below = at.y + 18;
    const fits = below + card.offsetHeight < clientHeight;
    card.style.top = `${fits ? below : Math.max(4, at.y - card.offsetHeight - 10)}px`;
  };
  graph.addEventListener(
    "pointermove",
    (event) => {
      const box = graph.getBoundingClientRect();
      at = { x: event.clientX - box.left, y: event.clientY - box.top };
    },
    { signal },
  );
  for (const type of ["pointerdown", "pointerleave", "wheel", "keydown"]) {
    graph.addEventListener(type, hide, { signal, passive: true });
  }
  store.on(
    "hover",
    () => {
      hide();
      if (store.get("hover").kind === "none" || !graph.matches(":hover")) return;
      timer = window.setTimeout(show, DELAY);
    },
    signal,
  );
  signal.addEventListener("abort", hide, { once: true });
}

/** Name, what it is, how much it costs, and its line. */
function contents(model: ViewModel, selection: Selection): HTMLElement[] {
  const out = [h("strong", null, nameOf(model, selection) || "(unnamed)")];
  const line = (text: string, look = "dim") => out.push(h("div", { class: look }, text));
  const members = instructionsOf(model, selection);
  const i = members[0];
  if (selection.kind === "instruction") {
    if (model.code(i)) line(model.label(i));
    line(`${model.opcode(i)} ${model.denseShape(i)} · ${format.bytes(model.instruction.bytes[i])}`);
  } else line(format.plural(members.length, "instruction"));
  const cost = costOf(model, members);
  if (cost) line(cost, "");
  const place = i === undefined ? null : placeOf(model, i);
  if (place) line(selection.kind === "instruction" ? place.short : `first line: ${place.short}`);
  return out;
}

function costOf(model: ViewModel, members: readonly number[]): string {
  const costs = costsOf(model);
  if (!costs || members.length > MOST) return "";
  let [flops, seconds, unknown] = [0, 0, 0];
  for (const i of members) {
    if (!costs.unit[i] || !(costs.runs[i] > 0)) continue;
    if (Number.isNaN(costs.flops[i]) || Number.isNaN(costs.step[i])) unknown++;
    if (costs.flops[i] > 0) flops += costs.flops[i] * costs.runs[i];
    if (costs.step[i] > 0) seconds += costs.step[i];
  }
  const { total } = costs.totals;
  const share = costs.chip && total > 0 ? ` (${Math.round((100 * seconds) / total)} %)` : "";
  return [
    flops > 0 && format.quantity(flops, "FLOP"),
    costs.chip && seconds > 0 && `${format.seconds(seconds)}${share} on ${costs.chip.label}`,
    unknown > 0 && `${format.plural(unknown, "operation")} unknown`,
  ]
    .filter(Boolean)
    .join(" · ");
}
