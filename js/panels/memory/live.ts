/** What holds memory at a point of the schedule: a table, or groups by purpose, scope or line. */
import { type Child, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { shortPlace } from "../../base/lines.ts";
import type { Group, Grouping, Line, Memory } from "../../state/memory.ts";
import type { PanelContext } from "../panel.ts";
import { bars, figuresTable, type Head, note, section, selectionLink } from "../parts/parts.ts";
import { lineLink } from "../parts/source.ts";

const ROWS = 40;
const ORDERS: [Grouping | "size", string][] = [
  ["size", "size"],
  ["category", "what for"],
  ["scope", "scope"],
  ["line", "source line"],
];

export interface LiveList {
  element: HTMLElement;
  /** Lists what is live at a point. */
  show(point: number): void;
}

export function liveList(ctx: PanelContext, memory: Memory, toPeak: () => void): LiveList {
  const { extras, schedule, live } = memory;
  const element = h("div");
  const open = new Set<string>(); // labels of open groups, which stay open when the point changes
  let order: Grouping | "size" = "size";
  let point = extras.peakPoint;
  const choose = h(
    "select",
    {
      onchange: () => {
        order = choose.value as Grouping | "size";
        open.clear();
        list();
      },
    },
    ...ORDERS.map(([value, label]) => h("option", { value }, label)),
  );
  const rows = h("div", {
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": "Live values",
  });
  const groups = (by: Grouping) =>
    memory.groupsAt(point, by).map((g) => groupRow(ctx, memory, g, by, live[point], open));
  const list = () => {
    rows.replaceChildren(
      ...(order === "size" ? [table(ctx, memory, memory.liveAt(point), order)] : groups(order)),
    );
  };
  const show = (next: number) => {
    point = next;
    const isPeak = point === extras.peakPoint;
    const head = h(
      "p",
      null,
      `${format.bytes(live[point])} at `,
      selectionLink(ctx, { kind: "instruction", index: schedule[point] }),
      ` (${format.count(point + 1)} of ${format.count(schedule.length)})`,
      isPeak ? ", the peak" : " ",
      isPeak
        ? null
        : h("button", { class: "mini", type: "button", onclick: toPeak }, "go to the peak"),
    );
    list();
    element.replaceChildren(
      section(
        isPeak ? "Live at the peak" : "Live here",
        head,
        bars(
          memory.groupsAt(point, "category").map((g) => ({
            label: g.label,
            value: g.bytes,
            text: format.bytes(g.bytes),
          })),
        ),
        note(
          "Purposes are inferred from names, phases and shapes: exact for arguments, a guess for everything else.",
        ),
        h("label", { class: "field list-by" }, "List by ", choose),
      ),
      rows,
    );
  };
  return { element, show };
}

/** A group that opens to show its values. */
function groupRow(
  ctx: PanelContext,
  memory: Memory,
  group: Group,
  by: Grouping,
  total: number,
  open: Set<string>,
): HTMLElement {
  const inside = h("div");
  const fill = () => {
    if (!inside.firstChild) inside.append(table(ctx, memory, group.buffers, by));
  };
  const details = h(
    "details",
    {
      class: "live-group",
      open: open.has(group.label),
      ontoggle: () => {
        if (details.open) {
          open.add(group.label);
          fill();
        } else open.delete(group.label);
      },
    },
    h(
      "summary",
      { title: group.label },
      h("span", { class: "group-name" }, group.line ? sourceLink(ctx, group.line) : group.label),
      h("span", { class: "dim num" }, format.plural(group.buffers.length, "value")),
      h("span", { class: "share", "aria-hidden": "true" }, share(group.bytes / total)),
      h("span", { class: "num" }, format.bytes(group.bytes)),
    ),
    inside,
  );
  if (details.open) fill();
  return details;
}

function share(part: number): HTMLElement {
  return h("span", { class: "bar-fill plain", style: { width: `${(100 * part).toFixed(1)}%` } });
}

/** "train.py:31", a link that opens the source there, coloured by live bytes. */
export function sourceLink(ctx: PanelContext, at: Line): HTMLElement {
  const text = shortPlace(at.file, at.line);
  return lineLink(ctx, `${at.file}:${at.line}`, { text, figure: "live" });
}

/** `by` is what the values have in common, and has no column. */
function table(
  ctx: PanelContext,
  memory: Memory,
  values: readonly number[],
  by: Grouping | "size",
): HTMLElement {
  const { buffer, extras } = memory;
  const hasLines = by !== "line" && values.some((b) => memory.line(b));
  const hasPurpose = by !== "category";
  const number = (...text: Child[]) => h("td", { class: "num" }, ...text);
  const row = (b: number) => {
    const line = memory.line(b);
    return h(
      "tr",
      null,
      h(
        "th",
        { scope: "row" },
        selectionLink(ctx, { kind: "instruction", index: buffer.instruction[b] }, memory.name(b)),
      ),
      number(format.bytes(buffer.bytes[b])),
      hasPurpose && h("td", null, extras.categories[buffer.category[b]]),
      hasLines && h("td", null, line && sourceLink(ctx, line)),
      h("td", { class: "mono dim" }, shapeOf(ctx, memory, b)),
      number(`${buffer.start[b]}–${buffer.end[b]}`),
      buffer.offset &&
        number(
          buffer.allocation && buffer.allocation[b] >= 0
            ? `${buffer.allocation[b]}: ${format.count(buffer.offset[b])}`
            : "",
        ),
    );
  };
  const body = h("tbody", null, ...values.slice(0, ROWS).map(row));
  const heads: Head[] = [
    ["Value", "text"],
    ["Bytes", "number"],
    hasPurpose && ["What for", "text"],
    hasLines && ["Line", "text"],
    ["Shape", "text"],
    ["Live", "number", "schedule positions"],
    buffer.offset && ["Offset", "number", "XLA's allocation: offset in it"],
  ];
  const shown = figuresTable(heads, body);
  if (values.length <= ROWS) return shown;
  const rest = h(
    "button",
    {
      class: "mini",
      type: "button",
      onclick: () => {
        body.append(...values.slice(ROWS).map(row));
        rest.remove();
      },
    },
    `show all ${format.count(values.length)}`,
  );
  return h("div", null, shown, rest);
}

/** The shape of one leaf; the whole shape if the value is not a tuple. */
function shapeOf(ctx: PanelContext, memory: Memory, b: number): string {
  const whole = ctx.model.denseShape(memory.buffer.instruction[b]);
  if (!whole.startsWith("(")) return whole;
  return whole.match(/[a-z]\w*\[[^\]]*\]/g)?.[memory.buffer.leaf[b]] ?? whole;
}
