/** What took time, and when: lanes of spans, coloured by part. */
import { h, svg } from "../base/dom.ts";
import { seconds } from "../base/format.ts";
import { head, legend } from "./parts.ts";
import type { Spans } from "./view.ts";

const LEFT = 170;
const W = 1000;
const LANE = 24;

export function spans(s: Spans): HTMLElement {
  const x = (t: number) => LEFT + (t / (s.seconds || 1)) * (W - LEFT - 10);
  const out = svg("svg", {
    viewBox: `0 0 ${W} ${s.lanes.length * LANE + 18}`,
    role: "img",
    "aria-label": `${s.title}: ${s.lanes.length} lanes over ${seconds(s.seconds)}`,
  });
  s.lanes.forEach((lane, k) => {
    const name = lane.length > 26 ? `${lane.slice(0, 25)}…` : lane;
    out.append(svg("text", { x: LEFT - 8, y: k * LANE + 15, "text-anchor": "end" }, name));
  });
  for (const [lane, start, end, part, label] of s.spans) {
    const width = Math.max(1.5, x(end) - x(start));
    out.append(
      svg(
        "rect",
        { x: x(start), y: lane * LANE + 3, width, height: LANE - 7, class: `over k${part}` },
        svg("title", null, `${label}: ${s.parts[part]}, ${seconds(end - start)}`),
      ),
    );
  }
  const bottom = s.lanes.length * LANE + 14;
  out.append(
    svg("text", { x: LEFT, y: bottom, class: "dim" }, "0 s"),
    svg("text", { x: W - 8, y: bottom, class: "dim", "text-anchor": "end" }, seconds(s.seconds)),
  );
  return h(
    "section",
    null,
    ...head(s.title, s.note),
    legend(s.parts),
    h("div", { class: "spans" }, out as unknown as HTMLElement),
  );
}
