import { readFileSync } from "node:fs";
import { decodeView } from "../../js/base/model.ts";
import { Engine } from "../../js/draw/engine.ts";
import { SUB_SIZE, TextMetrics } from "../../js/graph/metrics.ts";
import { openDefault, weights } from "../../js/graph/project/openness.ts";
const [file] = process.argv.slice(2);
const model = await decodeView(new Uint8Array(readFileSync(file)));
const e: any = new Engine(model, new TextMetrics(), 1055, 815);
for (const b of [60, 48, 42, 36, 30, 24, 18, 15, 12, 9, 6, 3]) {
  const o = openDefault(e.tree, e.flow, e.weight, b);
  for (const s of [0,1,2,3,4,5,6,7]) {
    e.shape = [
  { spread: 1, stretch: 1 },
  { spread: 0.65, stretch: 1 },
  { spread: 0.65, stretch: 1.6 },
  { spread: 0.65, stretch: 0.6 },
  { spread: 0.45, stretch: 1 },
  { spread: 0.45, stretch: 1.6 },
  { spread: 0.45, stretch: 1, row: 3 },
  { spread: 0.45, stretch: 1, flat: true },
][s];
    const f = e.fitOf(o);
    console.log(b, s, "boxes", e.shown, "arrows", e.arrows, "text", (f * SUB_SIZE).toFixed(1), (e.laidOut(e.projected(o)).width|0)+"x"+(e.laidOut(e.projected(o)).height|0));
  }
}
