/** Prints boxes, arrows, scale and text size of first pictures: node first_picture.mjs VIEW … */
import { readFileSync } from "node:fs";
import { decodeView } from "../../js/base/model.ts";
import { Engine } from "../../js/draw/engine.ts";
import { SUB_SIZE, TextMetrics } from "../../js/graph/metrics.ts";
import { ItemKind, type Projection } from "../../js/graph/project/projection.ts";
import { itemLabel } from "../../js/graph/project/words.ts";

// The graph's pane in windows of 1500 × 1000, 900 × 640 and 2560 × 1400 pixels.
const PANES = [
  [1055, 815],
  [832, 488],
  [2115, 1234],
];
for (const file of process.argv.slice(2)) {
  const model = await decodeView(new Uint8Array(readFileSync(file)));
  const out = PANES.map(([width, height]) => {
    const engine = new Engine(model, new TextMetrics(), width, height);
    const { picture } = engine.openDefault();
    const { kind } = picture.projection;
    let boxes = 0;
    for (let k = 1; k < kind.length; k++) if (kind[k] !== ItemKind.Open) boxes++;
    const fit = Math.min(1, width / picture.width, height / picture.height);
    const { count, pointOffsets } = picture.edges;
    let drawn = 0;
    for (let e = 0; e < count; e++) if (pointOffsets[e + 1] > pointOffsets[e]) drawn++;
    const cover = (picture.width * picture.height * fit * fit) / (width * height);
    const items = [];
    for (let item = 1; item < kind.length; item++) items.push(shown(engine, picture.projection, item));
    return { boxes, arrows: drawn, scale: fit, text: SUB_SIZE * fit, cover, items };
  });
  console.log(JSON.stringify(out));
}

/** What an item is: its words, whether it is open, its groups or the instruction that it draws. */
function shown(engine: Engine, p: Projection, item: number): object {
  const { tree } = engine;
  const node = p.nodes[item];
  const label = itemLabel(tree, p, item);
  const open = p.kind[item] === ItemKind.Open;
  const merged = (p.absorbed.get(item) ?? []).map((v) => tree.groupOf(v)).filter((g) => g >= 0);
  if (node >= tree.stacks) {
    const first = node - tree.stacks;
    const members = tree.model.fold.members.values.slice(first, p.stackEnd[item]);
    return { label, open, groups: [...members], inner: merged.slice(1), fold: true };
  }
  if (node < tree.instructions) {
    const group = tree.groupOf(node);
    return { label, open, instruction: node, groups: group >= 0 ? [group] : [] };
  }
  return { label, open, groups: [node - tree.instructions], inner: merged };
}
