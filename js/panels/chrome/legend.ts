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
  const source = coloring.source
    ? h("span", { class: "what" }, `source: ${coloring.source}`)
    : null;
  const categories = coloring.categories?.(model);
  if (!categories) {
    const ramp = colors.slice(0, -1);
    const [low, high] = range ?? [Number.NaN, Number.NaN];
    const unknown = index.some((k) => k === colors.length - 1);
    fill(
      element,
      h(
        "span",
        { class: "what" },
        `${coloring.label}${coloring.scale === "log" ? ", log scale" : ""}`,
      ),
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
      source,
    );
    return;
  }
  const counts = new Uint32Array(colors.length);
  for (const k of index) counts[k]++;
  fill(
    element,
    h("span", { class: "what" }, coloring.label),
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
    source,
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
