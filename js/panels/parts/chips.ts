/** The chips that time can be modelled on here, and ways to choose one. */
import { h } from "../../base/dom.ts";
import type { ViewModel } from "../../base/model.ts";
import { type Costs, costsOf } from "../../state/cost/costs.ts";
import type { Store } from "../../state/store.ts";
import type { Host } from "../../view.ts";
import type { Chip } from "../../view-extras.ts";

interface Where {
  model: ViewModel;
  store: Store;
  host: Host;
}

/** As many likely chips as are offered with one click. */
const BUTTONS = 8;

/**
 * The chips whose figures can be had: the View's own, and those that the page was saved with or
 * that the kernel makes; likely ones first.
 */
export function offered({ model, host }: Where): { chips: Chip[]; likely: number } {
  const { cost } = model.header.extras;
  if (!cost) return { chips: [], likely: 0 };
  const own = model.ownChip;
  const has = (id: string) =>
    id === own || (host.chip !== undefined && (host.chips?.includes(id) ?? true));
  const likely = (cost.likely ?? []).filter(has);
  const order = [...likely, ...cost.hardware.map((chip) => chip.id).filter(has)];
  const chips = [...new Set(order)].flatMap((id) => cost.hardware.find((c) => c.id === id) ?? []);
  return { chips, likely: likely.length };
}

export const chooseChip = ({ model, store }: Where, id: string): void =>
  store.setOptions({ hardware: id === model.ownChip ? null : id });

/** One button for each likely chip, where none is chosen: one click models time on it. */
export function chipQuestion(where: Where): HTMLElement | null {
  const costs = costsOf(where.model);
  if (!costs || costs.extras.chosen) return null;
  const { chips, likely } = offered(where);
  if (!chips.length) return null;
  const shown = chips.slice(0, likely ? Math.min(likely, BUTTONS) : BUTTONS);
  return h(
    "div",
    { class: "chip-question", role: "group", "aria-label": "What it may run on" },
    h("span", null, "Which chip does it run on? The program does not say."),
    ...shown.map((chip) =>
      h(
        "button",
        { class: "mini", type: "button", onclick: () => chooseChip(where, chip.id) },
        chip.label,
      ),
    ),
  );
}

/** The modelled step as `hloscope summary` prints it: "≥ 46.9 ms", "unknown"; null for none. */
export const modelledStep = (model: ViewModel): string | null =>
  model.header.extras.cost?.step ?? null;

/** What an edited figure changes and what it does not; null where nothing was edited. */
export function editedNote(costs: Costs | null): HTMLElement | null {
  if (!costs?.isEdited || !costs.chip) return null;
  return h(
    "p",
    { class: "note edited" },
    `You edited figures in Cost: these are still those of ${costs.chip.label} as published. Cost, the colours by time and Source follow what you edited.`,
  );
}
