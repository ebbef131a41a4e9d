/** Title, what it was compiled for, key figures as text, and warnings. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import { costsOf } from "../../state/cost/costs.ts";
import type { Store } from "../../state/store.ts";
import type { Host } from "../../view.ts";
import { chooseChip, modelledStep, offered } from "../parts/chips.ts";
import { type MenuItem, menu, popover } from "./popover.ts";

/** "8 partitions · 9,679 instructions · 282 fusions · 239 parameters 185 MiB · 43 all-reduce · peak …" */
export function keyFigures(model: ViewModel): string[] {
  const { summary } = model.header;
  const out: string[] = [];
  const isGlobal = summary.shapes === "global";
  if (summary.partitions > 1) out.push(format.plural(summary.partitions, "partition"));
  if (summary.replicas > 1) out.push(format.plural(summary.replicas, "replica"));
  out.push(format.plural(summary.instructions, "instruction"));
  const fusions = Object.values(summary.fusions ?? {}).reduce((a, b) => a + b, 0);
  if (fusions) out.push(format.plural(fusions, "fusion"));
  if (summary.parameters && summary.parameter_bytes !== null) {
    out.push(
      `${format.plural(summary.parameters, "parameter")} ${format.bytes(summary.parameter_bytes)}${isGlobal ? " (global)" : ""}`,
    );
  }
  // Known once the analyses have arrived.
  const collectives = new Map<string, number>();
  for (const { kind, count } of summary.collectives ?? [])
    collectives.set(kind, (collectives.get(kind) ?? 0) + count);
  for (const [kind, n] of [...collectives].sort((a, b) => b[1] - a[1]))
    out.push(`${format.count(n)} ${kind}`);
  const { flops, peak_live_bytes: peak } = summary;
  if (typeof flops === "number" && flops) {
    out.push(`${format.quantity(flops, "FLOP")}${isGlobal ? " (global)" : ""}`);
  }
  if (typeof peak === "number")
    out.push(`peak ${format.bytes(peak)}${isGlobal ? " (global)" : ""}`);
  return out;
}

interface Parts {
  root: HTMLElement;
  model: ViewModel;
  store: Store;
  host: Host;
  signal: AbortSignal;
}

/** "46.9 ms on TPU v5p ▾", with a menu of chips; null before there are costs. */
function chipButton(parts: Parts): HTMLElement | null {
  const { root, model, signal } = parts;
  const costs = costsOf(model);
  const { chips, likely } = offered(parts);
  const { chip } = costs ?? {};
  if (!costs || (!chip && !chips.length)) return null;
  const step = modelledStep(model);
  const edited = costs.isEdited ? ", as published" : "";
  const words = chip ? `${step ? `${step} on ` : ""}${chip.label}${edited}` : "Which chip?";
  const button = h(
    "button",
    {
      class: chip ? "chip-choice" : "chip-choice asks",
      type: "button",
      "aria-haspopup": "menu",
      title: chip
        ? "The modelled step: a lower bound, at the chip's peak rates. Click for another chip."
        : "The program does not name its chip: choose one to see modelled time.",
    },
    words,
    h("span", { "aria-hidden": "true" }, " ▾"),
  );
  const items = (): MenuItem[] =>
    chips.map((c, k) => ({
      label: `${c.label}${c.id === costs.extras.own ? " (this program's)" : ""}`,
      key: c.id === chip?.id ? "✓" : k === 0 && likely && !chip ? "likely" : undefined,
      run: () => chooseChip(parts, c.id),
    }));
  if (chips.length > 1 || !chip) popover(root, button, (close) => menu(items(), close), signal);
  else button.disabled = true;
  return button;
}

/** The first warning, to be read without a click; the badge has them all. */
function warningLine(warnings: readonly string[]): HTMLElement | null {
  if (!warnings.length) return null;
  return h("p", { class: "warning-line", title: warnings.join("\n") }, warnings[0]);
}

export function header(parts: Parts): HTMLElement {
  const { root, model, signal } = parts;
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
    chipButton(parts),
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
  return h("div", { class: "top" }, element, warningLine(warnings));
}
