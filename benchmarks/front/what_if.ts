/** Time from another chip to painted boxes, in node: node what_if.js VIEW ANALYSES. */
import { readFileSync } from "node:fs";
import { decodeAnalyses, decodeView } from "../../js/base/model.ts";
import { paintInstructions } from "../../js/draw/coloring.ts";
import { LIGHT } from "../../js/theme/graph.ts";
import { COST_COLORINGS } from "../../js/panels/cost/colorings.ts";
import { costsOf } from "../../js/state/cost/costs.ts";

const [view, analyses] = process.argv.slice(2).map((p) => new Uint8Array(readFileSync(p)));
const model = await decodeView(view);
model.extend(await decodeAnalyses(analyses));
const costs = costsOf(model);
const coloring = COST_COLORINGS.find((c) => c.id === "seconds");
if (!costs || !coloring) throw new Error("the View has no costs");
const rows: { chip: string; model: number; rank: number; paint: number }[] = [];
for (const chip of costs.extras.hardware) {
  const begun = performance.now();
  costs.setChip(chip);
  const modelled = performance.now();
  costs.ranking(60);
  const ranked = performance.now();
  paintInstructions(model, coloring, LIGHT);
  rows.push({
    chip: chip.id,
    model: modelled - begun,
    rank: ranked - modelled,
    paint: performance.now() - ranked,
  });
}
console.log(JSON.stringify({ instructions: model.instruction.count, rows }));
