/** The colour legend: categories with counts, or a ramp with its range, unit and source. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import type { Paint } from "../panel.ts";

export function legend(
  element: HTMLElement,
  model: ViewModel,
  paint: Paint,
  light: (k: number) => void,
): void {
  const { coloring, colors, index, range } = paint;
  const categories = coloring.categories?.(model);
  const what = h("span", { class: "what" }, coloring.label);
  // The source of the figures is part of the legend: XLA's own, measured, modelled, from shapes.
  const from = typeof coloring.source === "function" ? coloring.source(model) : coloring.source;
  const source = h(
    "span",
    { class: "source" },
    [coloring.scale === "log" && "log scale", from].filter(Boolean).join(" · "),
  );
  if (!categories) {
    // As in the graph: unknown has no fill and a dashed border, 0 is grey, then comes the ramp.
    const ramp = colors.slice(2);
    const [low, high] = range ?? [Number.NaN, Number.NaN];
    let unknown = 0;
    let zero = 0;
    for (let i = 0; i < index.length; i++) {
      if (index[i] === 0) unknown++;
      else if (index[i] === 1) zero++;
    }
    fill(
      element,
      what,
      range
        ? h(
            "span",
            { class: "ramp" },
            `${paint.clipped ? "≤ " : ""}${format.quantity(low, coloring.unit)}`,
            h("i", {
              "aria-hidden": "true",
              style: { background: `linear-gradient(90deg,${ramp.join(",")})` },
            }),
            format.quantity(high, coloring.unit),
          )
        : h("span", null, "no known values"),
      zero > 0 && swatch(colors[1], format.quantity(0, coloring.unit), zero),
      unknown > 0 && swatch(colors[0], "unknown", unknown, "unknown"),
      source,
    );
    return;
  }
  const { rest = "unknown" } = coloring;
  const counts = new Uint32Array(colors.length);
  for (let i = 0; i < index.length; i++) counts[index[i]]++;
  fill(
    element,
    what,
    ...[...counts.keys()]
      .filter((k) => counts[k] > 0)
      .map((k) =>
        h(
          "button",
          {
            class: "key",
            type: "button",
            title: `Highlight ${categories[k] ?? rest} in the graph`,
            onclick: () => light(k),
          },
          h("i", { "aria-hidden": "true", style: { background: colors[k] } }),
          h("span", { class: "clip" }, categories[k] ?? rest),
          h("span", { class: "n" }, format.count(counts[k])),
        ),
      ),
    source,
  );
}

function swatch(color: string, label: string, count: number, look = ""): HTMLElement {
  return h(
    "span",
    { class: `key ${look}` },
    h("i", { "aria-hidden": "true", style: { background: color } }),
    label,
    h("span", { class: "n" }, format.count(count)),
  );
}
