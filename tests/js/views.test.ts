/** Views freshly written by Python, as the renderer reads them. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, inject, test } from "vitest";
import { decodeAnalyses, decodeText, decodeView, type ViewModel } from "../../js/base/model.ts";
import { keyFigures } from "../../js/panels/chrome/header.ts";
import { COLORINGS } from "../../js/panels/colorings/colorings.ts";
import { PANELS } from "../../js/panels/index.ts";
import { costsOf } from "../../js/state/cost/costs.ts";
import { model as modelled } from "../../js/state/cost/what-if.ts";
import { collectivesOf } from "../../js/state/devices/collectives.ts";
import { devicesOf } from "../../js/state/devices/devices.ts";
import { memoryOf } from "../../js/state/memory.ts";

const folder = inject("views");
const read = (name: string) => new Uint8Array(readFileSync(join(folder, name)));

async function whole(name: string): Promise<ViewModel> {
  const model = await decodeView(read(`${name}.view`));
  model.extend(await decodeAnalyses(read(`${name}.analyses`)));
  return model;
}

const NAMES = readdirSync(folder)
  .filter((f) => f.endsWith(".view"))
  .map((f) => f.slice(0, -5));

describe.each(NAMES)("%s", (name) => {
  test("is read, with every panel and colouring", async () => {
    const model = await whole(name);
    expect(model.header.summary.instructions).toBe(model.instruction.count);
    for (const panel of PANELS) expect([true, false]).toContain(panel.available(model));
    for (const coloring of COLORINGS.filter((c) => c.available(model))) {
      expect(coloring.values(model)).toHaveLength(model.instruction.count);
    }
    const text = await decodeText(read(`${name}.text`));
    for (let i = 0; i < model.instruction.count; i++) {
      expect(text.instruction(i)).toContain(model.name(i));
    }
  });
});

describe("collectives", () => {
  test("are counted as Python counts them", async () => {
    const model = await whole("collectives");
    const words = keyFigures(model).join(" · ");
    expect(words).toContain("1 all-gather");
    expect(words).toContain("1 all-reduce");
    expect(words).toContain("1 reduce-scatter");
    expect(collectivesOf(model)?.rows.map((r) => r.kind)).toEqual([
      "all-gather",
      "all-reduce",
      "reduce-scatter",
    ]);
    expect(devicesOf(model)?.count).toBe(4);
    expect(memoryOf(model)?.extras.peakBytes).toBeGreaterThan(0);
  });
  test("take the time that Python modelled, and the what-if says the same", async () => {
    const model = await whole("collectives");
    const costs = costsOf(model);
    expect(costs?.chip?.id).toBe("tpu-v5e");
    if (!costs) return;
    const { seconds, bound, totals } = modelled(
      costs.columns,
      costs.extras.reaches,
      costs.runs,
      costs.chip,
    );
    expect(totals.total).toBeCloseTo(costs.totals.total, 12);
    expect([...bound]).toEqual([...costs.bound]);
    expect([...seconds]).toEqual([...costs.seconds]);
    expect(totals.exposed).toBeGreaterThan(0);
  });
});
