/** The chip on which time is modelled, and its figures, which can be edited. */

import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { WhenReleased } from "../../base/press.ts";
import { type Costs, copyOf } from "../../state/cost/costs.ts";
import type { Chip } from "../../view-extras.ts";
import type { PanelContext } from "../panel.ts";
import { chipQuestion, chooseChip, offered } from "../parts/chips.ts";
import { note } from "../parts/parts.ts";

interface Figure {
  label: string;
  unit: string;
  value: number;
  set(chip: Chip, value: number): void;
}

/** The figures of a chip that matter to this program. */
function figuresOf(costs: Costs, chip: Chip): Figure[] {
  const out: Figure[] = costs.extras.dtypes.map((dtype, k) => ({
    label: `matmul ${dtype}`,
    unit: "TFLOP/s",
    value: (chip.matmul[k] ?? Number.NaN) / 1e12,
    set: (c, v) => {
      c.matmul[k] = v * 1e12;
    },
  }));
  out.push(
    {
      label: "other FLOPs",
      unit: "TFLOP/s",
      value: (chip.vector ?? Number.NaN) / 1e12,
      set: (c, v) => {
        c.vector = v * 1e12;
      },
    },
    {
      label: "memory",
      unit: "GB/s",
      value: chip.memoryBandwidth / 1e9,
      set: (c, v) => {
        c.memoryBandwidth = v * 1e9;
      },
    },
  );
  chip.links.forEach((link, k) => {
    out.push(
      {
        label: `${link.name}, a link`,
        unit: "GB/s",
        value: link.bytesPerSecond / 1e9,
        set: (c, v) => {
          c.links[k].bytesPerSecond = v * 1e9;
        },
      },
      {
        label: `${link.name}, a hop`,
        unit: "µs",
        value: link.latency * 1e6,
        set: (c, v) => {
          c.links[k].latency = v / 1e6;
        },
      },
    );
  });
  return out;
}

export function chipForm(ctx: PanelContext, costs: Costs): HTMLElement {
  const { whenReleased } = ctx;
  // Pressing elsewhere commits a typed number; what is pressed is redrawn only after its click.
  const setChip = (chip: Chip) => whenReleased(() => costs.setChip(chip));
  const { hardware, own, chosen } = costs.extras;
  const numbers = h("div", { class: "numbers" });
  const sources = h("ul", { class: "list dim" });
  const details = h("details", null, h("summary", null, "Its numbers"), numbers, sources);
  const { chips } = offered(ctx);
  const select = h(
    "select",
    {
      "aria-label": "Chip",
      onchange: () => {
        if (select.value) whenReleased(() => chooseChip(ctx, select.value));
      },
    },
    chosen ? null : h("option", { value: "" }, "no chip chosen"),
    ...chips.map((c) =>
      h("option", { value: c.id }, c.id === own ? `${c.label} (this program's)` : c.label),
    ),
  );
  select.value = costs.chip?.id ?? "";
  const reset = h(
    "button",
    {
      class: "mini",
      type: "button",
      onclick: () => {
        const chip = hardware.find((c) => c.id === costs.chip?.id);
        if (chip) setChip(copyOf(chip));
        whenReleased(show);
      },
    },
    "as published",
  );
  const show = () => {
    const chip = costs.chip;
    details.hidden = !chip;
    if (!chip) return;
    numbers.replaceChildren(
      ...figuresOf(costs, chip).map((f) => {
        const input = h("input", {
          type: "number",
          min: "0",
          step: "any",
          value: Number.isFinite(f.value) ? String(Number(f.value.toPrecision(6))) : "",
          placeholder: "unknown",
          onchange: () => {
            const value = Number(input.value);
            if (!(value > 0)) return show();
            const changed = copyOf(costs.chip as Chip);
            f.set(changed, value);
            setChip(changed);
          },
        });
        return h("label", { class: "field" }, h("span", null, f.label), input, f.unit);
      }),
      reset,
    );
    sources.replaceChildren(...chip.source.map((s) => h("li", null, s)));
  };
  show();
  const loops = costs.extras.unknownLoops.map((_, row) => loopField(costs, row, whenReleased));
  return h(
    "div",
    { class: "chip" },
    chosen || chips.length
      ? h("label", { class: "field" }, "Modelled on ", select)
      : note("This page was saved without figures for any chip: save it with one chosen."),
    chipQuestion(ctx),
    details,
    ...loops,
  );
}

/** A loop whose trip count is unknown: it counts once until a number is entered. */
function loopField(costs: Costs, row: number, whenReleased: WhenReleased): HTMLElement {
  const input = h("input", {
    type: "number",
    min: "0",
    step: "1",
    value: format.count(costs.tripsOf(row)).replaceAll(",", ""),
    onchange: () => {
      const value = Number(input.value);
      if (!Number.isInteger(value) || value < 0) return;
      whenReleased(() => costs.setTrips(row, value));
    },
  });
  const name = costs.loopName(row);
  return h("label", { class: "field" }, `Trips of %${name}, not known: `, input);
}
