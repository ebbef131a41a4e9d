/** Title, what it was compiled for, key figures as text, and warnings. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { popover } from "./popover.ts";

/** "8 partitions · 9,679 instructions · 282 fusions · 239 parameters 185 MiB · 43 all-reduce · peak …" */
export function keyFigures(model: ViewModel): string[] {
  const { summary } = model.header;
  const out: string[] = [];
  if (summary.partitions > 1) out.push(format.plural(summary.partitions, "partition"));
  if (summary.replicas > 1) out.push(format.plural(summary.replicas, "replica"));
  out.push(format.plural(summary.instructions, "instruction"));
  const fusions = Object.values(summary.fusions ?? {}).reduce((a, b) => a + b, 0);
  if (fusions) out.push(format.plural(fusions, "fusion"));
  if (summary.parameters && summary.parameter_bytes !== null) {
    out.push(
      `${format.plural(summary.parameters, "parameter")} ${format.bytes(summary.parameter_bytes)}${summary.shapes === "global" ? " (global)" : ""}`,
    );
  }
  // Known once the analyses have arrived.
  const collectives = new Map<string, number>();
  for (const { kind, count } of summary.collectives ?? [])
    collectives.set(kind, (collectives.get(kind) ?? 0) + count);
  for (const [kind, n] of [...collectives].sort((a, b) => b[1] - a[1]))
    out.push(`${format.count(n)} ${kind}`);
  const { flops, peak_live_bytes: peak } = summary;
  if (typeof flops === "number" && flops) out.push(format.quantity(flops, "FLOP"));
  if (typeof peak === "number") out.push(`peak ${format.bytes(peak)}`);
  return out;
}

export function header(root: HTMLElement, model: ViewModel, signal: AbortSignal): HTMLElement {
  const { title, subtitle, warnings } = model.header;
  const element = h(
    "div",
    { class: "header" },
    h("h2", null, title),
    h("span", { class: "sub" }, subtitle),
    h(
      "span",
      // One line; what does not fit is shown on hover and in the overview.
      { class: "figures", title: keyFigures(model).join(" · ") },
      // Each figure stays on one line with its unit.
      ...keyFigures(model).flatMap((f, k) => [k > 0 && " · ", h("span", null, f)]),
    ),
  );
  if (warnings.length) {
    const badge = h(
      "button",
      { class: "badge", type: "button" },
      format.plural(warnings.length, "warning"),
    );
    popover(
      root,
      badge,
      () =>
        h(
          "div",
          { class: "warnings", role: "dialog", "aria-label": "Warnings", tabindex: "0" },
          h("ul", null, ...warnings.map((w) => h("li", null, w))),
        ),
      signal,
    );
    element.append(badge);
  }
  return element;
}
