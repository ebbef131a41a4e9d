/** The tiles of an array over two of its dimensions; sliders select along the others. */
import { fill, h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import {
  type ArrayRow,
  type Devices,
  type ShardingRow,
  tileRanges,
} from "../../state/devices/devices.ts";
import { classColor, type Ink } from "../../theme/inks.ts";
import { painting } from "../parts/canvas.ts";

const MOST_WIDTH = 460;
const MOST_HEIGHT = 260;

/** Devices that hold each tile, by tile number. */
export function holders(sharding: ShardingRow): Map<number, number[]> {
  const out = new Map<number, number[]>();
  sharding.place.forEach((tile, device) => {
    if (tile < 0) return;
    const list = out.get(tile);
    if (list) list.push(device);
    else out.set(tile, [device]);
  });
  return out;
}

export function rangesText(ranges: readonly [number, number][]): string {
  if (ranges.some(([b, e]) => b >= e)) return "nothing but padding";
  return `[${ranges.map(([b, e]) => `${b}:${e}`).join(", ")}]`;
}

/** The two dimensions to draw: those split into the most tiles; of equals, the last ones. */
export function drawnDimensions(tiles: ArrayLike<number>): number[] {
  const dims = Array.from({ length: tiles.length }, (_, d) => d);
  return dims
    .sort((a, b) => tiles[b] - tiles[a] || b - a)
    .slice(0, 2)
    .sort((a, b) => a - b);
}

export interface Tiles {
  element: HTMLElement;
  mark(tile: number): void;
}

export function tilesView(
  devices: Devices,
  array: ArrayRow,
  room: number,
  hover: (tile: number) => void,
  signal: AbortSignal,
): Tiles {
  const width = Math.min(MOST_WIDTH, room);
  const sharding = devices.shardings[array.sharding];
  const { dims } = array;
  const tiles = sharding.tiles;
  const held = holders(sharding);
  const [row, column] = drawnDimensions(tiles).length > 1 ? drawnDimensions(tiles) : [-1, 0];
  const others = Array.from({ length: dims.length }, (_, d) => d).filter(
    (d) => d !== row && d !== column,
  );
  const fixed = new Map(others.map((d) => [d, 0]));
  const say = h(
    "p",
    { class: "note", "aria-live": "polite" },
    "Hover over a tile to see its indices.",
  );
  const sliders = others
    .filter((d) => tiles[d] > 1)
    .map((d) => {
      const text = h("span", { class: "dim" });
      const input = h("input", {
        type: "range",
        min: 0,
        max: tiles[d] - 1,
        value: 0,
        "aria-label": `Tile along dimension ${d}`,
        oninput: () => {
          fixed.set(d, Number(input.value));
          show();
          draw();
        },
      });
      const show = () => {
        const range = tileRanges([dims[d]], [tiles[d]], fixed.get(d) ?? 0)[0];
        text.textContent = `dimension ${d}: ${range[0]}:${range[1]} of ${dims[d]}`;
      };
      show();
      return h("label", { class: "field" }, text, input);
    });
  const rows = row >= 0 ? tiles[row] : 1;
  const columns = dims.length ? tiles[column] : 1;
  const tileAt = (r: number, c: number): number => {
    let tile = 0;
    for (let d = 0; d < dims.length; d++) {
      const at = d === row ? r : d === column ? c : (fixed.get(d) ?? 0);
      tile = tile * Math.max(1, tiles[d]) + at;
    }
    return tile;
  };
  // Tiles have the array's own aspect ratio, but long thin ones are kept readable.
  const tall = row >= 0 && dims.length ? dims[row] / Math.max(1, dims[column]) : 0.12;
  const height = Math.round(
    Math.min(MOST_HEIGHT, Math.max(34, rows * 16, width * Math.min(1, tall))),
  );
  let marked = -1;
  const paint = (g: CanvasRenderingContext2D, ink: Ink) => {
    g.textAlign = "center";
    const w = width / columns;
    const t = height / rows;
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const tile = tileAt(r, c);
        const inside = held.get(tile) ?? [];
        const empty = tileRanges(dims, tiles, tile).some(([b, e]) => b >= e);
        g.fillStyle = empty ? "transparent" : classColor(tile, ink);
        g.fillRect(c * w + 0.5, r * t + 0.5, w - 1, t - 1);
        g.strokeStyle = tile === marked ? ink.mark : ink.edge;
        g.lineWidth = tile === marked ? 3 : 1;
        g.strokeRect(c * w + 1, r * t + 1, w - 2, t - 2);
        if (w >= 22 && t >= 13) {
          g.fillStyle = ink.text;
          const fits = Math.max(1, Math.floor(w / 26));
          const many = inside.slice(0, fits).join(",") + (inside.length > fits ? "…" : "");
          g.fillText(
            empty ? (w >= 50 ? "padding" : "–") : many,
            c * w + w / 2,
            r * t + t / 2,
            w - 4,
          );
        }
      }
    }
  };
  const { canvas, draw } = painting(
    { "aria-label": `Tiles of ${array.name}` },
    () => [width, height],
    paint,
    signal,
  );
  const describe = (tile: number) => {
    const inside = held.get(tile) ?? [];
    const ranges = rangesText(tileRanges(dims, tiles, tile));
    const list = inside.slice(0, 24).join(", ") + (inside.length > 24 ? ", …" : "");
    say.textContent = `Tile ${tile} ${ranges} on ${format.plural(inside.length, "device")}: ${list}`;
  };
  const mark = (tile: number) => {
    marked = tile;
    draw();
    if (tile >= 0) describe(tile);
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const c = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const r = Math.floor(((event.clientY - box.top) / box.height) * rows);
    if (c < 0 || r < 0 || c >= columns || r >= rows) return;
    const tile = tileAt(r, c);
    if (tile === marked) return;
    mark(tile);
    hover(tile);
  });
  canvas.addEventListener("pointerleave", () => {
    mark(-1);
    hover(-1);
  });
  const element = h("div", { class: "tiles" });
  const size = (d: number) => `dimension ${d} (${format.count(dims[d])})`;
  const axes =
    row >= 0
      ? `${size(row)} down, ${size(column)} to the right`
      : dims.length
        ? size(0)
        : "a scalar";
  fill(element, canvas, h("p", { class: "note" }, `${axes}; numbers are devices`), ...sliders, say);
  return { element, mark };
}
