/** Figures of instructions that a search can compare with and sort by. */
import type { ViewModel } from "../../base/model.ts";
import { costsOf } from "./costs.ts";

/** Output bytes; modelled seconds and FLOPs over all executions. */
export const AMOUNTS = ["bytes", "time", "flops"] as const;
export type Amount = (typeof AMOUNTS)[number];

/** One row per instruction, NaN if unknown or counted in another's; null if the View has none. */
export function amountOf(model: ViewModel, amount: Amount): ArrayLike<number> | null {
  if (amount === "bytes") return model.instruction.bytes;
  const costs = costsOf(model);
  if (!costs || (amount === "time" && !costs.chip)) return null;
  const all =
    amount === "time"
      ? (i: number) => costs.step[i]
      : (i: number) => costs.flops[i] * costs.runs[i];
  return Float64Array.from(costs.unit, (unit, i) => (unit ? all(i) : Number.NaN));
}
