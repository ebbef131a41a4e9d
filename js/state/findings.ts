/** Ranked findings of the analyses block; Python's analysis/findings words and ranks them. */
import type { ViewModel } from "../base/model.ts";

export interface Finding {
  rule: string; // "gathered-twice"
  title: string;
  evidence: string;
  advice: string;
  share: number; // of the step or of the peak, 0 to 1
  atStake: string; // "1.2 ms modelled, 12.5 MiB on the wire"
  line: string; // "dir/train.py:31"; "" unknown
  inferred: boolean; // the line is that of what the evidence serves
  code: string; // that line's text; "" unknown
  count: number; // of the evidence; `instructions` are its first
  instructions: number[];
}

export interface Findings {
  headline: string[];
  rules: number;
  failed: string[];
  rows: Finding[];
}

export function findingsOf(model: ViewModel): Findings | null {
  return (model.header.extras.findings as Findings | undefined) ?? null;
}
