/** Prints boxes, arrows, scale and text size of first pictures: node first_picture.mjs VIEW … */
import { readFileSync } from "node:fs";
import { decodeView } from "../../js/base/model.ts";
import { Engine } from "../../js/draw/engine.ts";
import { SUB_SIZE, TextMetrics } from "../../js/graph/metrics.ts";
import { ItemKind } from "../../js/graph/project/projection.ts";

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
    return { boxes, arrows: drawn, scale: fit, text: SUB_SIZE * fit };
  });
  console.log(JSON.stringify(out));
}
