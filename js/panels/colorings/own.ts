/** Colourings by the user's own numbers (`cap.show(values=…)`): one for each set that was given. */

import type { ViewModel } from "../../base/model.ts";
import { ownValues } from "../../state/own.ts";
import type { Coloring } from "../panel.ts";

export function ownColorings(model: ViewModel): Coloring[] {
  return ownValues(model).map(({ label, unit, values }, k) => ({
    id: `own:${k}`,
    label,
    available: () => true,
    values: () => values,
    amounts: () => values,
    unit,
    scale: "log",
    source: "your values",
  }));
}
