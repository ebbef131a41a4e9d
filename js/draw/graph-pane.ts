/** The drawing of the graph: `createGraphPane` and the types its callers need. */
export type {
  BoxColoring,
  Direction,
  GraphPane,
  GraphStats,
  LegendEntry,
  ScreenRect,
  Target,
} from "./api.ts";
export { DARK, familyColor, type GraphTheme, LIGHT } from "./theme.ts";
