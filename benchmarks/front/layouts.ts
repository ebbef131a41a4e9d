/**
 * Lays out the first N instructions of ENTRY with one engine and prints {ms, bytes} as JSON:
 *
 *     node layouts.mjs VIEW ours|dagre N      or      … VIEW text N   for Graphviz input
 */
import { readFileSync } from "node:fs";
import dagre from "@dagrejs/dagre";
import { decodeView } from "../../js/base/model.ts";
import { layoutLocal, orderGraph } from "../../js/graph/layout/layout.ts";
import { prepareLocal } from "../../js/graph/layout/local.ts";

const [file, engine, limit] = process.argv.slice(2);
const model = await decodeView(new Uint8Array(readFileSync(file)));
let entry = 0;
for (let c = 0; c < model.computation.count; c++) {
  const g = model.computation.group[c];
  if (g >= 0 && model.groupKind(g) === "entry") entry = c;
}
const first = model.computation.first[entry];
const n = Math.min(Number(limit), model.computation.size[entry]);
const from: number[] = [];
const to: number[] = [];
const seen = new Set<number>();
for (let i = first; i < first + n; i++) {
  for (let e = model.operands.offsets[i]; e < model.operands.offsets[i + 1]; e++) {
    const o = model.operands.values[e];
    if (o < first || o >= first + n || seen.has(o * 1e6 + i)) continue;
    seen.add(o * 1e6 + i);
    from.push(o - first);
    to.push(i - first);
  }
}
if (engine === "text") {
  const lines = from.map((u, e) => `${u}->${to[e]}`);
  console.log(`digraph { node [shape=box width=1.5 height=0.35];\n${lines.join("\n")}\n}`);
} else {
  let ms = Number.POSITIVE_INFINITY;
  // The best of three where that takes no time: the first run is compiled as it goes.
  for (let run = 0; run < 3 && (run === 0 || ms < 1000); run++) {
  const begin = performance.now();
  if (engine === "ours") {
    const graph = prepareLocal(n, Int32Array.from(from), Int32Array.from(to), from.map(() => 1));
    layoutLocal(graph, orderGraph(graph), new Float64Array(n).fill(110), new Float64Array(n).fill(26));
  } else {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({});
    graph.setDefaultEdgeLabel(() => ({}));
    for (let v = 0; v < n; v++) graph.setNode(String(v), { width: 110, height: 26 });
    for (let e = 0; e < from.length; e++) graph.setEdge(String(from[e]), String(to[e]));
    dagre.layout(graph);
  }
  ms = Math.min(ms, performance.now() - begin);
  }
  const bytes = process.resourceUsage().maxRSS * 1024;
  console.log(JSON.stringify({ ms, bytes, n, edges: from.length }));
}
