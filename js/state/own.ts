/** Numbers that the user gave for instructions, unchanged: NaN where none was given. */
import type { ViewModel } from "../base/model.ts";

export interface OwnValues {
  label: string;
  unit: string;
  values: Float64Array;
}

export function ownValues(model: ViewModel): OwnValues[] {
  const rows = model.header.extras.own ?? [];
  return rows.flatMap(({ label, unit }, k) => {
    const values = model.optional<Float64Array>(`own.${k}`);
    return values ? [{ label, unit, values }] : [];
  });
}
