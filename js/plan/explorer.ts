/** Sliders over a table of cases that Python computed, with the meshes of each, fastest first. */
import { fill, h } from "../base/dom.ts";
import { count } from "../base/format.ts";
import { head, legend, said, stacked } from "./parts.ts";
import type { Explorer } from "./view.ts";

export function explorer(s: Explorer): HTMLElement {
  const at = s.sliders.map((slider) => slider.at);
  let mesh = 0;
  const body = h("div", null);
  const show = () => {
    let index = 0;
    s.sliders.forEach((slider, k) => {
      index = index * slider.values.length + at[k];
    });
    const found = s.cases[index];
    if (!found.meshes.length) {
      fill(
        body,
        h("p", { class: "note", role: "status" }, found.why ?? "Nothing fits these sizes."),
      );
      return;
    }
    mesh = Math.min(mesh, found.meshes.length - 1);
    const chosen = found.meshes[mesh];
    const rows = found.meshes.map((m, k) => {
      const cells = m.facts.map((v, f) => h("td", { class: "n" }, said(v, s.facts[f].unit)));
      const row = h(
        "tr",
        { tabindex: "0", "aria-selected": String(k === mesh) },
        h("td", null, m.label),
        ...cells,
        h("td", null, m.fits ? "" : "does not fit"),
      );
      const pick = () => {
        mesh = k;
        show();
        body.querySelectorAll<HTMLElement>("tbody tr")[k]?.focus();
      };
      row.addEventListener("click", pick);
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          pick();
        }
      });
      return row;
    });
    const heads = ["mesh", ...s.facts.map((f) => f.name), ""].map((name, k) =>
      h("th", { scope: "col", class: k && name ? "n" : undefined }, name),
    );
    fill(
      body,
      h("h3", null, `Meshes, fastest first; chosen: ${chosen.label}`),
      h(
        "div",
        { class: "wide" },
        h("table", null, h("thead", null, h("tr", null, ...heads)), h("tbody", null, ...rows)),
      ),
      h("h3", null, "Seconds of a step by part"),
      legend(s.time),
      stacked({
        unit: "s",
        parts: s.time,
        rows: found.meshes.map((m) => ({ name: m.label, values: m.time })),
      }),
      h("h3", null, "Memory per device, by part"),
      legend(s.memory),
      stacked({
        unit: "B",
        parts: s.memory,
        rows: found.meshes.map((m) => ({ name: m.label, values: m.memory })),
      }),
    );
  };
  const sliders = s.sliders.map((slider, k) => {
    const out = h("output", null, count(slider.values[at[k]]));
    const input = h("input", {
      type: "range",
      min: "0",
      max: String(slider.values.length - 1),
      value: String(slider.at),
      "aria-label": slider.name,
      "aria-valuetext": String(slider.values[slider.at]),
    });
    input.addEventListener("input", () => {
      at[k] = Number(input.value);
      out.textContent = count(slider.values[at[k]]);
      input.setAttribute("aria-valuetext", out.textContent);
      mesh = 0;
      show();
    });
    return h("label", null, slider.name, input, out);
  });
  show();
  return h("section", null, ...head(s.title, s.note), h("div", { class: "bar" }, ...sliders), body);
}
