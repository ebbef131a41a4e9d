/** Figures of instructions that a search can compare and sort by. */
import type { ViewModel } from "../base/model.ts";
import { costsOf } from "./costs.ts";

/** Output bytes; modelled seconds and FLOPs of all executions. */
export const AMOUNTS = ["bytes", "time", "flops"] as const;
export type Amount = (typeof AMOUNTS)[number];

/** A row an instruction, NaN unknown or part of another's; null where this View has none. */
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
