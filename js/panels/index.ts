/** The panels, in the order of their tabs. A new panel is one file and one line here. */
import { code } from "./code/code.ts";
import { collectives } from "./collectives/collectives.ts";
import { cost } from "./cost/cost.ts";
import { details } from "./details/details.ts";
import { devices } from "./devices/devices.ts";
import { outline } from "./find/outline.ts";
import { searchResults } from "./find/search.ts";
import { findings } from "./findings/findings.ts";
import { measured } from "./measured/measured.ts";
import { memory } from "./memory/memory.ts";
import type { Panel } from "./panel.ts";
import { passes } from "./passes/passes.ts";
import { sourceLines } from "./text/source-lines.ts";
import { hloText } from "./text/text.ts";
import { timeline } from "./timeline/timeline.ts";

export const PANELS: readonly Panel[] = [
  findings,
  details,
  hloText,
  code,
  cost,
  timeline,
  memory,
  measured,
  collectives,
  devices,
  passes,
  sourceLines,
  outline,
  searchResults,
];
