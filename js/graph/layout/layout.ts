/**
 * Places the nodes of one container, given their sizes. Everything is linear in nodes and drawn
 * edges (except for the logarithm of sorting a rank), and the same input gives the same picture.
 *
 *     ranks (rank.ts) → layers with dummies → order → x → columns → routes → components packed
 */
import { chooseColumns } from "./columns.ts";
import { assignX } from "./coordinates.ts";
import { buildLayers, type Layers, neighbours, split } from "./layers.ts";
import type { LocalGraph } from "./local.ts";
import { orderLayers } from "./order.ts";
import { pack } from "./pack.ts";
import { type Routes, RouteWriter } from "./routes.ts";

export interface LocalLayout {
  /** Top-left corner of each node. */
  x: Float64Array;
  y: Float64Array;
  width: number;
  height: number;
  routes: Routes;
  /** Columns beside the first. */
  cuts: number;
}

export interface LayoutOptions {
  gapX: number;
  gapY: number;
  dummyGap: number;
  /** Ratio of width to height to aim for. */
  aspect: number;
  /** Parts shorter than this are not cut into columns. */
  wrapHeight: number;
}

export const LAYOUT_OPTIONS: LayoutOptions = {
  gapX: 18,
  gapY: 20,
  dummyGap: 9,
  aspect: 1.4,
  wrapHeight: 420,
};

/** The node orders of a graph; kept so that new sizes do not change them. */
export interface Ordered {
  parts: (Layers | null)[];
  nodes: Int32Array;
  nodeOffsets: Int32Array;
}

export function orderGraph(graph: LocalGraph): Ordered {
  const { nodeOffsets, nodes, edgeOffsets, edges } = split(graph);
  const place = new Int32Array(graph.n);
  const parts: (Layers | null)[] = [];
  for (let c = 0; c < graph.components; c++) {
    const mine = nodes.subarray(nodeOffsets[c], nodeOffsets[c + 1]);
    if (mine.length === 1) {
      parts.push(null);
      continue;
    }
    const layers = buildLayers(
      graph,
      mine,
      edges.subarray(edgeOffsets[c], edgeOffsets[c + 1]),
      place,
    );
    orderLayers(layers, neighbours(layers));
    parts.push(layers);
  }
  return { parts, nodes, nodeOffsets };
}

export function layoutLocal(
  graph: LocalGraph,
  ordered: Ordered,
  w: Float64Array,
  h: Float64Array,
  options: LayoutOptions = LAYOUT_OPTIONS,
): LocalLayout {
  const { n, components } = graph;
  const x = new Float64Array(n);
  const y = new Float64Array(n);
  const partWidth = new Float64Array(components);
  const partHeight = new Float64Array(components);
  const writer = new RouteWriter(graph.from.length);
  let cuts = 0;
  for (let c = 0; c < components; c++) {
    const layers = ordered.parts[c];
    if (!layers) {
      const v = ordered.nodes[ordered.nodeOffsets[c]];
      partWidth[c] = w[v];
      partHeight[c] = h[v];
      continue;
    }
    const size = placePart(graph, layers, w, h, x, y, options, writer);
    partWidth[c] = size.width;
    partHeight[c] = size.height;
    cuts += size.columns - 1;
  }
  // Loose boxes sit closer together than parts with edges of their own.
  const single = ordered.parts.every((p) => p === null);
  // Parts with a flow of their own come first; single boxes fill the remaining space.
  const turn = Array.from({ length: components }, (_, c) => c).sort(
    (a, b) => Number(ordered.parts[a] === null) - Number(ordered.parts[b] === null) || a - b,
  );
  const packed = pack(
    partWidth,
    partHeight,
    turn,
    options.gapX * (single ? 0.7 : 1.2),
    options.gapY * (single ? 0.6 : 1),
    options.aspect,
  );
  for (let v = 0; v < n; v++) {
    x[v] += packed.x[graph.component[v]];
    y[v] += packed.y[graph.component[v]];
  }
  writer.shift((e) => {
    const c = graph.component[graph.from[e]];
    return [packed.x[c], packed.y[c]];
  });
  return { x, y, width: packed.width, height: packed.height, routes: writer.finish(), cuts };
}

function placePart(
  graph: LocalGraph,
  layers: Layers,
  w: Float64Array,
  h: Float64Array,
  x: Float64Array,
  y: Float64Array,
  options: LayoutOptions,
  writer: RouteWriter,
): { width: number; height: number; columns: number } {
  const { nodes, total, rank, ranks, offsets, slots, edges } = layers;
  const real = nodes.length;
  const width = new Float64Array(total);
  const heights = new Float64Array(ranks);
  for (let k = 0; k < real; k++) {
    width[k] = w[nodes[k]];
    heights[rank[k]] = Math.max(heights[rank[k]], h[nodes[k]]);
  }
  const center = assignX(layers, neighbours(layers), width, options.gapX, options.dummyGap);
  const gaps = rankGaps(layers, center, options.gapY);
  const extents = new Float64Array(ranks);
  for (let r = 0; r < ranks; r++) {
    const a = slots[offsets[r]];
    const b = slots[offsets[r + 1] - 1];
    extents[r] = center[b] + width[b] / 2 - (center[a] - width[a] / 2);
  }
  const crossing = new Int32Array(ranks);
  for (const u of layers.upper) crossing[rank[u]]++;
  const gutter = options.gapX * 2.2;
  const { begins } = chooseColumns(
    heights,
    gaps,
    extents,
    crossing,
    options.aspect,
    gutter,
    options.wrapHeight,
  );

  const columnOf = new Int32Array(ranks);
  const top = new Float64Array(ranks);
  const columns = begins.length - 1;
  let height = 0;
  for (let c = 0; c < columns; c++) {
    let at = 0;
    for (let r = begins[c]; r < begins[c + 1]; r++) {
      columnOf[r] = c;
      top[r] = at;
      at += heights[r] + gaps[r];
    }
    height = Math.max(height, at - gaps[begins[c + 1] - 1]);
  }
  // Chains of edges that change columns are not drawn and take no space at the sides.
  const dropped = new Uint8Array(total);
  let wrapped = 0;
  for (let c = 0; c < edges.length; c++) {
    if (columnOf[graph.rank[graph.from[edges[c]]]] === columnOf[graph.rank[graph.to[edges[c]]]]) {
      continue;
    }
    wrapped++;
    dropped.fill(1, layers.chainFirst[c], layers.chainFirst[c] + layers.chainLength[c]);
  }
  const left = new Float64Array(columns).fill(Number.POSITIVE_INFINITY);
  const right = new Float64Array(columns).fill(Number.NEGATIVE_INFINITY);
  for (let v = 0; v < total; v++) {
    if (dropped[v]) continue;
    const c = columnOf[rank[v]];
    left[c] = Math.min(left[c], center[v] - width[v] / 2);
    right[c] = Math.max(right[c], center[v] + width[v] / 2);
  }
  const lane = wrapped > 0 ? 22 : 0;
  const origin = new Float64Array(columns);
  let total_width = 0;
  for (let c = 0; c < columns; c++) {
    origin[c] = total_width - left[c];
    total_width += right[c] - left[c] + (c + 1 < columns ? gutter : 0);
  }
  for (let v = 0; v < total; v++) center[v] += origin[columnOf[rank[v]]];
  for (let r = 0; r < ranks; r++) top[r] += lane;
  for (let k = 0; k < real; k++) {
    const v = nodes[k];
    x[v] = center[k] - w[v] / 2;
    // Boxes shorter than their row sit at its top, so that the flow enters them at one height.
    y[v] = top[rank[k]];
  }
  const columnRight = Array.from({ length: columns }, (_, c) => right[c] + origin[c]);
  const leftOf = new Float64Array(ranks).fill(Number.POSITIVE_INFINITY);
  const rightOf = new Float64Array(ranks).fill(Number.NEGATIVE_INFINITY);
  for (let k = 0; k < real; k++) {
    const v = nodes[k];
    leftOf[rank[k]] = Math.min(leftOf[rank[k]], x[v]);
    rightOf[rank[k]] = Math.max(rightOf[rank[k]], x[v] + w[v]);
  }
  writer.beginPart({
    top,
    heights,
    gaps,
    columnOf,
    columnRight,
    left: leftOf,
    right: rightOf,
    gutter,
    lane,
  });
  for (let c = 0; c < edges.length; c++) {
    const e = edges[c];
    const a = graph.from[e];
    const b = graph.to[e];
    if (columnOf[graph.rank[a]] !== columnOf[graph.rank[b]]) {
      writer.wrap(e, a, b, graph.rank[a], graph.rank[b], x, y, w, h);
    } else {
      const first = layers.chainFirst[c];
      writer.curve(e, a, b, graph.rank[a], center, first, layers.chainLength[c], x, y, w, h);
    }
  }
  return { width: total_width, height: height + lane, columns };
}

/** Space below each rank: more where edges run far sideways, so that they do not look level. */
function rankGaps(layers: Layers, center: Float64Array, gapY: number): Float64Array {
  const gaps = new Float64Array(layers.ranks).fill(gapY);
  for (let s = 0; s < layers.upper.length; s++) {
    const r = layers.rank[layers.upper[s]];
    const run = Math.abs(center[layers.upper[s]] - center[layers.lower[s]]);
    gaps[r] = Math.max(gaps[r], Math.min(gapY * 2.4, gapY * 0.8 + run * 0.08));
  }
  return gaps;
}
