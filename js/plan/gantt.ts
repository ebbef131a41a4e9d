/** When each stage works: a lane per device, and below it the device's memory. */
import { fill, h, svg } from "../base/dom.ts";
import { bytes, seconds } from "../base/format.ts";
import { head, legend } from "./parts.ts";
import type { Gantt } from "./view.ts";

const LEFT = 84;
const W = 1000;
const LANE = 26;
const MEMORY = 30;
const KINDS: Record<string, [number, string]> = {
  F: [0, "forward"],
  B: [1, "backward"],
  W: [2, "gradients of weights"],
};

function draw(s: Gantt["options"][number]): SVGElement {
  const known = s.memory.some((m) => m !== null);
  const height = LANE + (known ? MEMORY : 0);
  const x = (t: number) => LEFT + (t / (s.seconds || 1)) * (W - LEFT - 90);
  const out = svg("svg", {
    viewBox: `0 0 ${W} ${s.lanes.length * height + 20}`,
    role: "img",
    "aria-label": `${s.kind}, ${s.microbatches} microbatches: ${seconds(s.seconds)}, bubble ${(100 * s.bubble).toFixed(1)} %`,
  });
  s.lanes.forEach((lane, d) => {
    const y = d * height;
    out.append(svg("text", { x: LEFT - 8, y: y + 15, "text-anchor": "end" }, lane));
    for (const [, start, end, kind, label] of s.work.filter((w) => w[0] === d)) {
      const width = Math.max(0.5, x(end) - x(start));
      out.append(
        svg(
          "rect",
          { x: x(start), y: y + 2, width, height: LANE - 6, class: `over k${KINDS[kind][0]}` },
          svg("title", null, `${label}: ${seconds(start)} to ${seconds(end)}`),
        ),
      );
      if (width > 13) {
        const middle = { x: x(start) + width / 2, y: y + 16, class: "on", "text-anchor": "middle" };
        out.append(svg("text", middle, label.replace(/^\D*/, "").replace(/\D.*$/, "")));
      }
    }
    const memory = s.memory[d];
    const held = memory ? `up to ${bytes(Math.max(...memory.map((m) => m[1])))}` : "";
    out.append(svg("text", { x: W - 84, y: y + 15, class: "dim" }, `${s.inFlight[d]} in flight`));
    if (!memory) return;
    const most = Math.max(...s.memory.flatMap((m) => (m ?? []).map((p) => p[1])), 1);
    const level = (b: number) => y + LANE + MEMORY - 6 - (b / most) * (MEMORY - 10);
    let path = `M${x(0)},${level(0)}`;
    for (const [t, b] of memory) path += `H${x(t)}V${level(b)}`;
    out.append(
      svg("path", { d: `${path}H${x(s.seconds)}`, class: "line" }, svg("title", null, held)),
      svg("text", { x: W - 84, y: y + LANE + 18, class: "dim" }, held),
    );
  });
  const bottom = s.lanes.length * height + 14;
  out.append(
    svg("text", { x: LEFT, y: bottom, class: "dim" }, "0 s"),
    svg(
      "text",
      { x: x(s.seconds), y: bottom, class: "dim", "text-anchor": "end" },
      seconds(s.seconds),
    ),
  );
  return out;
}

export function gantt(s: Gantt, change?: (values: Record<string, number>) => void): HTMLElement {
  const picture = h("div", { class: "picture" });
  const words = h("p", { class: "note", role: "status" });
  const unique = <T>(values: T[]): T[] => [...new Set(values)];
  const start = s.options[s.chosen] ?? s.options[0];
  const kinds = h(
    "select",
    { "aria-label": "schedule" },
    ...unique(s.options.map((o) => o.kind)).map((k) =>
      h("option", { value: k, selected: k === start.kind }, k),
    ),
  );
  const counts = h(
    "select",
    { "aria-label": "microbatches" },
    ...unique(s.options.map((o) => o.microbatches)).map((n) =>
      h("option", { value: String(n), selected: n === start.microbatches }, String(n)),
    ),
  );
  const show = () => {
    const found = s.options.find(
      (o) => o.kind === kinds.value && o.microbatches === Number(counts.value),
    );
    if (!found) {
      fill(picture);
      words.textContent = `There is no ${kinds.value} schedule of ${counts.value} microbatches.`;
      return;
    }
    words.textContent = `A step takes ${seconds(found.seconds)}; devices idle ${(100 * found.bubble).toFixed(1)} % of it.`;
    fill(picture, draw(found));
  };
  kinds.addEventListener("change", show);
  counts.addEventListener("change", show);
  show();
  const bar = h(
    "div",
    { class: "bar" },
    h("label", null, "schedule", kinds),
    h("label", null, "microbatches", counts),
  );
  const used = new Set(s.options.flatMap((o) => o.work.map((w) => w[3])));
  const names = Object.entries(KINDS).filter(([k]) => used.has(k));
  const out = h(
    "section",
    null,
    ...head(s.title, s.note),
    bar,
    words,
    legend(names.map(([, v]) => v[1])),
    picture,
  );
  if (change && s.edit?.length) {
    const fields = s.edit.map((e) => {
      const input = h("input", {
        type: "number",
        min: "0",
        step: "any",
        value: String(e.value),
        name: e.name,
      });
      return h("label", null, e.label, input, e.unit);
    });
    const apply = h("button", { class: "action", type: "button" }, "Plan again");
    apply.addEventListener("click", () => {
      const values: Record<string, number> = {};
      for (const f of fields) {
        const input = f.querySelector("input");
        if (input) values[input.name] = Number(input.value);
      }
      change(values);
    });
    out.append(h("div", { class: "bar edit" }, ...fields, apply));
  }
  return out;
}
