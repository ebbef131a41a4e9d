/** What a profiler measured: per device, per operation, and against the model. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { costsOf } from "../../state/cost/costs.ts";
import {
  comparable,
  type Measured,
  type MeasuredRow,
  measuredOf,
  model,
  type Order,
  ordered,
  spread,
} from "../../state/time/measured.ts";
import type { Panel, PanelContext } from "../panel.ts";
import {
  bars,
  facts,
  figuresTable,
  type Head,
  note,
  numberCell,
  plotWidth,
  scrolled,
  section,
  selectionLink,
} from "../parts/parts.ts";
import { type Mode, measuredHeat } from "./heat.ts";
import { measuredScatter } from "./scatter.ts";

const HEAT_ROWS = 24;
const TABLE_ROWS = 100;
const DEVICE_BARS = 16;

export const measured: Panel = {
  id: "measured",
  title: "Measured",
  width: 0.42,
  available: (model) => measuredOf(model) !== null,
  render(element, ctx) {
    const found = measuredOf(ctx.model);
    if (!found) return;
    const costs = costsOf(ctx.model);
    let order: Order = "time";
    let mode: Mode = "time";
    const body = h("div");
    // Aborted on redrawing, so that listeners of the old pictures go with it.
    let inner = new AbortController();
    ctx.signal.addEventListener("abort", () => inner.abort(), { once: true });
    const show = () => {
      inner.abort();
      inner = new AbortController();
      const own = { ...ctx, signal: inner.signal };
      const known = model(found, ctx.model);
      const rows = ordered(found.rows, order);
      body.replaceChildren(
        section("Operations on devices", measuredHeat(own, found, rows.slice(0, HEAT_ROWS), mode)),
        ...(costs?.chip && known > 0
          ? [
              section(
                "Against the model",
                measuredScatter(own, found.rows, costs.chip.label, plotWidth(element)),
              ),
            ]
          : []),
        table(own, found, rows, known > 0),
      );
    };
    const choice = <T extends string>(
      label: string,
      options: [T, string][],
      chosen: (value: T) => void,
    ) =>
      h(
        "label",
        { class: "field" },
        `${label} `,
        h(
          "select",
          {
            onchange: (event: Event) => {
              chosen((event.target as HTMLSelectElement).value as T);
              show();
            },
          },
          ...options.map(([value, text]) => h("option", { value }, text)),
        ),
      );
    element.append(
      h(
        "div",
        { class: "measured" },
        totals(found),
        perDevice(found),
        h(
          "div",
          { class: "controls" },
          choice<Order>(
            "Order",
            [
              ["time", "time"],
              ["wait", "wait for the slowest"],
              ["spread", "spread"],
            ],
            (value) => {
              order = value;
            },
          ),
          choice<Mode>(
            "Cells",
            [
              ["time", "time"],
              ["mean", "against the mean"],
            ],
            (value) => {
              mode = value;
            },
          ),
        ),
        body,
      ),
    );
    costs?.on(show, ctx.signal);
    show();
  },
};

function totals(found: Measured): HTMLElement {
  const most = Math.max(...found.deviceSeconds);
  const slowest = found.devices[found.deviceSeconds.indexOf(most)];
  return h(
    "div",
    { class: "totals" },
    facts([
      ["Measured time", `${format.seconds(found.totalSeconds)} a step, mean over devices`],
      [
        "Slowest device",
        `${deviceName(found, slowest)}: ${format.seconds(most)}, +${(100 * (most / found.totalSeconds - 1)).toFixed(1)} %`,
      ],
      [
        "Profile",
        `${format.plural(found.steps, "step")} on ${format.plural(found.devices.length, "device")}`,
      ],
      [
        "Matched",
        `${(100 * found.coverage).toFixed(1)} % of the program's time in the trace is on an operation here`,
      ],
      ...(found.flightSeconds > 0
        ? [
            [
              "Asynchronous",
              `${format.seconds(found.flightSeconds)} a step from start to done, beside the rest`,
            ] as [string, string],
          ]
        : []),
    ]),
    ...found.notes.map((text) => note(`${text.charAt(0).toUpperCase()}${text.slice(1)}.`)),
    note(
      "The sum of what operations took: those that ran side by side add up, and waiting for other devices is part of a collective.",
    ),
  );
}

/** "host-1 TPU:3" if several hosts were traced, else the number. */
function deviceName(found: Measured, device: number): string {
  return found.names?.[found.devices.indexOf(device)] ?? String(device);
}

function perDevice(found: Measured): HTMLElement {
  const all = found.devices.map((device, k) => ({ device, seconds: found.deviceSeconds[k] }));
  const few = all.length <= DEVICE_BARS;
  const rows = few ? all : [...all].sort((a, b) => b.seconds - a.seconds).slice(0, DEVICE_BARS);
  return section(
    "Devices",
    bars(
      rows.map((r) => ({
        label: found.names ? deviceName(found, r.device) : `device ${r.device}`,
        value: r.seconds,
        text: format.seconds(r.seconds),
      })),
    ),
    few ? null : note(`The slowest ${DEVICE_BARS} of ${format.count(all.length)}.`),
  );
}

function table(
  ctx: PanelContext,
  found: Measured,
  rows: readonly MeasuredRow[],
  hasModel: boolean,
): HTMLElement {
  // It differs only for operations that contain others: loops and calls.
  const nested = rows.some((r) => r.itself < 0.995 * r.mean);
  const heads: Head[] = [
    ["Operation", "text"],
    ["Mean", "number", "of devices, one step, all its runs"],
    nested && ["Itself", "number", "without the operations that ran inside, such as a loop's body"],
    ["Slowest", "number"],
    ["Device", "number", "the slowest one"],
    ["Spread", "number", "how much longer the slowest device takes than the mean"],
    hasModel && ["Modelled", "number", "one step, on the chip of the Cost panel"],
    hasModel && [
      "Ratio",
      "number",
      "measured over modelled; for an asynchronous transfer, from start to done",
    ],
  ];
  return section(
    "Measured operations",
    scrolled(
      "Operations by measured time",
      figuresTable(
        heads,
        h(
          "tbody",
          null,
          ...rows
            .slice(0, TABLE_ROWS)
            .map((r) =>
              h(
                "tr",
                null,
                h(
                  "th",
                  { scope: "row" },
                  selectionLink(ctx, { kind: "instruction", index: r.instruction }),
                ),
                numberCell(format.seconds(r.mean)),
                nested && numberCell(r.itself < 0.995 * r.mean ? format.seconds(r.itself) : ""),
                numberCell(format.seconds(r.most)),
                numberCell(String(found.devices[r.slowest])),
                numberCell(`+${Math.round(100 * spread(r))} %`),
                hasModel && numberCell(r.modelled > 0 ? format.seconds(r.modelled) : ""),
                hasModel &&
                  numberCell(
                    r.modelled > 0 ? `${format.quantity(comparable(r) / r.modelled)}×` : "",
                  ),
              ),
            ),
        ),
      ),
    ),
    rows.length > TABLE_ROWS
      ? note(`The first ${TABLE_ROWS} of ${format.count(rows.length)}.`)
      : null,
  );
}
