/** The panels, in the order of their tabs. A new panel is one file and one line here. */
import { collectives } from "./collectives.ts";
import { cost } from "./cost.ts";
import { details } from "./details.ts";
import { devices } from "./devices.ts";
import { measured } from "./measured.ts";
import { memory } from "./memory.ts";
import { outline } from "./outline.ts";
import type { Panel } from "./panel.ts";
import { searchResults } from "./search.ts";
import { sourceLines } from "./source-lines.ts";
import { hloText } from "./text.ts";

export const PANELS: readonly Panel[] = [
  details,
  hloText,
  cost,
  memory,
  measured,
  collectives,
  devices,
  sourceLines,
  outline,
  searchResults,
];
