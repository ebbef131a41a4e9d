/** The key to the colours: categories with counts, or a ramp with its range, unit and source. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { ViewModel } from "../../base/model.ts";
import type { Paint } from "../paint.ts";

export function legend(
  element: HTMLElement,
  model: ViewModel,
  paint: Paint,
  light: (k: number) => void,
): void {
  const { coloring, colors, index, range } = paint;
  const categories = coloring.categories?.(model);
  // Where the figures come from is part of the key: XLA's own, measured, modelled, from shapes.
  const what = h(
    "span",
    { class: "what" },
    [coloring.label, coloring.scale === "log" && "log scale", coloring.source]
      .filter(Boolean)
      .join(" · "),
  );
  if (!categories) {
    const ramp = colors.slice(0, -1);
    const [low, high] = range ?? [Number.NaN, Number.NaN];
    const unknown = index.some((k) => k === colors.length - 1);
    fill(
      element,
      what,
      range
        ? h(
            "span",
            { class: "ramp" },
            format.quantity(low, coloring.unit),
            h("i", {
              "aria-hidden": "true",
              style: { background: `linear-gradient(90deg,${ramp.join(",")})` },
            }),
            format.quantity(high, coloring.unit),
          )
        : h("span", null, "nothing is known"),
      unknown &&
        swatch(colors[colors.length - 1], coloring.scale === "log" ? "none or unknown" : "unknown"),
    );
    return;
  }
  const counts = new Uint32Array(colors.length);
  for (const k of index) counts[k]++;
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
            title: "Light these in the graph",
            onclick: () => light(k),
          },
          h("i", { "aria-hidden": "true", style: { background: colors[k] } }),
          categories[k] ?? "unknown",
          h("span", { class: "n" }, format.count(counts[k])),
        ),
      ),
  );
}

function swatch(color: string, label: string): HTMLElement {
  return h(
    "span",
    { class: "key" },
    h("i", { "aria-hidden": "true", style: { background: color } }),
    label,
  );
}
