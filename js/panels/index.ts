/** The panels, in the order of their tabs. A new panel is one file and one line here. */
import { details } from "./details.ts";
import type { Panel } from "./panel.ts";

export const PANELS: readonly Panel[] = [details];
