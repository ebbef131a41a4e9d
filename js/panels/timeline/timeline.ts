/**
 * The step over time. Modelled: compute, waiting, and a lane for each network of transfers.
 * Measured: every device event of a trace. Zoomed and panned as in a trace viewer.
 */
import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { costsOf } from "../../state/cost/costs.ts";
import { childGroups, instructionsInGroup } from "../../state/members.ts";
import { type Timeline, timelineOf } from "../../state/time/timeline.ts";
import { type Run, type Trace, traceOf } from "../../state/time/trace.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { chapters } from "../parts/chapters.ts";
import { editedNote } from "../parts/chips.ts";
import { bars, note, section } from "../parts/parts.ts";
import { chart } from "./chart.ts";
import { modelled } from "./modelled.ts";
import { traced } from "./traced.ts";

const STEP = 1.25;
const ALL = "all devices";

export const timeline: Panel = {
  id: "timeline",
  title: "Timeline",
  width: 0.5,
  fills: true,
  available: (model) => timelineOf(model) !== null || traceOf(model) !== null,
  render(element, ctx) {
    const found = timelineOf(ctx.model);
    const trace = traceOf(ctx.model);
    const parts = [
      ...(trace
        ? [
            {
              title: "Measured",
              about: "Every event of the devices in the trace",
              build: () => ofTrace(ctx, trace),
            },
          ]
        : []),
      ...(found
        ? [
            {
              title: "Modelled",
              about: "One step on one device, at the chip's peak rates",
              build: () => ofModel(ctx, found),
            },
          ]
        : []),
    ];
    const body = chapters(ctx, "timeline", parts);
    body.classList.add("timelines");
    element.append(body);
  },
};

const button = (text: string, title: string, onclick: () => void) =>
  h("button", { class: "mini", type: "button", title, onclick }, text);

function ofModel(ctx: PanelContext, found: Timeline): Child[] {
  const said = h("p", { class: "note", "aria-live": "polite" });
  const made = chart(ctx, modelled(ctx.model, found), said);
  const edited = editedNote(costsOf(ctx.model));
  return [
    ...(edited ? [edited] : []),
    h(
      "div",
      { class: "bar-row" },
      h(
        "span",
        null,
        `${format.seconds(found.seconds)} modelled on ${found.hardware}, one step on one device`,
      ),
      button("−", "Zoom out (-)", () => made.zoom(1 / STEP ** 3)),
      button("+", "Zoom in (+)", () => made.zoom(STEP ** 3)),
      button("all", "Show the whole step (0)", made.all),
    ),
    made.element,
    said,
    ...parts(ctx),
    note(
      "A lower bound: one operation after the other at the chip's peak, transfers beside them. “Waiting” is communication that is not hidden behind compute.",
    ),
  ];
}

/** As many boxes have a bar. */
const BARS = 12;

/** The step by its outermost boxes that tell it apart: which part of the program takes the time. */
function parts(ctx: PanelContext): Child[] {
  const { model, store, graph } = ctx;
  const costs = costsOf(model);
  if (!costs?.chip || !(costs.totals.total > 0)) return [];
  const time = (g: number) => {
    let sum = 0;
    for (const i of instructionsInGroup(model, g)) if (costs.step[i] > 0) sum += costs.step[i];
    return sum;
  };
  const children = childGroups(model);
  let rows = children[0].map((group) => ({ group, value: time(group) }));
  // One box around everything says nothing: its contents do.
  for (let turn = 0; turn < 20 && rows.filter((r) => r.value > 0).length === 1; turn++) {
    const only = rows.find((r) => r.value > 0)?.group ?? 0;
    if (!children[only].length) break;
    rows = children[only].map((group) => ({ group, value: time(group) }));
  }
  rows = rows.filter((r) => r.value > 0).sort((a, b) => b.value - a.value);
  if (rows.length < 2) return [];
  const { total } = costs.totals;
  const percent = (share: number) => (share < 0.01 ? "under 1 %" : `${Math.round(100 * share)} %`);
  const text = (v: number) => `${format.seconds(v)} · ${percent(v / total)}`;
  const shown = rows.slice(0, BARS).map(({ group, value }) => ({
    label: model.groupLabel(group) || "(unnamed)",
    value,
    text: text(value),
    title: "Select this box in the graph",
    onclick: () => {
      store.select({ kind: "group", index: group });
      graph.revealGroup(group);
    },
  }));
  const rest = total - shown.reduce((sum, { value }) => sum + value, 0);
  return [
    h(
      "div",
      { class: "timeline-parts" },
      section(
        "Where the step goes",
        bars(shown),
        rest > 0.005 * total ? note(`${text(rest)} in other boxes and outside all of them`) : null,
      ),
    ),
  ];
}

function ofTrace(ctx: PanelContext, trace: Trace): Child[] {
  const { model } = ctx;
  const said = h("p", { class: "note", "aria-live": "polite" });
  let device: string | null = busiest(trace);
  const made = chart(ctx, traced(model, trace, device), said);
  const counted = h("span", { class: "dim" });
  const runs = h("select", { "aria-label": "Run" });
  let shown: Run[] = [];
  const list = () => {
    shown = trace.runs.filter((run) => device === null || run.device === device);
    // For all devices, the runs of the first are enough, as others ran at the same time.
    if (device === null) shown = shown.filter((run) => run.device === shown[0].device);
    runs.replaceChildren(
      h("option", { value: "" }, "the whole trace"),
      ...shown.map((run, k) =>
        h("option", { value: String(k) }, `run ${k + 1} · ${format.seconds(run.seconds)}`),
      ),
    );
    runs.hidden = shown.length === 0;
    counted.textContent = counts(trace, device);
  };
  const go = () => {
    const run = shown[Number(runs.value)];
    if (runs.value === "" || !run) return made.all();
    const around = run.seconds * 0.02;
    made.show(run.start - around, run.start + run.seconds + around);
  };
  runs.addEventListener("change", go);
  const devices = h(
    "select",
    {
      "aria-label": "Device",
      onchange: (event: Event) => {
        const { value } = event.target as HTMLSelectElement;
        device = value === ALL ? null : value;
        made.change(traced(model, trace, device));
        const kept = runs.value;
        list();
        if (Number(kept) < shown.length) runs.value = kept;
      },
    },
    ...trace.devices.map((d) => h("option", { value: d, selected: d === device }, d)),
    trace.devices.length > 1 ? h("option", { value: ALL }, ALL) : null,
  );
  list();
  // Show the run of median duration.
  if (shown.length > 1) {
    const order = shown.map((_, k) => k).sort((a, b) => shown[a].seconds - shown[b].seconds);
    runs.value = String(order[order.length >> 1]);
    go();
  }
  return [
    h(
      "div",
      { class: "bar-row" },
      devices,
      runs,
      button("−", "Zoom out (-)", () => made.zoom(1 / STEP ** 3)),
      button("+", "Zoom in (+)", () => made.zoom(STEP ** 3)),
      button("all", "Show the whole trace (0)", () => {
        runs.value = "";
        made.all();
      }),
      counted,
    ),
    made.element,
    said,
    note(leftOut(trace)),
  ];
}

/** The device with the most events of this program. */
function busiest(trace: Trace): string | null {
  const events = new Map<string, number>();
  trace.lanes.forEach((lane) => {
    let own = 0;
    for (const row of lane.rows) for (const e of row.events) if (trace.instruction[e] >= 0) own++;
    events.set(lane.device, (events.get(lane.device) ?? 0) + own);
  });
  let best: string | null = null;
  for (const [device, own] of events) {
    if (best === null || own > (events.get(best) ?? 0)) best = device;
  }
  return best;
}

function counts(trace: Trace, device: string | null): string {
  const lanes = trace.lanes.filter((lane) => device === null || lane.device === device);
  const all = lanes.reduce((sum, lane) => sum + lane.events, 0);
  const drawn = lanes.reduce((sum, lane) => sum + lane.drawn, 0);
  const missing = all > drawn ? `, ${format.count(all - drawn)} left out` : "";
  return `${format.plural(drawn, "event")} of ${device ?? ALL} drawn${missing}`;
}

function leftOut(trace: Trace): string {
  const { shortest, elsewhere } = trace.said;
  const parts = [
    ...(shortest === null
      ? []
      : [`Events of less than ${format.seconds(shortest)} are left out: there are too many`]),
    ...elsewhere.map((x) => `${format.plural(x.events, "event")} ${x.where} are not drawn`),
    "Grey: not an operation of this program",
  ];
  return `${parts.join(". ")}.`;
}
