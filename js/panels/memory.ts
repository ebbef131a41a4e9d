/** Live bytes over the schedule, who holds them, donation, copies, what loops store. */
import { h } from "../base/dom.ts";
import * as format from "../base/format.ts";
import { costsOf } from "../state/costs.ts";
import { type Memory, memoryOf } from "../state/memory.ts";
import { timeline } from "./memory-timeline.ts";
import type { Panel, PanelContext } from "./panel.ts";
import { bars, facts, longList, note, plotWidth, section, selectionLink } from "./parts.ts";

const ROWS = 40;
const SPACES: Record<string, Record<number, string>> = {
  tpu: { 0: "HBM", 1: "VMEM", 2: "sync flags", 5: "host", 6: "SMEM" },
  gpu: { 0: "HBM", 1: "collective memory", 5: "host" },
};

export const memory: Panel = {
  id: "memory",
  title: "Memory",
  width: 0.42,
  available: (model) => memoryOf(model) !== null,
  render(element, ctx) {
    const found = memoryOf(ctx.model);
    if (!found) return;
    const at = h("div");
    const line = timeline(found, plotWidth(element), (point) => show(point));
    let point = found.extras.peakPoint;
    const show = (next: number) => {
      point = next;
      line.show(point);
      at.replaceChildren(...liveAt(ctx, found, point, () => show(found.extras.peakPoint)));
    };
    // A selected instruction that executes moves the marker to where it does.
    const where = new Map<number, number>();
    found.schedule.forEach((i, p) => {
      where.set(i, p);
    });
    ctx.store.on(
      "selection",
      () => {
        const s = ctx.store.get("selection");
        const p = s.kind === "instruction" ? where.get(s.index) : undefined;
        if (p !== undefined && p !== point) show(p);
      },
      ctx.signal,
    );
    element.append(
      h(
        "div",
        { class: "memory" },
        peaks(found),
        section("Live bytes over the schedule", line.element),
        at,
        ...audits(ctx, found),
      ),
    );
    show(point);
  },
};

function peaks(memory: Memory): HTMLElement {
  const x = memory.extras;
  const rows: [string, string][] = [
    ["Peak", `${format.bytes(x.peakBytes)} (${format.count(x.peakBytes)} B, ${x.peakSource})`],
  ];
  if (!x.peakSource.startsWith("simulated")) {
    rows.push(["Simulated", `${format.bytes(x.simulatedBytes)} from the schedule`]);
  }
  if (x.xlaPeakBytes !== null && x.xlaPeakBytes !== x.peakBytes) {
    const without = x.platform === "cpu" ? ", without temporaries" : "";
    rows.push(["XLA's peak_memory", `${format.bytes(x.xlaPeakBytes)}${without}`]);
  }
  const chip = SPACES[x.platform] ?? {};
  const spaces = x.spaces.filter((s) => s.peak > 0);
  if (spaces.length > 1) {
    for (const s of spaces) {
      rows.push([
        chip[s.space] ?? `memory space ${s.space}`,
        `${format.bytes(s.peak)} at its own peak`,
      ]);
    }
  }
  return facts(rows);
}

function liveAt(
  ctx: PanelContext,
  memory: Memory,
  point: number,
  toPeak: () => void,
): HTMLElement[] {
  const { buffer, extras, schedule, live } = memory;
  const isPeak = point === extras.peakPoint;
  const instruction = schedule[point];
  const rows = memory.liveAt(point);
  const head = h(
    "p",
    null,
    `${format.bytes(live[point])} at `,
    selectionLink(ctx, { kind: "instruction", index: instruction }),
    ` (${format.count(point + 1)} of ${format.count(schedule.length)})`,
    isPeak ? ", the peak" : " ",
    isPeak
      ? null
      : h("button", { class: "mini", type: "button", onclick: toPeak }, "go to the peak"),
  );
  const number = (text: string) => h("td", { class: "num" }, text);
  const table = h(
    "table",
    { class: "table figures-table" },
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        h("th", { scope: "col" }, "Value"),
        h("th", { scope: "col", class: "num" }, "Bytes"),
        h("th", { scope: "col" }, "What for"),
        h("th", { scope: "col" }, "Shape"),
        h("th", { scope: "col", class: "num", title: "schedule positions" }, "Live"),
        buffer.offset && h("th", { scope: "col", class: "num" }, "Offset"),
      ),
    ),
    h(
      "tbody",
      null,
      ...rows
        .slice(0, ROWS)
        .map((b) =>
          h(
            "tr",
            null,
            h(
              "th",
              { scope: "row" },
              selectionLink(
                ctx,
                { kind: "instruction", index: buffer.instruction[b] },
                memory.name(b),
              ),
            ),
            number(format.bytes(buffer.bytes[b])),
            h("td", null, extras.categories[buffer.category[b]]),
            h("td", { class: "mono dim" }, shapeOf(ctx, memory, b)),
            number(`${buffer.start[b]}–${buffer.end[b]}`),
            buffer.offset &&
              number(
                buffer.allocation && buffer.allocation[b] >= 0
                  ? `${buffer.allocation[b]}: ${format.count(buffer.offset[b])}`
                  : "",
              ),
          ),
        ),
    ),
  );
  return [
    section(
      isPeak ? "Live at the peak" : "Live here",
      head,
      bars(
        memory.categoriesAt(point).map((c) => ({
          label: extras.categories[c.category],
          value: c.bytes,
          text: format.bytes(c.bytes),
        })),
      ),
    ),
    note("What for is told from names, phases and shapes: a guess for all but arguments."),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Live values" },
      table,
    ),
    ...(rows.length > ROWS ? [note(`The largest ${ROWS} of ${format.count(rows.length)}.`)] : []),
  ];
}

/** The shape of one leaf; the whole shape where the value is no tuple. */
function shapeOf(ctx: PanelContext, memory: Memory, b: number): string {
  const whole = ctx.model.denseShape(memory.buffer.instruction[b]);
  if (!whole.startsWith("(")) return whole;
  return whole.match(/[a-z]\w*\[[^\]]*\]/g)?.[memory.buffer.leaf[b]] ?? whole;
}

function audits(ctx: PanelContext, memory: Memory): HTMLElement[] {
  const x = memory.extras;
  const out: HTMLElement[] = [];
  const link = (i: number, text?: string) =>
    i < 0
      ? h("span", null, text ?? "unknown")
      : selectionLink(ctx, { kind: "instruction", index: i }, text);
  const figure = (bytes: number) => h("span", { class: "figure" }, format.bytes(bytes));
  if (x.residuals.length) {
    const total = x.residuals.reduce((sum, r) => sum + r.bytes, 0);
    out.push(
      section(
        "Stored between loops",
        note(
          `${format.bytes(total)} that one loop stacks and a later one reads: what is really saved.`,
        ),
        longList(x.residuals, (r) =>
          h(
            "li",
            null,
            link(
              r.instruction,
              ctx.model.opName(r.instruction).split("/").slice(-2).join("/") || undefined,
            ),
            h("span", { class: "dim mono" }, `${r.shape}, ${r.slice} a step`),
            figure(r.bytes),
          ),
        ),
      ),
    );
  }
  if (x.remat.length) out.push(recompute(ctx, memory, link));
  if (x.donations.length) {
    const outcomes = [...new Set(x.donations.map((d) => d.outcome))].sort().reverse();
    out.push(
      section(
        "Donation",
        ...outcomes.map((outcome) => {
          const rows = x.donations.filter((d) => d.outcome === outcome);
          const total = rows.reduce((sum, d) => sum + d.bytes, 0);
          return h(
            "details",
            { open: outcome !== "aliased" },
            h("summary", null, `${outcome}: ${format.count(rows.length)}, ${format.bytes(total)}`),
            longList(rows, (d) =>
              h(
                "li",
                null,
                h("span", { class: "mono" }, d.argument),
                d.output ? h("span", { class: "dim" }, `output ${d.output}`) : null,
                figure(d.bytes),
              ),
            ),
          );
        }),
      ),
    );
  }
  if (x.copies.length) {
    out.push(
      section(
        "Copies of parameters",
        longList(x.copies, (c) =>
          h(
            "li",
            null,
            link(c.instruction),
            h("span", { class: "dim" }, `${c.argument}, another ${c.changes}`),
            figure(c.bytes),
          ),
        ),
      ),
    );
  }
  for (const loop of x.loops) {
    out.push(
      h(
        "details",
        { class: "section" },
        h(
          "summary",
          null,
          `Loop %${ctx.model.name(loop.instruction)} carries ${format.bytes(loop.bytes)}` +
            `${loop.trips === null ? ", trips unknown" : ` over ${format.plural(loop.trips, "trip")}`}` +
            `${loop.phase ? `, ${loop.phase}` : ""}`,
        ),
        longList(loop.carries, (c) =>
          h(
            "li",
            null,
            h("span", { class: "mono" }, `${c.index}: ${c.shape}`),
            h("span", { class: "tag" }, c.role),
            c.stored >= 0 ? link(c.stored) : null,
            figure(c.bytes),
          ),
        ),
      ),
    );
  }
  return out;
}

function recompute(
  ctx: PanelContext,
  memory: Memory,
  link: (i: number, text?: string) => HTMLElement,
): HTMLElement {
  const costs = costsOf(ctx.model);
  return section(
    "What recomputing would cost",
    note(
      "The largest temporaries live at the peak: bytes it would save, and what making them again costs once.",
    ),
    longList(memory.extras.remat, (r) => {
      const time = r.instructions.reduce((sum, i) => sum + (costs?.seconds[i] ?? 0), 0);
      const parts = [
        `${format.quantity(r.flops, "FLOP")}`,
        r.wireBytes ? `${format.bytes(r.wireBytes)} on the wire` : "",
        costs?.chip ? `${format.seconds(time)} modelled` : "",
      ];
      return h(
        "li",
        null,
        link(r.instruction),
        h("span", { class: "dim" }, r.reason || parts.filter(Boolean).join(", ")),
        h("span", { class: "figure" }, format.bytes(r.bytes)),
      );
    }),
  );
}
