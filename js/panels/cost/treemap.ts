/** Cost by scope: nested tiles with areas in proportion to their modelled time or FLOPs. */
import { h } from "../../base/dom.ts";
import * as format from "../../base/format.ts";
import type { Costs } from "../../state/cost/costs.ts";
import { PARTS, type ScopeCost, scopeCosts } from "../../state/cost/scope-costs.ts";
import type { Ink } from "../../theme/inks.ts";
import type { PanelContext } from "../panel.ts";
import { painting } from "../parts/canvas.ts";
import { bars, note, reveal } from "../parts/parts.ts";
import { type Rect, squarify } from "./treemap-layout.ts";

const DEPTH = 4;
const HEIGHT = 300;
const LISTED = 8;
/** Space for the name of a scope above its contents. */
const HEAD = 17;

export interface Tile extends Rect {
  scope: ScopeCost;
  level: number;
}

/** Tiles for the contents of `scope`, outer ones before inner ones; small tiles are not divided. */
export function tilesOf(scope: ScopeCost, room: Rect, level = 0): Tile[] {
  const rects = squarify(
    scope.children.map((c) => c.value),
    room,
  );
  return rects.flatMap((rect, k): Tile[] => {
    const child = scope.children[k];
    const tile = { ...rect, scope: child, level };
    const inner = {
      x: rect.x + 2,
      y: rect.y + HEAD,
      width: rect.width - 4,
      height: rect.height - HEAD - 2,
    };
    if (child.children.length < 2 || inner.width < 24 || inner.height < 16) return [tile];
    return [tile, ...tilesOf(child, inner, level + 1)];
  });
}

export function treemap(ctx: PanelContext, costs: Costs, width: number): HTMLElement | null {
  const root = scopeCosts(ctx.model, costs, DEPTH);
  if (root.children.length < 2) return null;
  const { chip } = costs;
  const amount = (v: number) => (chip ? format.seconds(v) : format.quantity(v, "FLOP"));
  const share = (v: number) => {
    const percent = (100 * v) / root.value;
    return percent >= 10 ? `${Math.round(percent)} %` : `${Number(percent.toPrecision(2))} %`;
  };
  const words = ({ value, part, groups }: ScopeCost) =>
    [
      `${amount(value)} · ${share(value)}`,
      part >= 0 ? `mostly ${PARTS[part]}` : "",
      groups.length > 1 ? `${format.count(groups.length)} together` : "",
    ]
      .filter(Boolean)
      .join(", ");
  const choose = ({ selection }: ScopeCost) => {
    if (!selection) return;
    ctx.store.select(selection);
    reveal(ctx, selection);
  };
  const measure = chip ? `time modelled on ${chip.label}` : "FLOPs";
  const tiles = tilesOf(root, { x: 0, y: 0, width, height: HEIGHT });
  const tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  let marked: Tile | null = null;
  const { canvas, draw } = painting(
    { "aria-label": `Treemap of ${measure} by scope. The largest are listed below.` },
    () => [width, HEIGHT],
    (g, ink) => paint(g, ink, tiles, marked),
    ctx.signal,
  );
  const mark = (tile: Tile | null) => {
    if (tile === marked) return;
    marked = tile;
    draw();
    tip.hidden = !tile;
    if (tile) tip.replaceChildren(h("b", null, tile.scope.label), ` ${words(tile.scope)}`);
  };
  const at = (event: PointerEvent | MouseEvent): Tile | null => {
    const box = canvas.getBoundingClientRect();
    const x = ((event.clientX - box.left) * width) / box.width;
    const y = ((event.clientY - box.top) * HEIGHT) / box.height;
    const inside = (t: Tile) => x >= t.x && y >= t.y && x < t.x + t.width && y < t.y + t.height;
    return tiles.filter(inside).at(-1) ?? null; // the innermost
  };
  canvas.addEventListener("pointermove", (event) => {
    const tile = at(event);
    mark(tile);
    canvas.style.setProperty("cursor", tile?.scope.selection ? "pointer" : "default");
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const left = x > box.width / 2;
    tip.style.setProperty("left", left ? "auto" : `${x + 12}px`);
    tip.style.setProperty("right", left ? `${box.width - x + 12}px` : "auto");
    tip.style.setProperty("top", `${event.clientY - box.top + 12}px`);
  });
  canvas.addEventListener("pointerleave", () => mark(null));
  canvas.addEventListener("click", (event) => {
    const tile = at(event);
    if (tile) choose(tile.scope);
  });
  const legend = chip
    ? h(
        "p",
        { class: "treemap-legend" },
        ...PARTS.map((part, k) => h("span", { class: `part-${k}` }, part)),
      )
    : null;
  const said = chip
    ? `Area is time modelled on ${chip.label}; what runs beside other work counts where it is waited for.`
    : "Area is FLOPs: no chip is chosen.";
  const top = root.children.filter((c) => c.selection).slice(0, LISTED);
  return h(
    "div",
    { class: "treemap" },
    h("div", { class: "treemap-box", style: { width: `${width}px` } }, canvas, tip),
    legend,
    note(`${said} Repeats count together. Loops are multiplied by their trip counts.`),
    bars(
      top.map((scope) => ({
        label: scope.label,
        value: scope.value,
        text: `${amount(scope.value)} · ${share(scope.value)}`,
        title: words(scope),
        onclick: () => choose(scope),
      })),
    ),
  );
}

function paint(
  g: CanvasRenderingContext2D,
  ink: Ink,
  tiles: readonly Tile[],
  marked: Tile | null,
): void {
  for (const t of tiles) {
    if (t.width < 0.5 || t.height < 0.5) continue;
    g.fillStyle = ink.parts[t.scope.part] ?? ink.parts[3];
    g.fillRect(t.x, t.y, t.width, t.height);
    g.strokeStyle = ink.treemapEdge;
    g.lineWidth = t.level ? 0.5 : 1.25;
    g.strokeRect(t.x + 0.5, t.y + 0.5, Math.max(0, t.width - 1), Math.max(0, t.height - 1));
    const label = t.height >= 15 && t.width >= 30 ? shortened(g, t.scope.label, t.width - 8) : "";
    if (!label) continue;
    g.fillStyle = ink.treemapText;
    g.fillText(label, t.x + 4, t.y + 9);
  }
  if (marked) {
    g.strokeStyle = ink.mark;
    g.lineWidth = 2.5;
    g.strokeRect(marked.x + 1, marked.y + 1, marked.width - 2, marked.height - 2);
  }
}

/** The label, cut to fit; "" if fewer than four characters would be left. */
function shortened(g: CanvasRenderingContext2D, label: string, room: number): string {
  const width = g.measureText(label).width;
  if (width <= room) return label;
  // Measuring is expensive: start at the length that characters of mean width would allow.
  for (let n = Math.floor((label.length * room) / width); n >= 4; n--) {
    const text = `${label.slice(0, n)}…`;
    if (g.measureText(text).width <= room) return text;
  }
  return "";
}
