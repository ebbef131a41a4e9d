/** What both the overview and a group show about their instructions. */

import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { Flag } from "../../view.ts";
import type { PanelContext } from "../panel.ts";
import { bars, note } from "../parts/parts.ts";

/** Highlights instructions that pass the test in the graph; a second click clears that. */
export function highlighter(ctx: PanelContext, reason: string, test: (i: number) => boolean) {
  return () => {
    const { model, store } = ctx;
    if (store.get("highlight")?.reason === reason) {
      store.highlight(null);
      return;
    }
    const found = new Set<number>();
    for (let i = 0; i < model.instruction.count; i++) if (test(i)) found.add(i);
    store.highlight({ instructions: found, reason });
  };
}

/** Bars by opcode family; a click highlights the instructions in the graph. */
export function families(ctx: PanelContext, members: readonly number[]): HTMLElement {
  const { model } = ctx;
  const counts = new Map<number, number>();
  for (const i of members) {
    if (model.has(i, Flag.Plumbing) && !model.has(i, Flag.Landmark)) continue;
    const f = model.instruction.family[i];
    counts.set(f, (counts.get(f) ?? 0) + 1);
  }
  let inside: Set<number> | null = null; // made on first use
  const holds = (i: number): boolean => {
    inside ??= new Set(members);
    return inside.has(i);
  };
  const rows = [...counts].sort((a, b) => b[1] - a[1]);
  if (!rows.length) return note("Only plumbing: tuples, bitcasts, copies of layout.");
  return bars(
    rows.map(([f, n]) => ({
      label: model.header.families[f]?.label ?? "other",
      value: n,
      text: format.count(n),
      color: `var(--hlo-family-${f})`,
      title: "Highlight these in the graph",
      onclick: highlighter(
        ctx,
        model.header.families[f]?.label ?? "other",
        (i) => model.instruction.family[i] === f && holds(i),
      ),
    })),
  );
}

export function bytesOf(model: ViewModel, i: number): HTMLElement {
  return h("span", { class: "figure" }, format.bytes(model.instruction.bytes[i]));
}

/** The largest outputs, without parameters and plumbing, which are not new memory. */
export function biggestOutputs(
  model: ViewModel,
  members: Iterable<number>,
  limit: number,
): number[] {
  const { bytes } = model.instruction;
  const out: number[] = [];
  for (const i of members) {
    if (!(bytes[i] > 0) || model.has(i, Flag.Plumbing) || model.has(i, Flag.Parameter)) continue;
    if (out.length === limit && bytes[i] <= bytes[out[limit - 1]]) continue;
    let at = out.length;
    while (at > 0 && bytes[out[at - 1]] < bytes[i]) at--;
    out.splice(at, 0, i);
    if (out.length > limit) out.pop();
  }
  return out;
}
