/** Ranked findings of the analyses block; Python's analysis/findings writes and ranks them. */

import type { ViewModel } from "../base/model.ts";
import type { Findings } from "../view-extras.ts";

export function findingsOf(model: ViewModel): Findings | null {
  return model.header.extras.findings ?? null;
}
