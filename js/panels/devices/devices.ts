/** The devices: what each holds and sends, which tiles of an array it has, and the traffic. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import { collectivesOf } from "../../state/devices/collectives.ts";
import {
  type ArrayRow,
  type Devices,
  devicesOf,
  meshSpots,
  tileRanges,
  torusSpots,
} from "../../state/devices/devices.ts";
import type { Panel, PanelContext } from "../panel.ts";
import { type HeatMap, heatMap, type Shown } from "../parts/heat.ts";
import { facts, note, plotWidth, section, selectionLink } from "../parts/parts.ts";
import { amount, balanceText, deviceMetrics } from "./metrics.ts";
import { holders, rangesText, type Tiles, tilesView } from "./tiles.ts";
import { trafficMatrix } from "./traffic.ts";

const LISTED = 400;
/** Figures that are always in a device's line. */
const SAID = ["parameter", "sent"];

export const devices: Panel = {
  id: "devices",
  title: "Devices",
  width: 0.46,
  available: (model) => devicesOf(model) !== null,
  render(element, ctx) {
    const found = devicesOf(ctx.model);
    if (found) show(element, ctx, found);
  },
};

function show(element: HTMLElement, ctx: PanelContext, found: Devices): void {
  const collectives = collectivesOf(ctx.model);
  let array: ArrayRow | null = biggestSharded(found);
  let tiles: Tiles | null = null;
  let map: HeatMap | null = null;
  // Read when it changes: reading it after changing the page would force a layout.
  let width = plotWidth(element);
  const watch = new ResizeObserver(() => {
    width = plotWidth(element);
  });
  watch.observe(element);
  ctx.signal.addEventListener("abort", () => watch.disconnect(), { once: true });
  const mapBox = h("div");
  const arrayBox = h("div");
  const say = h(
    "p",
    { class: "note", "aria-live": "polite" },
    "Hover over a device to see what it holds.",
  );
  const balance = h("p", { class: "note" });
  const amounts = deviceMetrics(ctx.model, found);
  const metric = h("select", { "aria-label": "Colour devices by", onchange: () => paint() });
  const place = h(
    "select",
    { "aria-label": "Arrange devices by", onchange: () => draw() },
    ...arrangements(found).map(([id, label]) => h("option", { value: id }, label)),
  );
  const chosenCollective = () => {
    const s = ctx.store.get("selection");
    return s.kind === "instruction" ? collectives?.byInstruction.get(s.index) : undefined;
  };
  const metrics = (): [string, string][] => {
    const list: [string, string][] = amounts.map((m) => [m.id, m.label]);
    if (array) list.push(["tile", `tile of ${array.name}`]);
    const row = chosenCollective();
    if (row?.groups && !row.groups.pairs)
      list.push(["group", `groups of ${row.kind} over ${row.axes}`]);
    return list;
  };
  let offered = "";
  const refreshMetrics = (wanted?: string) => {
    const before = wanted ?? metric.value;
    const list = metrics();
    // Replacing the options forces a layout, which takes longer than drawing the devices.
    if (offered !== String(list)) {
      offered = String(list);
      fill(metric, ...list.map(([id, label]) => h("option", { value: id }, label)));
    }
    metric.value = list.some(([id]) => id === before) ? before : list[0][0];
  };
  const shown = (): Shown => {
    if (metric.value === "tile" && array) {
      const sharding = found.shardings[array.sharding];
      const n = new Set(sharding.place).size;
      return { values: sharding.place, classes: n, unit: "tile", what: array.name };
    }
    const row = chosenCollective();
    if (metric.value === "group" && row?.groups) {
      const values = new Float64Array(found.count).fill(Number.NaN);
      row.groups.rows.forEach((group, k) => {
        for (const d of group) values[d] = k;
      });
      return { values, classes: row.groups.rows.length, unit: "group", what: row.kind };
    }
    const m = amounts.find((a) => a.id === metric.value) ?? amounts[0];
    return { values: m.values, unit: m.unit, what: m.label };
  };
  const paint = () => {
    map?.show(shown());
    const m = amounts.find((a) => a.id === metric.value);
    balance.textContent = m ? balanceText(m) : "";
  };
  const describe = (device: number) => {
    if (device < 0) return;
    const parts = [deviceName(found, device)];
    for (const m of amounts) {
      if (SAID.includes(m.id) || m.id === metric.value) parts.push(m.words(amount(m, device)));
    }
    if (array) {
      const sharding = found.shardings[array.sharding];
      const tile = sharding.place[device];
      const ranges =
        tile < 0 ? "nothing" : rangesText(tileRanges(array.dims, sharding.tiles, tile));
      parts.push(`${array.name} ${ranges}`);
      tiles?.mark(tile);
    }
    say.textContent = parts.join(" · ");
  };
  const draw = () => {
    const at =
      place.value === "torus"
        ? torusSpots(found.coords)
        : meshSpots(
            found.mesh?.sizes ?? [found.count],
            found.mesh?.partitions ?? identity(found.count),
          );
    map = heatMap({ ...at, label: String }, "Devices", describe, describe, ctx.signal);
    mapBox.replaceChildren(map.element);
    paint();
  };
  const showArray = () => {
    tiles = array
      ? tilesView(
          found,
          array,
          width,
          (tile) => {
            const row = array && found.shardings[array.sharding];
            map?.mark(tile >= 0 && row ? (holders(row).get(tile) ?? []) : []);
          },
          ctx.signal,
        )
      : null;
    fill(arrayBox, ...arrayFacts(ctx, found, array), tiles?.element ?? null);
  };
  const list = found.arrays.slice().sort((a, b) => b.globalBytes - a.globalBytes);
  const picker = h(
    "select",
    {
      "aria-label": "Array",
      onchange: () => {
        choose(found.arrays[Number(picker.value)], true);
        if (array && array.instruction >= 0) {
          ctx.store.selectInstruction(array.instruction);
          ctx.graph.reveal(array.instruction);
        }
      },
    },
    ...list
      .slice(0, LISTED)
      .map((a) => h("option", { value: a.index }, `${a.name} · ${shapeText(a)} · ${a.role}`)),
  );
  const choose = (next: ArrayRow, byTile: boolean) => {
    array = next;
    picker.value = String(next.index);
    showArray();
    refreshMetrics(byTile ? "tile" : undefined);
    paint();
  };
  const follow = () => {
    const s = ctx.store.get("selection");
    if (s.kind !== "instruction") return;
    const next = found.byInstruction.get(s.index);
    if (next && next !== array) choose(next, true);
    else if (chosenCollective()?.groups) {
      refreshMetrics("group");
      paint();
    }
  };
  ctx.store.on("selection", follow, ctx.signal);
  ctx.store.on("options", () => requestAnimationFrame(() => paint()), ctx.signal);
  const matrix = found.traffic ? trafficMatrix(found, ctx.signal, width) : null;
  const unknown = collectives?.rows.filter((r) => Number.isNaN(r.wire)).length ?? 0;
  if (unknown) {
    const without = `Without ${format.plural(unknown, "collective")} whose bytes are unknown.`;
    matrix?.append(note(without));
  }
  element.append(
    h(
      "div",
      { class: "devices" },
      section(
        meshTitle(found),
        h(
          "div",
          { class: "controls" },
          h("label", { class: "field" }, "Colour by", metric),
          h("label", { class: "field" }, "Arrange by", place),
        ),
        mapBox,
        balance,
        say,
      ),
      found.arrays.length
        ? section("Array", h("div", { class: "controls" }, picker), arrayBox)
        : section("Arrays", note(noShardings(found))),
      matrix ? section("Traffic, device to device", matrix) : null,
    ),
  );
  showArray();
  if (array) picker.value = String((array as ArrayRow).index);
  refreshMetrics();
  draw();
  follow();
}

/** Why no array is listed, and what the bytes above mean then. */
function noShardings(found: Devices): string {
  const why = "This dump does not say how its arguments are sharded. ";
  return Number.isFinite(found.bytes.parameter[0])
    ? `${why}The module is partitioned, so its shapes, and the bytes above, are per device.`
    : `${why}The module is not partitioned yet, so what each device will hold is unknown.`;
}

function identity(n: number): number[] {
  return Array.from({ length: n }, (_, k) => k);
}

function arrangements(found: Devices): [string, string][] {
  const mesh = found.mesh;
  const axes = mesh ? mesh.names.map((n, k) => `${n} ${mesh.sizes[k]}`).join(" × ") : "number";
  const list: [string, string][] = [["mesh", mesh ? `mesh axes: ${axes}` : "device number"]];
  if (found.coords.length === found.count) list.push(["torus", "physical coordinates"]);
  return list;
}

function meshTitle(found: Devices): string {
  const mesh = found.mesh;
  const kind = found.kind ? ` × ${found.kind}` : " devices";
  if (!mesh) return `${format.count(found.count)}${kind}`;
  const axes = mesh.names.map((n, k) => `${n}=${mesh.sizes[k]}`).join(", ");
  return `${format.count(found.count)}${kind}: ${mesh.given ? "mesh" : "mesh inferred from the module,"} ${axes}`;
}

export function deviceName(found: Devices, device: number): string {
  const mesh = found.mesh;
  const parts = [`device ${device}`];
  if (found.ids[device] !== device) parts.push(`id ${found.ids[device]}`);
  if (found.slices.length) parts.push(`slice ${found.slices[device]}`);
  if (mesh) {
    let rest = mesh.partitions.indexOf(device);
    const at = mesh.sizes.map(() => 0);
    for (let a = mesh.sizes.length - 1; a >= 0; a--) {
      at[a] = rest % mesh.sizes[a];
      rest = Math.floor(rest / mesh.sizes[a]);
    }
    parts.push(mesh.names.map((n, k) => `${n} ${at[k]}`).join(", "));
  }
  const coords = found.coords[device];
  if (coords) parts.push(`at (${coords.join(", ")})`);
  return parts.join(", ");
}

function biggestSharded(found: Devices): ArrayRow | null {
  let best: ArrayRow | null = null;
  for (const a of found.arrays) {
    const cut = found.shardings[a.sharding].tiles.some((n) => n > 1);
    if (cut && (!best || a.globalBytes > best.globalBytes)) best = a;
  }
  return best ?? found.arrays[0] ?? null;
}

function shapeText(a: ArrayRow): string {
  return `${a.type}[${a.dims.join(",")}]`;
}

function arrayFacts(ctx: PanelContext, found: Devices, a: ArrayRow | null): HTMLElement[] {
  if (!a) return [];
  const sharding = found.shardings[a.sharding];
  const rows: [string, HTMLElement | string][] = [
    ["Sharding", sharding.text],
    ["Whole", `${shapeText(a)} · ${format.bytes(a.globalBytes)}`],
    ["Per device", `${a.type}[${a.local.join(",")}] · ${format.bytes(a.bytes)}`],
    [
      "Tiles",
      `${format.count(new Set([...sharding.place].filter((t) => t >= 0)).size)}, each on ${format.plural(sharding.replicas, "device")}`,
    ],
  ];
  if (sharding.raw !== sharding.text) rows.push(["As XLA wrote it", h("code", null, sharding.raw)]);
  if (a.instruction >= 0) {
    rows.push(["In the graph", selectionLink(ctx, { kind: "instruction", index: a.instruction })]);
  }
  const out: HTMLElement[] = [facts(rows)];
  if (a.padded) out.push(note("The dump holds local shapes only: the whole is local × tiles."));
  return out;
}
